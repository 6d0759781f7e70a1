"""The GPU of this machine and the programs that are run on it. `Rehearsal` puts the emulation of
tests/cuda_sim in place of a GPU."""
import ctypes
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import prebuilt
from command import FAILED, OK, ROOT, Outcome, end_session, run, start

CONFIGS = ROOT / "tests/model/configs"
CUBLASLT = ("libcublasLt.so.13", "libcublasLt.so.12")
NCCL = ("libnccl.so.2",)
TURING = "75"
TOOLKIT_LIBRARIES = pathlib.Path("/usr/local/cuda/lib64")  # where the program looks as well

# Asked of the interpreter with PyTorch; importing it would take a minute, and the time of the GPU.
ASK = """
import importlib.util, json, sys
lacks = [m for m in ("torch", "transformers", "peft") if importlib.util.find_spec(m) is None]
print(json.dumps({"lacks": lacks, "paths": [p for p in sys.path if p]}))
"""


class Unusable(Exception):
    """There is no GPU to report on."""


class Machine:
    is_gpu = True
    programs = prebuilt.ON_GPU

    def __init__(self, build, python):
        self.build, self.python = build, python
        # The context of a GPU that runs remember belongs to the report, not to the user.
        self.env = {"XDG_CACHE_HOME": str(build / "report-cache")}
        libraries = os.environ.get("GPU_BUNDLE_LIBRARIES")
        if libraries:  # for these programs alone: PyTorch brings its own
            more = os.environ.get("LD_LIBRARY_PATH")
            self.env["LD_LIBRARY_PATH"] = f"{libraries}:{more}" if more else libraries
        self.use(build)
        self.interpreter = {"lacks": ["an interpreter"], "paths": []}
        self.importing = self.nvml = None
        self.is_warm = False  # a run of this call has measured the context
        self.warm_up_shape = None
        self.ranks = 0  # at most, in one run; 0: nothing moves tensors between GPUs

    def use(self, root):
        self.at = {name: root / path for name, path in self.programs.items()}
        self.plimsoll, self.bench, self.kernels = (self.at[n] for n in ("plimsoll", "bench",
                                                                       "kernels"))

    def arch(self, facts):
        return facts["sm"]

    def facts(self):
        names = ["name", "driver_version", "memory.total", "compute_cap", "power.limit",
                 "clocks.max.sm"]
        if not shutil.which("nvidia-smi"):
            raise Unusable("no nvidia-smi, so no GPU to report on")
        out = run(["nvidia-smi", "--query-gpu=" + ",".join(names), "--format=csv,noheader"], 60)
        rows = [line.split(",") for line in out.text.splitlines() if line.count(",") == 5]
        if out.exit != 0 or not rows:
            raise Unusable("nvidia-smi finds no GPU\n" + out.text)
        fields = [f.strip() for f in rows[0]]
        facts = dict(zip(["name", "driver", "memory", "sm", "power", "clock"], fields))
        facts["sm"] = facts["sm"].replace(".", "")
        facts["gpus"] = len(rows)
        return facts

    # --- programs ---

    def make(self, facts, seconds, log):
        """Those of the bundle where they start, else those that are built here. A program that does
        not build costs only its own parts; `log` gets all that the build said."""
        before = time.monotonic()
        bundle = os.environ.get("GPU_BUNDLE")
        why = "no bundle"
        if bundle:
            place = self.build / "prebuilt"
            try:
                made = prebuilt.take(prebuilt.archive_of(ROOT / bundle, self.arch(facts)), place,
                                     self.programs, facts["driver"], self.env)
                self.use(place)
                return {"status": OK, "exit": 0, "how": f"came with the bundle: {made['made']}",
                        "seconds": round(time.monotonic() - before, 1)}
            except (prebuilt.Unusable, OSError) as refused:
                why = str(refused)
        self.use(self.build)
        out = self.build_here(facts, seconds)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(out.text)
        return out.row(how=f"built here: {why}")

    def build_here(self, facts, seconds):
        meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
        if importlib.util.find_spec("mesonbuild") is None:
            meson = ["meson"]
            if not shutil.which("meson"):
                return Outcome(127, "there is no meson, with Python or on PATH: name a bundle "
                               "(tools/gpu_bundle makes one)\n", 0)
        setup = [*meson, "setup", self.build, "-Dtests=enabled", "-Dcuda=enabled",
                 f"-Dcuda-arch={facts['sm']}", "--buildtype=release"]
        if (self.build / "meson-private/coredata.dat").exists():
            setup.insert(len(meson) + 1, "--reconfigure")
        env = {**self.env, **self.cublas_headers()}
        out = run(setup, seconds, env)
        if out.exit == 0:
            targets = ["tools/plimsoll", "tests/bench/bench_cuda", "gpu-tests"]
            done = run(["ninja", "-k", "0", "-C", self.build, *targets], seconds - out.seconds, env)
            failed = [x for x in done.text.splitlines() if x.startswith("FAILED")]
            out = Outcome(done.exit, "\n".join([*failed, out.text, done.text]),
                          out.seconds + done.seconds)
        return out

    # --- what it finds on the machine ---

    def ask_interpreter(self):
        """Which packages self.python has, and where it looks for them."""
        try:
            answers = run([self.python, "-c", ASK], 60).lines() if self.python else []
        except OSError:
            answers = []  # no such interpreter
        self.interpreter = answers[-1] if answers else self.interpreter
        return self.interpreter["lacks"]

    def has_torch(self, mode="full"):
        needed = {"torch", "transformers"} | ({"peft"} if mode != "full" else set())
        return not needed & set(self.interpreter["lacks"]) and bool(self.interpreter["paths"])

    def begin_importing(self):
        """Reads PyTorch from a cold disk into memory while rows without it run."""
        if self.has_torch():
            self.importing = start(["nice", self.python, "-c", "import torch, transformers"], None,
                                   subprocess.DEVNULL)

    def end_importing(self, seconds):
        """Before the first row whose time counts."""
        if self.importing:
            try:
                self.importing.wait(max(seconds, 1))
            except subprocess.TimeoutExpired:
                end_session(self.importing.pid)
            self.importing = None

    def nvidia_folders(self, *names):
        """Where PyTorch's packages keep the libraries of the toolkit, newest first."""
        return [pathlib.Path(path) / "nvidia" / name for name in names
                for path in self.interpreter["paths"]]

    def find_library(self, variable, names, folders, without):
        """A row that says which library the programs load; the loader's own comes first. without:
        what cannot be done without it."""
        given = os.environ.get(variable)
        if given:
            return {"status": OK, "exit": None, "seconds": 0, "how": f"{variable}: {given}"}
        for name in (n for c in names for n in (c, TOOLKIT_LIBRARIES / c)):
            if can_load(name):
                return {"status": OK, "exit": None, "seconds": 0, "how": str(name)}
        for folder in self.nvidia_folders(*folders):
            for path in (folder / "lib" / name for name in names):
                if path.exists() and can_load(path):
                    self.env[variable] = str(path)
                    return {"status": OK, "exit": None, "seconds": 0, "how": f"Python's: {path}"}
        return {"status": FAILED, "exit": None, "seconds": 0, "tail":
                f"no {' or '.join(names)}: not with the loader, not in {TOOLKIT_LIBRARIES}, not in "
                f"nvidia/{folders[0]}/lib of Python's packages; {without}"}

    def find_cublas(self):
        return self.find_library("PLIMSOLL_CUBLASLT", CUBLASLT, ("cu13", "cublas"),
                                 "no program can open the GPU")

    def find_nccl(self):
        """Without it there are no rows of ranks, and all others."""
        row = self.find_library("PLIMSOLL_NCCL", NCCL, ("nccl",), "no ranks are run")
        return {**row, "status": "skipped"} if row["status"] == FAILED else row

    def find_turing(self, facts):
        """A row that says whether usable programs for Turing GPUs (T4, RTX 20) came along."""
        row = {"status": "skipped", "exit": None, "seconds": 0}
        bundle = os.environ.get("GPU_BUNDLE")
        if not bundle:
            return {**row, "how": "absent: no bundle"}
        archive = prebuilt.archive_of(ROOT / bundle, TURING)
        if not archive.exists():
            return {**row, "how": f"absent: there is no {archive.name} in the bundle"}
        try:
            manifest = prebuilt.manifest_in(archive)
            prebuilt.check(archive, manifest, facts["driver"])
        except prebuilt.Unusable as refused:
            return {**row, "how": f"absent: {refused}"}
        return {**row, "status": OK, "how": f"present: {manifest['made']}"}

    def cublas_headers(self):
        """A toolkit may come without them: those of Python's packages, and no other header of
        theirs, since the rest must be the toolkit's."""
        for folder in self.nvidia_folders("cu13", "cublas"):
            if (folder / "include/cublasLt.h").exists():
                links = self.build.with_name(self.build.name + "-cublas")
                shutil.rmtree(links, ignore_errors=True)
                links.mkdir(parents=True)
                for header in (folder / "include").glob("cublas*.h"):
                    (links / header.name).symlink_to(header)
                # Compilers look there after what -I names and before the system's.
                return {"CPATH": os.pathsep.join(filter(None, [os.environ.get("CPATH"),
                                                               str(links)]))}
        return {}

    def hold_driver(self):
        """Keeps the GPU initialised between programs: without persistence mode the driver begins
        anew, seconds each time, whenever nothing has it open. True: it is held."""
        path = self.env.get("PLIMSOLL_NVML", os.environ.get("PLIMSOLL_NVML", "libnvidia-ml.so.1"))
        try:
            library = ctypes.CDLL(path)
            count, handle = ctypes.c_uint(), ctypes.c_void_p()
            if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
                return False
            held = [library.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) == 0
                    for i in range(count.value)]
        except (OSError, AttributeError):
            return False
        self.nvml = library
        return any(held)

    def smoke(self, seconds):
        """Opens the GPU and copies: what fails here fails in every row."""
        out = run([self.bench, "copy"], seconds, self.env)
        row = out.row()
        for line in out.lines("copy"):
            row.update(bytes_per_second=line["bytes_per_second"])
        if row["status"] == OK and not row.get("bytes_per_second"):
            row.update(status=FAILED, tail="nothing was copied: " + out.text[-600:])
        return row

    def torch_arguments(self):
        return []


