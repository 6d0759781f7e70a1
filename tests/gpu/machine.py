"""The programs of a build, the GPU they run on, and how they are run: with a limit, keeping what
they said. `Rehearsal` puts the emulation of tests/cuda_sim in place of a GPU."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests/model/configs"
OK, FAILED, LATE = "ok", "failed", "out of time"
HEAD, TAIL = 900, 1600  # of what a command said
DYING = 10  # seconds that what was ended may take to go


class Outcome:
    """exit: None when the limit ran out, and everything the command had started was ended."""

    def __init__(self, code, text, seconds):
        self.exit, self.text, self.seconds = code, text, seconds

    def row(self, **more):
        """What every row says of the command behind it."""
        status = LATE if self.exit is None else OK if self.exit == 0 else FAILED
        row = {"status": status, "exit": self.exit, "seconds": round(self.seconds, 1), **more}
        if status != OK:
            row["tail"] = self.text
            if len(self.text) > HEAD + TAIL:
                row["tail"] = self.text[:HEAD] + "\n[...]\n" + self.text[-TAIL:]
        return row

    def lines(self, event=None):
        """The JSON objects among the lines, of one event or all."""
        found = []
        for line in self.text.splitlines():
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue  # a program that was ended in the middle of a line
        return [o for o in found if event is None or o.get("event") == event]


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def die_with_the_report():
    """In the command before it starts: it does not outlive a report that is killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_session(leader):
    """Ends all that a command has started. Its tests have process groups of their own, which the
    signal to one group would miss, and hold the GPU's memory and our end of the pipe."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) == leader:
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue  # it went by itself


def last_words(child):
    """What an ended command said. A process that hangs in the driver does not go, so this does not
    wait for it."""
    try:
        return child.communicate(timeout=DYING)[0]
    except subprocess.TimeoutExpired as hanging:
        return (hanging.output or b"").decode(errors="replace")


def run(command, seconds, env=None):
    before = time.monotonic()
    child = subprocess.Popen([str(c) for c in command], cwd=ROOT, env={**os.environ, **(env or {})},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace",
                             start_new_session=True, preexec_fn=die_with_the_report)
    try:
        text, _ = child.communicate(timeout=max(seconds, 1))
        code = child.returncode
    except subprocess.TimeoutExpired:
        end_session(child.pid)
        text, code = last_words(child), None
    finally:
        end_session(child.pid)
    return Outcome(code, text, time.monotonic() - before)


class Machine:
    is_gpu = True

    def __init__(self, build, python):
        self.build, self.python = build, python
        self.plimsoll = build / "tools/plimsoll"
        self.bench = build / "tests/bench/bench_cuda"
        self.kernels = build / "tests/gpu/check_kernels_gpu"
        self.env = {}
        # What runs remember of a GPU's context belongs to the report, not to the user.
        self.env["XDG_CACHE_HOME"] = str(build / "report-cache")

    def facts(self):
        names = ["name", "driver_version", "memory.total", "compute_cap", "power.limit",
                 "clocks.max.sm"]
        if not shutil.which("nvidia-smi"):
            sys.exit("gpu_report: no nvidia-smi, so no GPU to report on")
        out = run(["nvidia-smi", "--query-gpu=" + ",".join(names), "--format=csv,noheader"], 30)
        rows = [line.split(",") for line in out.text.splitlines() if line.count(",") == 5]
        if out.exit != 0 or not rows:
            sys.exit("gpu_report: nvidia-smi finds no GPU\n" + out.text)
        fields = [f.strip() for f in rows[0]]
        facts = dict(zip(["name", "driver", "memory", "sm", "power", "clock"], fields))
        facts["sm"] = facts["sm"].replace(".", "")
        return facts

    def make(self, facts, seconds):
        """Configures and builds; a program that does not build costs only its own parts."""
        setup = ["meson", "setup", self.build, "-Dtests=enabled", "-Dcuda=enabled",
                 f"-Dcuda-arch={facts['sm']}", "--buildtype=release"]
        if (self.build / "meson-private/coredata.dat").exists():
            setup.insert(2, "--reconfigure")
        out = run(setup, seconds)
        if out.exit == 0:
            targets = ["tools/plimsoll", "tests/bench/bench_cuda", "gpu-tests"]
            done = run(["ninja", "-k", "0", "-C", self.build, *targets], seconds - out.seconds)
            out = Outcome(done.exit, done.text, out.seconds + done.seconds)
        return out.row()

    def torch_arguments(self):
        return []

    def has_torch(self):
        try:
            return run([self.python, "-c", "import torch, transformers, peft"], 120).exit == 0
        except OSError:
            return False  # no such interpreter


class Rehearsal(Machine):
    is_gpu = False

    def __init__(self, build, python):
        super().__init__(build, python)
        sim = build / "tests/cuda_sim"
        self.plimsoll = sim / "plimsoll_cuda_sim"
        self.bench = build / "tests/bench/bench_cuda_sim"
        self.kernels = sim / "check_kernels_cuda"
        self.env.update(PLIMSOLL_CUBLASLT=str(sim / "plsim_lt.so"),
                        PLIMSOLL_NVML=str(sim / "plsim_nvml.so"),
                        PLSIM_CONTEXT_BYTES=str(256 << 20))
        fake = pathlib.Path(__file__).parent / "rehearsal"
        os.environ["PATH"] = f"{fake}:{os.environ['PATH']}"

    def make(self, facts, seconds):
        return {"status": OK if self.plimsoll.exists() else FAILED, "exit": 0, "seconds": 0}

    def torch_arguments(self):
        return ["--cpu"]


class Clock:
    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def left(self):
        return self.end - time.monotonic()


def number_after(word, text):
    """The last number behind a word, None without one."""
    found = re.findall(re.escape(word) + r"\D*(\d+)", text)
    return int(found[-1]) if found else None
