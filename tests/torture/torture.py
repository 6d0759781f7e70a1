#!/usr/bin/env python3
"""torture.py - disturbs tiny runs in every way there is a kind for, and says how many of them ended
as the undisturbed run does, to the bit, or were refused by name with nothing lost. tools/torture runs
it. Exit status 1 on any loss; the directory of a loss is kept.

A trial is known by its kind and seed: --kind KIND --seed S --trials 1 repeats it, as far as it does
not depend on when a signal arrives."""
import argparse
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the modules lie in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import faults
import soak
from bench import Bench, Loss


class Row:
    def __init__(self):
        self.tried, self.failures, self.absent, self.seconds = 0, [], None, 0.0


def trial(bench, kind, seed, row):
    begun = time.monotonic()
    row.tried += faults.TRIALS.get(kind, 1)
    try:
        faults.KINDS[kind](bench, random.Random("%s %d" % (kind, seed)))
    except Loss as loss:
        row.failures.append((seed, str(loss)))
    except faults.Absent as absent:
        row.absent, row.tried = str(absent), 0
    row.seconds += time.monotonic() - begun
    return not row.failures or row.failures[-1][0] != seed


def table(rows):
    lines = ["%-20s %8s %9s %8s" % ("kind", "tried", "survived", "seconds")]
    for kind, row in rows.items():
        if row.absent:
            lines.append("%-20s %8s  %s" % (kind, "-", row.absent))
        else:
            lines.append("%-20s %8d %9d %8.0f" % (kind, row.tried, row.tried - len(row.failures),
                                                  row.seconds))
    tried, lost = sum(r.tried for r in rows.values()), sum(len(r.failures) for r in rows.values())
    lines.append("%-20s %8d %9d %8.0f" % ("all", tried, tried - lost,
                                          sum(r.seconds for r in rows.values())))
    for kind, row in rows.items():
        lines += ["LOST: --kind '%s' --seed %d: %s" % (kind, seed, why)
                  for seed, why in row.failures]
    return "\n".join(lines)


def torture(bench, kinds, options, keep):
    """Rounds of one trial of every kind, until the time or the trials are over."""
    rows = {kind: Row() for kind in kinds}
    end = time.monotonic() + 60 * options.minutes
    seed = options.seed
    while time.monotonic() < end and (not options.trials or seed < options.seed + options.trials):
        for kind, row in rows.items():
            if row.absent or time.monotonic() >= end:
                continue
            if not trial(bench, kind, seed, row):
                keep(kind, seed)
        seed += 1
    return rows


def arguments():
    parser = argparse.ArgumentParser(prog="tools/torture", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=0, help="rounds at the most; 0: the time alone")
    parser.add_argument("--kind", action="append", choices=sorted(faults.KINDS))
    parser.add_argument("--soak", type=int, metavar="STEPS",
                        help="in place of rounds: one long run, disturbed until it is done")
    parser.add_argument("--build", default="build", help="where the program is built")
    return parser.parse_args()


def main():
    options = arguments()
    build = pathlib.Path(options.build).resolve()
    program = os.environ.get("PLIMSOLL") or str(build / "tools" / "plimsoll")
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="plimsoll-torture-", dir=in_memory) as folder:
        bench = Bench(program, build, folder)

        def keep(kind, seed):
            kept = build / "torture-losses" / ("%s-%d" % (kind.replace(" ", "-"), seed))
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(pathlib.Path(folder) / "run", kept, symlinks=True)

        if options.soak:
            return soak.soak(bench, options.soak, random.Random(options.seed))
        rows = torture(bench, options.kind or list(faults.KINDS), options, keep)
    print(table(rows))
    return any(row.failures for row in rows.values())


if __name__ == "__main__":
    sys.exit(main())
