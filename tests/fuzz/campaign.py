#!/usr/bin/env python3
"""campaign.py - many inputs to every fuzz target, in rounds, so that each has had as many as the
others whenever it ends. tools/fuzz runs it.

A round gives each target ROUND inputs in a process of its own, from a seed that no other round has:
the same command replays the same inputs. Exit status 1 when a target crashed, or an input took
longer than replay.c allows."""
import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROUND = 20000
TAIL = 400  # of what a target said when it crashed


def targets_of(build, names):
    """{name: command} of the built tests fuzz.*, those that replay a corpus."""
    tests = json.loads((build / "meson-info" / "intro-tests.json").read_text())
    found = {}
    for test in tests:
        command = test["cmd"]
        if pathlib.Path(command[0]).name.startswith("replay_"):
            found[command[1]] = (command, test["env"])
    unknown = [name for name in names if name not in found]
    if unknown or not found:
        known = ", ".join(sorted(found)) or "none; configure with -Dtests=enabled"
        sys.exit("fuzz: no target %s; there are: %s" % (", ".join(unknown), known))
    return {name: found[name] for name in names or sorted(found)}


class Target:
    def __init__(self, name, command, env, crashes):
        self.name, self.command, self.env, self.crash_folder = name, command, env, crashes
        self.inputs, self.seconds, self.crashes = 0, 0.0, []

    def run(self, count, seed):
        """count inputs more. After a crash the rest of the round is left out."""
        env = {**os.environ, **self.env, "PLIMSOLL_FUZZ_RUNS": str(count),
               "PLIMSOLL_FUZZ_SEED": str(seed)}
        begun = time.monotonic()
        done = subprocess.run(self.command, env=env, cwd=self.crash_folder, text=True,
                              errors="replace", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.seconds += time.monotonic() - begun
        if done.returncode == 0:
            self.inputs += count
            return
        left = self.crash_folder / (self.name + ".crash")
        kept = self.crash_folder / ("%s.%d.crash" % (self.name, seed))
        if left.exists():
            left.rename(kept)
        self.crashes.append({"seed": seed, "input": str(kept), "exit": done.returncode,
                             "said": done.stderr[-TAIL:]})

    def row(self):
        return {"target": self.name, "inputs": self.inputs, "seconds": round(self.seconds, 1),
                "crashes": self.crashes}


def table(targets):
    lines = ["%-18s %12s %10s %8s" % ("target", "inputs", "seconds", "crashes")]
    lines += ["%-18s %12d %10.1f %8d" % (t.name, t.inputs, t.seconds, len(t.crashes))
              for t in targets]
    total = sum(t.inputs for t in targets), sum(t.seconds for t in targets)
    lines.append("%-18s %12d %10.1f %8d" % ("all", *total, sum(len(t.crashes) for t in targets)))
    return "\n".join(lines)


def write(path, targets, seed):
    """The table as JSON, whole at any time."""
    text = json.dumps({"date": datetime.date.today().isoformat(), "seed": seed,
                       "targets": [t.row() for t in targets]}, indent=1)
    temporary = pathlib.Path(path + ".tmp")
    temporary.write_text(text + "\n")
    temporary.rename(path)


class Ended(Exception):
    """By a signal."""


def end(number, frame):
    raise Ended(signal.Signals(number).name)


def campaign(targets, options):
    """Rounds until every target has had its inputs, or the time is over."""
    limit = time.monotonic() + 60 * options.minutes if options.minutes else None
    seed = options.seed
    while any(t.inputs < options.inputs and not t.crashes for t in targets):
        for target in targets:
            if limit and time.monotonic() >= limit:
                return
            if target.inputs < options.inputs and not target.crashes:
                target.run(min(ROUND, options.inputs - target.inputs), seed)
                if options.out:
                    write(options.out, targets, options.seed)
        seed += 1


def main():
    parser = argparse.ArgumentParser(prog="tools/fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000000, help="for each target")
    parser.add_argument("--minutes", type=float, help="end after so long, whatever was reached")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--build", default="build", help="directory where the targets are built")
    parser.add_argument("--out", help="the table as JSON, rewritten as it grows")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    crashes = build / "fuzz-crashes"
    crashes.mkdir(exist_ok=True)
    targets = [Target(name, command, env, crashes)
               for name, (command, env) in targets_of(build, options.targets).items()]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        campaign(targets, options)
    except Ended as ended:
        print("fuzz: ended by %s" % ended, file=sys.stderr)
    print(table(targets))
    for target in targets:
        for crash in target.crashes:
            print("%s, seed %d: exit %d, input %s\n%s" % (
                target.name, crash["seed"], crash["exit"], crash["input"], crash["said"]))
    return any(t.crashes for t in targets)


if __name__ == "__main__":
    sys.exit(main())
