#!/usr/bin/env python3
"""tools/fuzz: every target gets as many inputs, none twice, and a crash is kept and told."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CAMPAIGN = pathlib.Path(__file__).resolve().with_name("campaign.py")
# As replay.c: notes what it was asked for, and crashes on one seed.
TARGET = """#!/bin/sh
echo "$PLIMSOLL_FUZZ_RUNS $PLIMSOLL_FUZZ_SEED" >>"{log}"
[ "$PLIMSOLL_FUZZ_SEED" = "{fatal}" ] || exit 0
echo bytes >{name}.crash
echo "does not hold: x" >&2
kill -ABRT $$
"""


class Campaign(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.build = pathlib.Path(scratch.name)
        (self.build / "meson-info").mkdir()

    def make(self, **fatal):
        """Targets, and the seed that each crashes on."""
        tests = []
        for name, seed in fatal.items():
            program = self.build / ("replay_" + name)
            program.write_text(TARGET.format(log=self.build / (name + ".log"), fatal=seed,
                                             name=name))
            program.chmod(0o755)
            tests.append({"cmd": [str(program), name, "7", "corpus"], "env": {}, "name": name})
        tests.append({"cmd": ["/bin/false"], "env": {}, "name": "another"})
        (self.build / "meson-info" / "intro-tests.json").write_text(json.dumps(tests))

    def run_campaign(self, *words):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("PLIMSOLL_FUZZ")}
        return subprocess.run([sys.executable, str(CAMPAIGN), "--build", str(self.build), *words],
                              env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    def asked(self, name):
        return [tuple(map(int, line.split()))
                for line in (self.build / (name + ".log")).read_text().splitlines()]

    def test_rounds_have_seeds_of_their_own(self):
        self.make(a="none", b="none")
        done = self.run_campaign("--inputs", "45000", "--seed", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in "ab":
            self.assertEqual(self.asked(name), [(20000, 3), (20000, 4), (5000, 5)])
        self.assertIn("all                       90000", done.stdout)

    def test_a_crash_is_kept_and_the_others_go_on(self):
        self.make(a=4, b="none")
        table = str(self.build / "table.json")
        done = self.run_campaign("--inputs", "60000", "--seed", "3", "--out", table)
        self.assertEqual(done.returncode, 1)
        self.assertIn("a, seed 4: exit -6", done.stdout)
        self.assertIn("does not hold: x", done.stdout)
        kept = self.build / "fuzz-crashes" / "a.4.crash"
        self.assertEqual(kept.read_text(), "bytes\n")
        rows = {row["target"]: row for row in json.loads(pathlib.Path(table).read_text())["targets"]}
        self.assertEqual((rows["a"]["inputs"], len(rows["a"]["crashes"])), (20000, 1))
        self.assertEqual((rows["b"]["inputs"], rows["b"]["crashes"]), (60000, []))

    def test_an_unknown_target_is_refused(self):
        self.make(a="none")
        done = self.run_campaign("nope")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no target nope; there are: a", done.stderr)


if __name__ == "__main__":
    unittest.main()
