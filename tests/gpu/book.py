"""The rows of a report, by part and key: on disk after every one, so that a call that is ended at
any moment has lost at most the row that ran, and a later call, on this machine or another, goes on."""
import datetime
import json
import os
import pathlib
import sys

import markdown
from command import FAILED, LATE
from machine import write_whole



def now():
    return datetime.datetime.now().isoformat(timespec="milliseconds")


def warn(text):
    print(f"gpu_report: {text}", file=sys.stderr, flush=True)


def cuts_of(old):
    """How often a call ended while a row ran; the last one is still told as running."""
    cut = {(part, key): int(times) for part, key, times in old.get("cut_short", [])}
    if old.get("running"):
        part, key = old["running"]
        cut[part, key] = cut.get((part, key), 0) + 1
    return cut


def read_results(path):
    """None: there is nothing that a report could go on from."""
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        rows = {(r["part"], r["key"]): r for r in old["rows"] if r["status"]}
        return {"gpu": dict(old["gpu"]), "calls": [dict(c) for c in old["calls"]], "rows": rows,
                "cut": cuts_of(old)}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as broken:  # of a machine that went down
        warn(f"{path}: {type(broken).__name__}: {broken}; its rows come again")
        return None


class Book:
    """gpu: facts of this machine. places: directories that get RESULTS.json and RESULTS.md."""

    def __init__(self, gpu, places):
        self.gpu, self.places = gpu, [pathlib.Path(p) for p in places]
        self.rows, self.calls, self.missing = {}, [], []
        self.running, self.cut, self.text = None, {}, ""

    def resume(self, paths, forget_failed=False):
        """Of rows that several files have the latest counts."""
        for path in paths:
            old = read_results(path)
            if not old:
                continue
            if old["gpu"].get("name") != self.gpu["name"]:
                warn(f"{path} is about another GPU, {old['gpu'].get('name')}; beginning anew")
                self.keep_foreign(path)
                continue
            self.calls += [c for c in old["calls"] if c not in self.calls]
            for key, row in old["rows"].items():
                if row.get("at", "") >= self.rows.get(key, {}).get("at", ""):
                    self.rows[key] = row
            for key, times in old["cut"].items():
                self.cut[key] = max(times, self.cut.get(key, 0))
        self.calls.sort(key=lambda c: c.get("date", ""))
        self.cut = {k: times for k, times in self.cut.items() if k not in self.rows}
        if forget_failed:
            self.rows = {k: r for k, r in self.rows.items() if r["status"] != FAILED}

    def keep_foreign(self, path):
        """What another GPU has shown is not written over."""
        if path.parent.resolve() in [p.resolve() for p in self.places]:
            os.replace(path, path.with_name("RESULTS.other-gpu.json"))

    def begin(self, part, key):
        """Whatever ends this call while the row runs, the next one leaves it for the end."""
        self.running = [part, key]
        self.write()

    def put(self, part, key, row):
        self.rows[part, key] = {"part": part, "key": key, "at": now(), **row}
        self.cut.pop((part, key), None)
        self.running = None
        self.write()

    def left_to_do(self, tasks):
        """By worth; what has run out of time or was cut short comes last, and what was cut short
        most often at the very end: it may do so again."""
        for task in tasks:
            row = self.rows.get((task.part, task.key), {})
            task.times_late = self.cut.get((task.part, task.key), int(row.get("status") == LATE))
        left = [t for t in tasks if t.times_late or (t.part, t.key) not in self.rows]
        return sorted(left, key=lambda t: (t.times_late, t.worth))

    def write(self):
        result = {"gpu": self.gpu, "calls": self.calls, "rows": list(self.rows.values()),
                  "running": self.running, "cut_short": [[*k, n] for k, n in self.cut.items()],
                  "not_run": [[t.part, t.key, t.why_not] for t in self.missing]}
        self.text = markdown.report(result)
        texts = {"RESULTS.json": json.dumps(result, indent=1) + "\n", "RESULTS.md": self.text}
        for place in self.places:
            for name, text in texts.items():
                try:
                    write_whole(place / name, text)
                except OSError as refused:  # the other place has it, or the next row writes it
                    warn(refused)

    def succeeded(self):
        return all(r["status"] != FAILED for r in self.rows.values())