def can_load(path):
    """In a process of its own: the library stays out of the report."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    return run([sys.executable, "-c", code, path], 60).exit == 0


class Rehearsal(Machine):
    is_gpu = False
    programs = prebuilt.EMULATED

    def __init__(self, build, python):
        super().__init__(build, python)
        self.env["PLSIM_CONTEXT_BYTES"] = str(256 << 20)
        self.env["PLSIM_DEVICES"] = "2"
        fake = pathlib.Path(__file__).parent / "rehearsal"
        os.environ["PATH"] = f"{fake}:{os.environ['PATH']}"

    def use(self, root):
        super().use(root)
        self.env.update(PLIMSOLL_CUBLASLT=str(self.at["lt"]), PLIMSOLL_NVML=str(self.at["nvml"]),
                        PLIMSOLL_NCCL=str(self.at["nccl"]))

    def arch(self, facts):
        return "emulated"

    def build_here(self, facts, seconds):
        """An emulation is built with the tests."""
        missing = [str(p) for p in self.at.values() if not p.exists()]
        return Outcome(int(bool(missing)), "".join(f"not built: {p}\n" for p in missing), 0)

    def find_cublas(self):
        return {"status": OK, "exit": None, "seconds": 0, "how": self.env["PLIMSOLL_CUBLASLT"]}

    def find_nccl(self):
        return {"status": OK, "exit": None, "seconds": 0, "how": self.env["PLIMSOLL_NCCL"]}

    def torch_arguments(self):
        return ["--cpu"]


def number_after(word, text):
    """The last number after a word, None without one."""
    found = re.findall(re.escape(word) + r"\D*(\d+)", text)
    return int(found[-1]) if found else None


def write_whole(path, text):
    """A file is what it was or what it becomes, also when the machine goes down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)
