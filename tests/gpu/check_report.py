#!/usr/bin/env python3
"""The report's book: nothing that was measured is lost, whatever ends a call, and the next one goes
on. On the emulated GPU of BUILD_ROOT."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True  # the modules lie in the source tree
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import book
import parts
import prebuilt

GPU = {"name": "a GPU", "memory": "1", "power": "2", "clock": "3", "driver": "580", "sm": "90"}
BROKEN = """#!/bin/sh
echo CUDA error 35
exit 1
"""
# Opens the GPU once, and never again.
LOST = """#!/bin/sh
[ "$1" = copy ] && mkdir "$0.once" 2>/dev/null && {
    echo '{"event":"copy","bytes_per_second":1}'
    exit
}
exit 1
"""


class Calls(unittest.TestCase):
    """The report as a command."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.at = pathlib.Path(scratch.name)
        self.out, self.carried = self.at / "out", self.at / "carried.json"
        self.new_machine()

    def new_machine(self):
        """With the programs of this build, and nothing of an earlier call."""
        self.build = pathlib.Path(tempfile.mkdtemp(dir=self.at))
        (self.build / "tests").symlink_to(pathlib.Path(os.environ["BUILD_ROOT"]) / "tests")

    def with_bench(self, script):
        """Programs as they are, but for the one that opens the GPU."""
        (self.build / "tests").unlink()
        for path in prebuilt.EMULATED.values():
            (self.build / path).parent.mkdir(parents=True, exist_ok=True)
            (self.build / path).symlink_to(pathlib.Path(os.environ["BUILD_ROOT"]) / path)
        bench = self.build / prebuilt.EMULATED["bench"]
        bench.unlink()
        bench.write_text(script)
        bench.chmod(0o755)

    def start(self, only, *more):
        return subprocess.Popen(
            [sys.executable, HERE / "report.py", "--rehearse", "--python", "none", "--minutes", "5",
             "--build", self.build, "--out", self.out, "--only", only, "--resume", self.carried,
             self.build / "RESULTS.json", *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def results(self):
        return json.loads((self.out / "RESULTS.json").read_text())

    def rows(self):
        return {(r["part"], r["key"]): r for r in self.results()["rows"]
                if r["part"] != "build" and r["key"] != "opens"}

    def test_a_killed_report_loses_only_the_row_that_ran(self):
        known, cut, calls = {}, None, 0
        while True:
            calls += 1
            report = self.start("memory,speed,samples")
            begun = [self.next_row(report), self.next_row(report)]
            if begun[1]:
                report.send_signal(signal.SIGKILL)
            status = report.wait(60)
            report.stderr.close()
            rows = self.rows()
            for key, row in known.items():
                self.assertEqual(rows[key]["at"], row["at"], f"{key} was lost or ran again")
            if not begun[1]:
                break
            if cut and cut[0] != "samples":  # new rows come before what was cut short
                self.assertNotEqual(begun[0], cut)
            self.assertEqual(set(rows) - set(known), {begun[0]})
            self.assertEqual(tuple(self.results()["running"]), begun[1])
            known, cut = rows, begun[1]
            if calls % 2:  # the next call is on another machine
                os.replace(self.out / "RESULTS.json", self.carried)
                self.new_machine()
        self.assertEqual(status, 0)
        self.assertEqual(len(rows), 9)
        self.assertEqual(calls, 9)
        self.assertEqual(self.results()["not_run"], [])
        self.assertIsNone(self.results()["running"])

    @staticmethod
    def next_row(report):
        """(part, key) of the next row that begins; None at the end."""
        for line in report.stderr:
            if " s left: " in line:
                return tuple(line.split(" s left: ")[1].strip().split(": ", 1))
        return None

    def said(self, only, *more):
        report = self.start(only, *more)
        text = report.communicate(timeout=120)[1]
        return report.returncode, text

    def test_a_gpu_that_does_not_open_ends_the_call(self):
        self.with_bench(BROKEN)
        status, said = self.said("memory,kernels")
        self.assertEqual(status, 1)
        self.assertIn("the GPU cannot be used", said)
        self.assertNotIn(" s left: ", said)
        self.assertEqual(self.rows(), {})
        self.assertEqual({why for _, _, why in self.results()["not_run"]},
                         {"the GPU could not be used"})

    def test_a_gpu_that_is_lost_leaves_the_row_to_the_next_call(self):
        self.with_bench(LOST)
        status, said = self.said("kernels")
        self.assertEqual(status, 1)
        self.assertEqual(said.count(" s left: "), 1)
        self.assertEqual(self.rows(), {})
        self.assertEqual(self.results()["running"], ["kernels", "copy"])

    def row_of_the_build(self):
        return next(r for r in self.results()["rows"] if r["key"] == "build")

    def test_programs_that_cannot_be_unpacked_are_those_of_the_build(self):
        (self.build / "prebuilt").write_text("in the way of a directory\n")
        (self.at / "manifest.json").write_text("{}")
        with tarfile.open(self.at / "programs-emulated.tar.xz", "w:xz") as archive:
            archive.add(self.at / "manifest.json", "manifest.json")
        with mock.patch.dict(os.environ, {"GPU_BUNDLE": str(self.at)}):
            status, said = self.said("kernels")
        self.assertEqual(status, 0, said)
        self.assertIn("built here: ", self.row_of_the_build()["how"])

    def test_a_build_that_cannot_be_noted_is_a_row(self):
        (self.out / "build.log").mkdir(parents=True)
        status, said = self.said("kernels")
        self.assertEqual(status, 1)
        self.assertNotIn("Traceback", said)
        self.assertIn("build.log", self.row_of_the_build()["tail"])
        self.assertIn(("kernels", "copy"), self.rows())


class Resuming(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.at = pathlib.Path(scratch.name)

    def write(self, name, rows, gpu="a GPU", **more):
        path = self.at / name
        path.write_text(json.dumps({
            "gpu": {**GPU, "name": gpu}, "calls": [{"date": name, "command": "x"}],
            "rows": [{"part": "memory", "key": k, "at": at, "status": "ok"} for k, at in rows],
            **more}))
        return path

    def resumed(self, *paths, places=()):
        new = book.Book(GPU, places)
        new.resume(paths)
        return {key: row["at"] for (_, key), row in new.rows.items()}, new

    def test_a_row_is_on_disk_as_soon_as_it_is_known(self):
        new = book.Book(GPU, [self.at / "one", self.at / "two"])
        new.begin("memory", "a")
        new.put("memory", "a", {"status": "ok", "seconds": 0})
        for place in new.places:
            written = json.loads((place / "RESULTS.json").read_text())
            self.assertEqual(([r["key"] for r in written["rows"]], written["running"]),
                             (["a"], None))

    def test_of_several_files_the_latest_row_counts(self):
        one = self.write("one", [("a", "1"), ("b", "5")])
        two = self.write("two", [("a", "2"), ("b", "4"), ("c", "3")])
        for paths in ((one, two), (two, one)):
            rows, new = self.resumed(*paths)
            self.assertEqual(rows, {"a": "2", "b": "5", "c": "3"})
            self.assertEqual([c["date"] for c in new.calls], ["one", "two"])

    def test_what_cannot_be_resumed_is_a_first_call(self):
        broken = [self.at / "missing", self.write("other", [("a", "1")], gpu="another")]
        for name, text in (("cut", '{"gpu": {"na'), ("list", "[1]"), ("empty", ""),
                           ("rows", '{"gpu": {"name": "a GPU"}, "calls": [], "rows": [{}]}')):
            (self.at / name).write_text(text)
            broken.append(self.at / name)
        for path in broken:
            self.assertEqual(self.resumed(path)[0], {}, path)
        self.assertEqual(self.resumed(*broken, self.write("good", [("a", "1")]))[0], {"a": "1"})

    def test_results_of_another_gpu_are_not_written_over(self):
        self.write("RESULTS.json", [("a", "1")], gpu="another")
        rows, new = self.resumed(self.at / "RESULTS.json", places=[self.at])
        new.put("memory", "b", {"status": "ok", "seconds": 0})
        self.assertEqual(rows, {})
        kept = json.loads((self.at / "RESULTS.other-gpu.json").read_text())
        self.assertEqual(kept["rows"][0]["key"], "a")

    def test_a_row_that_was_cut_short_in_one_file_and_ended_in_another_has_ended(self):
        cut = self.write("cut", [("a", "1")], running=["memory", "b"])
        rows, new = self.resumed(cut, self.write("ended", [("a", "1"), ("b", "2")]))
        self.assertEqual((set(rows), new.cut), ({"a", "b"}, {}))
        self.assertEqual(self.resumed(cut)[1].cut, {("memory", "b"): 1})

    def test_what_was_cut_short_more_often_comes_later(self):
        tasks = [parts.Task(worth, "memory", key, 1, 10, None)
                 for worth, key in enumerate(("a", "b", "c"))]
        orders = []
        for ended_in in ("a", "b", "a"):
            new = book.Book(GPU, [self.at])
            new.resume([self.at / "RESULTS.json"])
            orders.append("".join(t.key for t in new.left_to_do(tasks)))
            new.begin("memory", ended_in)
        self.assertEqual(orders, ["abc", "bca", "cab"])
        self.assertEqual([t.seconds() for t in tasks], [20, 20, 10])


if __name__ == "__main__":
    unittest.main()
