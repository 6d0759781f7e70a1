#!/usr/bin/env python3
"""Commands of the report: nothing that one has started outlives its limit, or a report that is
ended, and none keeps the report waiting."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True  # the modules lie in the source tree
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import command
import machine
import pytorch_run
import runs

# A child with a process group of its own, as Check gives every test, that keeps the pipe open.
STRAY = """
import os, sys, time
print("begun", flush=True)
if os.fork() == 0:
    os.setpgid(0, 0)
open(sys.argv[1], "a").write("%d\\n" % os.getpid())
time.sleep(100)
"""
REPORT = """
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import report
report.end_on_signals()
report.parts.run([sys.executable, "-c", sys.argv[2], sys.argv[3]], 60)
"""


def is_there(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(what, seconds=20):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


class Commands(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.noted = pathlib.Path(self.scratch.name) / "pids"
        self.noted.write_text("")

    def tearDown(self):
        for pid in filter(is_there, self.pids()):
            os.kill(pid, signal.SIGKILL)
        self.scratch.cleanup()

    def pids(self):
        return [int(word) for word in self.noted.read_text().split()]

    def test_a_limit_ends_children_in_groups_of_their_own(self):
        before = time.monotonic()
        out = command.run([sys.executable, "-c", STRAY, self.noted], 2)
        self.assertLess(time.monotonic() - before, 2 + command.DYING)
        self.assertIsNone(out.exit)
        self.assertEqual(out.text, "begun\n")
        self.assertEqual(len(self.pids()), 2)
        self.assertTrue(wait_for(lambda: not any(map(is_there, self.pids()))))

    def end_report(self, number):
        report = subprocess.Popen([sys.executable, "-c", REPORT, HERE, STRAY, self.noted])
        self.assertTrue(wait_for(lambda: len(self.pids()) == 2))
        report.send_signal(number)
        return report.wait(20)

    def test_a_report_that_is_ended_ends_its_command(self):
        self.assertEqual(self.end_report(signal.SIGTERM), 128 + signal.SIGTERM)
        self.assertTrue(wait_for(lambda: not any(map(is_there, self.pids()))))

    def test_a_report_that_is_killed_takes_its_command_along(self):
        self.assertEqual(self.end_report(signal.SIGKILL), -signal.SIGKILL)
        self.assertTrue(wait_for(lambda: sum(map(is_there, self.pids())) < 2))

    def test_free_memory_that_is_not_told_is_no_figure(self):
        program = pathlib.Path(self.scratch.name) / "nvidia-smi"
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = f"{program.parent}:{path}"
        for script, told in (("echo 1024", 1 << 30), ("echo '[N/A]'", None), ("exit 9", None)):
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            self.assertEqual(pytorch_run.free_bytes(), told, script)

    def test_pytorch_recomputes_where_memory_makes_it(self):
        words = ["pytorch_run.py", "--cpu", "directory", "lora", "1", "16", "auto", "2"]
        for words, error, again in (
                (words, RuntimeError("CUDA out of memory. Tried"), True),
                (words, RuntimeError("something else"), False),
                (["full" if w == "auto" else w for w in words], RuntimeError("out of memory"),
                 False)):
            with mock.patch.object(sys, "argv", words), \
                    mock.patch.object(pytorch_run, "measure", side_effect=error), \
                    mock.patch.object(os, "execv") as execv:
                if again:
                    pytorch_run.main()
                    execv.assert_called_once_with(
                        sys.executable, [sys.executable, *words[:6], "full", "2"])
                else:
                    self.assertRaises(RuntimeError, pytorch_run.main)
                    execv.assert_not_called()

    def test_a_warning_does_not_hide_an_answer(self):
        program = pathlib.Path(self.scratch.name) / "plimsoll"
        program.write_text("#!/bin/sh\necho a warning >&2\necho '{\"rows\": []}'\n")
        program.chmod(0o755)
        with_program = machine.Machine(program.parent, None)
        with_program.plimsoll = program
        self.assertEqual(runs.samples(with_program), [])


if __name__ == "__main__":
    unittest.main()
