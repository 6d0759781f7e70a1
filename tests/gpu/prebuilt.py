#!/usr/bin/env python3
"""Programs that travel with a bundle, packed where there is a toolkit and used where they start.

Called by tools/gpu_bundle:   prebuilt.py pack BUNDLE BUILD ARCH      (ARCH: 90, ..., or `emulated`)
The archive BUNDLE/programs-<ARCH>.tar.xz holds stripped programs under their paths in BUILD, and
manifest.json: the sources they were made of, and the oldest driver that their CUDA runtime takes.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
from command import ROOT, run

# Paths in a build by what the report calls them.
ON_GPU = {
    "plimsoll": "tools/plimsoll", "bench": "tests/bench/bench_cuda",
    "kernels": "tests/gpu/check_kernels_gpu", "golden": "tests/golden/check_golden",
    "generate": "tests/golden/check_generate", "quant": "tests/gpu/check_quant_gpu",
    "quant_golden": "tests/gpu/check_quant_golden_gpu",
    "neighbour": "tests/gpu/check_neighbour", "holder": "tests/gpu/neighbour"}
EMULATED = {
    "plimsoll": "tests/cuda_sim/plimsoll_cuda_sim", "bench": "tests/bench/bench_cuda_sim",
    "kernels": "tests/cuda_sim/check_kernels_cuda", "golden": "tests/golden/check_golden",
    "lt": "tests/cuda_sim/plsim_lt.so", "nvml": "tests/cuda_sim/plsim_nvml.so",
    "nccl": "tests/cuda_sim/plsim_nccl.so"}
PROGRAMS = {"emulated": EMULATED}  # of any other ARCH: ON_GPU

# First driver branch by major version of the toolkit (CUDA Toolkit Release Notes, "CUDA Driver"); of
# 12 it is that of 12.1, which passes 32 KiB of arguments.
OLDEST_DRIVER = {12: 530, 13: 580}

# Programs share their kernels; the window of this level spans several of them.
PRESET = 9

SOURCES = ("estimator", "oom_recovery", "runtime", "tools", "tests")
SUFFIXES = {".c", ".h", ".cu", ".cuh", ".in", ".build"}


class Unusable(Exception):
    """Why the programs of a bundle are not used here."""


def archive_of(bundle, arch):
    return pathlib.Path(bundle) / f"programs-{arch}.tar.xz"


def digest_of_sources():
    """Of every file that programs are made of: what is measured must be the tree that is there."""
    files = [ROOT / "meson.build", ROOT / "meson_options.txt"]
    for room in SOURCES:
        files += sorted(p for p in (ROOT / room).rglob("*") if p.suffix in SUFFIXES)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


# --- where they are made --------------------------------------------------------------------------

def cuda_version():
    """Of the toolkit that the build has found, by asking the nvcc on the same paths."""
    places = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [f"{p}/bin" for p in places if p] + [os.environ["PATH"], "/usr/local/cuda/bin",
                                                  "/opt/cuda/bin"]
    nvcc = shutil.which("nvcc", path=":".join(places))
    found = nvcc and re.search(r"release (\d+)\.(\d+)", run([nvcc, "--version"], 60).text)
    return tuple(map(int, found.groups())) if found else (0, 0)


def manifest_of(arch):
    major, minor = (0, 0) if arch in PROGRAMS else cuda_version()
    made = "emulated" if arch in PROGRAMS else f"CUDA {major}.{minor}, sm_{arch}"
    return {"made": made, "sources": digest_of_sources(), "driver": OLDEST_DRIVER.get(major, 0)}


def pack(bundle, build, arch):
    """Returns the archive; it is there whole or not at all."""
    archive = archive_of(bundle, arch)
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch) / "programs"
        for path in PROGRAMS.get(arch, ON_GPU).values():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(build / path, tree / path)
            stripped = run(["strip", "--strip-unneeded", tree / path], 60)
            if stripped.exit != 0:
                raise SystemExit(f"prebuilt: {path}: {stripped.text}")
        (tree / "manifest.json").write_text(json.dumps(manifest_of(arch), indent=1) + "\n")
        fresh = archive.with_suffix(".new")
        with tarfile.open(fresh, "w:xz", preset=PRESET) as out:
            out.add(tree, "")
        os.replace(fresh, archive)
    return archive


# --- where they are used --------------------------------------------------------------------------

def unpack(archive, place):
    """The archive's manifest; `place` holds its programs, all of them: a call that was ended while
    it unpacked leaves only a directory that the next one clears."""
    fresh = place.with_name(place.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        with tarfile.open(archive) as packed:
            if hasattr(tarfile, "data_filter"):
                packed.extractall(fresh, filter="data")
            else:
                packed.extractall(fresh)
        manifest = json.loads((fresh / "manifest.json").read_text())
    except (OSError, ValueError, EOFError, ImportError, tarfile.TarError) as broken:
        raise Unusable(f"{archive}: {broken}") from broken
    os.replace(fresh, place)
    return manifest


def manifest_in(archive):
    """The manifest alone, which is read without unpacking the programs."""
    try:
        with tarfile.open(archive) as packed:
            return json.loads(packed.extractfile("manifest.json").read())
    except (OSError, ValueError, KeyError, EOFError, ImportError, tarfile.TarError) as broken:
        raise Unusable(f"{archive}: {broken}") from broken


def check(archive, manifest, driver):
    """Unusable: the programs were made of another tree, or need a later driver."""
    if manifest.get("sources") != digest_of_sources():
        raise Unusable(f"{archive.name} was made of other sources than these")
    if is_older(driver, manifest.get("driver", 0)):
        raise Unusable(f"{manifest['made']}: needs driver {manifest['driver']}, "
                       f"this machine has {driver}")


def why_not_started(program, env):
    """What the loader lacks for a program: a library, or a version of one. None: nothing."""
    out = run([program], 10, {**env, "LD_TRACE_LOADED_OBJECTS": "1", "LD_BIND_NOW": "1",
                              "LD_WARN": "1"})
    lacks = [x.strip() for x in out.text.splitlines()
             if "not found" in x or "undefined symbol" in x]
    if lacks or out.exit != 0:
        return "; ".join(lacks) or f"exit {out.exit}: {out.text[-200:].strip()}"
    return None


def is_older(driver, oldest):
    number = re.match(r"\d+", driver or "")
    return bool(number) and int(number.group()) < oldest


def take(archive, place, programs, driver, env):
    """Unpacks and looks; takes about a second. Unusable: they are to be built here."""
    if not archive.exists():
        raise Unusable(f"there is no {archive.name} in the bundle")
    manifest = unpack(archive, place)
    check(archive, manifest, driver)
    for path in programs.values():
        if path.endswith(".so"):  # loaded by one of the others
            continue
        why = why_not_started(place / path, env)
        if why:
            raise Unusable(f"{path} does not start here: {why}")
    return manifest


def main():
    if len(sys.argv) != 5 or sys.argv[1] != "pack":
        sys.exit(__doc__)
    archive = pack(sys.argv[2], pathlib.Path(sys.argv[3]).resolve(), sys.argv[4])
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
