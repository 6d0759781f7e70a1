"""How the report runs a command: with a limit, keeping its output, and leaving no process or file."""
import ctypes
import errno
import json
import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OK, FAILED, LATE = "ok", "failed", "out of time"
HEAD, TAIL = 900, 1600  # of what a command said
DYING = 10  # seconds that what was ended may take to go


class Outcome:
    """exit: None when the limit ran out, and everything the command had started was ended."""

    def __init__(self, code, text, seconds):
        self.exit, self.text, self.seconds = code, text, seconds

    def row(self, **more):
        """The members that every row has about its command."""
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


def start(command, env=None, output=subprocess.PIPE):
    return subprocess.Popen([str(c) for c in command], cwd=ROOT, env={**os.environ, **(env or {})},
                            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                            text=True, errors="replace", start_new_session=True,
                            preexec_fn=die_with_the_report)


def run(command, seconds, env=None):
    before = time.monotonic()
    child = start(command, env)
    try:
        text, _ = child.communicate(timeout=max(seconds, 1))
        code = child.returncode
    except subprocess.TimeoutExpired:
        end_session(child.pid)
        text, code = last_words(child), None
    finally:
        end_session(child.pid)
    return Outcome(code, text, time.monotonic() - before)


def need_built(*programs):
    """A program that is missing is no failure of what it would have measured."""
    for program in programs:
        if not program.exists():
            raise FileNotFoundError(errno.ENOENT, "not built", str(program))


class Clock:
    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def left(self):
        return self.end - time.monotonic()
