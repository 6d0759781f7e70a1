#!/usr/bin/env python3
"""tools/torture sees what it is there to see: programs that lose something are found out, and a power
cut leaves what POSIX lets it leave, no more and no less."""
import os
import pathlib
import random
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # the modules lie in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import faults
import powercut
from bench import Bench, Loss

BUILD = pathlib.Path(os.environ.get("BUILD_ROOT", "build")).resolve()
PROGRAM = BUILD / "tools" / "plimsoll"
# Programs that go wrong: where a checkpoint is found, something is done to it before the start.
FORGETS = "rm -rf \"$(ls -dv out/checkpoint-* | tail -n 1)\""
STARTS_OVER = "set -- \"$@\" resume=never"
LEARNS_FASTER = "sed -i 's/^lr_scheduler.*//' run.yaml; echo 'lr_scheduler: constant' >>run.yaml; " \
                "set -- \"$@\" resume=force"


class Programs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(
            dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def bench(self, wrong):
        program = self.folder / "program"
        program.write_text("#!/bin/sh\nif [ \"$1\" = train ] && ls -d out/checkpoint-[0-9] "
                           ">/dev/null 2>&1; then %s; fi\nexec %s \"$@\"\n" % (wrong, PROGRAM))
        program.chmod(0o755)
        return Bench(str(program), BUILD, self.folder / "bench")

    def losses(self, bench, kind, trials=6):
        found = []
        for seed in range(trials):
            try:
                faults.KINDS[kind](bench, random.Random(seed))
            except Loss as loss:
                found.append(str(loss))
        return found

    def test_a_lost_checkpoint_is_seen(self):
        found = self.losses(self.bench(FORGETS), "kills at calls")
        self.assertTrue(any("resumed after step" in f or "is lost" in f for f in found), found)

    def test_a_run_that_starts_over_is_seen(self):
        found = self.losses(self.bench(STARTS_OVER), "kills at calls")
        self.assertTrue(any("resumed after step 0" in f for f in found), found)

    def test_a_silent_difference_is_seen(self):
        found = self.losses(self.bench(LEARNS_FASTER), "signals", 20)
        self.assertTrue(any("differ from the undisturbed run" in f for f in found), found)

    def test_a_program_that_did_not_sync_is_seen(self):
        bench = self.bench(":")
        read = powercut.read_record
        self.addCleanup(setattr, powercut, "read_record", read)
        powercut.read_record = lambda path: [c for c in read(path)
                                             if c[0] != "sync" or c[2] is None]
        found = self.losses(bench, "power cuts", 12)
        self.assertTrue(found)

    def test_a_sound_program_loses_nothing(self):
        bench = self.bench(":")
        for kind in faults.KINDS:
            try:
                self.assertEqual(self.losses(bench, kind, 3), [], kind)
            except faults.Absent:
                continue


class Cuts(unittest.TestCase):
    """`a` is replaced by the usual road: a.tmp, fsync, rename, fsync of the directory."""

    ROAD = [("create", 0, None, "a.tmp", "-"), ("write", 3, None, "a.tmp", "-"),
            ("sync", 3, b"new", "a.tmp", "-"), ("rename", 3, b"new", "a", "a.tmp"),
            ("sync", 0, None, ".", "-")]

    def found(self, road, at):
        """Every content of `a` that a cut after `at` changes may leave."""
        seen = set()
        for seed in range(200):
            with tempfile.TemporaryDirectory() as scratch:
                before, after = pathlib.Path(scratch, "before"), pathlib.Path(scratch, "after")
                before.mkdir()
                (before / "a").write_bytes(b"old")
                powercut.cut(powercut.Disk(before), road, at, {}, random.Random(seed), after)
                seen.add((after / "a").read_bytes())
        return seen

    def test_the_whole_road_is_old_or_new(self):
        for at in range(len(self.ROAD)):
            self.assertLessEqual(self.found(self.ROAD, at), {b"old", b"new"})
        self.assertEqual(self.found(self.ROAD, 4), {b"old", b"new"})

    def test_a_synced_directory_is_final(self):
        self.assertEqual(self.found(self.ROAD, 5), {b"new"})

    def test_without_the_first_sync_bytes_are_lost(self):
        road = self.ROAD[:2] + self.ROAD[3:]
        self.assertIn(b"", self.found(road, 4))
        self.assertIn(b"\0\0\0", self.found(road, 4))


if __name__ == "__main__":
    unittest.main()
