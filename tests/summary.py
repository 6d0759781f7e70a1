"""Counts the tests of several runs of meson and shows again what failed and what was skipped.

usage: summary.py build/meson-logs/testlog.json ...
A skipped test is named with the line `skipped: needs ...` that it printed. The last line is
`N passed, N failed, N skipped`; the exit status is 0 when tests passed and none failed. A long log
is often kept by its end alone, so the end names every failure.
"""

import json
import sys
from pathlib import Path

TAIL_LINES = 25
PASSED = {"OK", "EXPECTEDFAIL"}
MARK = "skipped: "


def output(test):
    return test.get("stdout", "") + test.get("stderr", "")


def tail(text):
    return "\n".join("    " + line for line in text.splitlines()[-TAIL_LINES:])


def need(test):
    said = [line for line in output(test).splitlines() if line.startswith(MARK)]
    return said[0][len(MARK):] if said else "does not say what it needs"


def main(logs):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    needs = {}
    for log in logs:
        build = Path(log).parts[-3]
        for line in Path(log).read_text(errors="replace").splitlines():
            test = json.loads(line)
            result = test["result"]
            kind = "passed" if result in PASSED else "skipped" if result == "SKIP" else "failed"
            counts[kind] += 1
            if kind == "failed":
                print(f"{result} in {build}: {test['name']}, {test['duration']:.1f} s")
                print(tail(output(test)))
            elif kind == "skipped":
                needs.setdefault((test["name"], need(test)), []).append(build)
    for (name, what), builds in needs.items():
        print(f"skipped in {', '.join(builds)}: {name}: {what}")
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
