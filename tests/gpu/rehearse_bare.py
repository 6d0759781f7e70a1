#!/usr/bin/env python3
"""The calls of a lent GPU, rehearsed in a bare system without a network, each killed at a random
moment: what one call has measured is in the next one's results, and the last one ends complete.

Usage: rehearse_bare.py SYSTEM-ROOT BUNDLE BUILD [CALLS [SEED]]      (as root)
SYSTEM-ROOT: a Debian or Ubuntu with Python and nothing of ours, as debootstrap makes one.
BUNDLE: what tools/gpu_bundle made. BUILD: one with the emulated GPU, whose programs travel.
Every second call is on another machine, with what the call before it brought back.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import prebuilt
from command import ROOT

CALL = ("tools/gpu_report --bundle gpu-bundle --rehearse --minutes 5 --python none --out /root/out --resume "
        "build-gpu-results/RESULTS.json build-gpu/RESULTS.json")
LATEST = 4  # seconds; a call that is left alone takes some fifteen
EVERY_CALL = {("build", "build"), ("build", "cuBLASLt"), ("build", "compute_75"),
              ("suites", "opens")}


def call_without_network(system, seconds):
    """Returns the exit status, None where it was killed with all that it had started."""
    script = (f"mount -t proc proc {system}/proc && exec chroot {system} "
              f"sh -c 'cd /root/tree && {CALL}' >{system}/root/said 2>&1")
    child = subprocess.Popen(["unshare", "-n", "-m", "-p", "-f", "--kill-child", "sh", "-c", script])
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        child.wait()
        return None


def install(system, bundle, results):
    """The tree as it arrives on a machine: sources, the bundle, and what was brought back."""
    tree = system / "root/tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                            stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
    for name in filter(None, listed):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    shutil.copytree(bundle, tree / "gpu-bundle", symlinks=True)
    if results.exists():
        shutil.copytree(results, tree / "build-gpu-results")


def make_devices(system):
    for name, minor in (("null", 3), ("urandom", 9)):
        if not (system / "dev" / name).exists():
            os.mknod(system / "dev" / name, 0o020666, os.makedev(1, minor))


def rows_of(path):
    book = json.loads(path.read_text())
    return {(r["part"], r["key"]): r["at"] for r in book["rows"]
            if (r["part"], r["key"]) not in EVERY_CALL}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    system, bundle, build = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
    calls = int(sys.argv[4]) if len(sys.argv) > 4 else 12
    moments = random.Random(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
    back = system / "root/brought-back"
    shutil.rmtree(back, ignore_errors=True)
    make_devices(system)
    prebuilt.pack(bundle, build, "emulated")
    known = {}
    for number in range(calls + 1):
        if number % 2 == 0:
            install(system, bundle, back)
        out = system / "root/out"
        shutil.rmtree(out, ignore_errors=True)
        seconds = moments.uniform(0.5, LATEST) if number < calls else 300
        before = time.monotonic()
        status = call_without_network(system, seconds)
        took = time.monotonic() - before
        if (out / "RESULTS.json").exists():
            rows = rows_of(out / "RESULTS.json")
            lost = [k for k, at in known.items() if rows.get(k) != at]
            if lost:
                sys.exit(f"call {number}: lost {lost}")
            known = rows
            shutil.rmtree(back, ignore_errors=True)
            shutil.copytree(out, back)
        where = "another machine" if number % 2 == 0 else "the same machine"
        print(f"call {number + 1:2}, {where}: {'killed' if status is None else f'exit {status}'} "
              f"after {took:4.1f} s, {len(known)} rows", flush=True)
        if number == calls and status == 0 and not json.loads((out / "RESULTS.json").read_text())["not_run"]:
            print("complete; nothing that was measured was lost or measured again")
            return 0
    sys.exit("the last call did not end complete: " + (system / "root/said").read_text()[-2000:])


if __name__ == "__main__":
    sys.exit(main())
