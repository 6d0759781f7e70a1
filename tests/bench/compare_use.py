#!/usr/bin/env python3
"""What is felt at a terminal: an answer, the first step of a run, text into tokens.

Usage: compare_use.py PLIMSOLL [TOKENIZER-DIRECTORY] [--rounds N] [--megabytes N]
Run in the source tree, whose quickstart gives the first step. Prints one JSON object of medians; memory is the peak
that is resident. Text into tokens is compared with the package `tokenizers` of PyPI where this
interpreter has it: both are processes that read the same JSON lines and write the identifiers of
each as a JSON line; `tokenizers_count` writes how many there are and no more. The text is the sources of this interpreter's own library.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

MODEL = "Qwen/Qwen2.5-7B-Instruct"
ROW_BYTES = 2000
TOKENIZERS = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
rows = [json.loads(line)["text"] for line in sys.stdin]
encodings = tokenizer.encode_batch(rows, add_special_tokens=False)
if "--count" in sys.argv:
    print(sum(len(encoding.ids) for encoding in encodings))
else:
    for encoding in encodings:
        print(json.dumps({"ids": encoding.ids}))
"""


def timed(command, stdin=None, stdout=subprocess.DEVNULL):
    """Seconds of the clock and of processors, and MiB, from the start of a process to its exit."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    assert process.returncode == 0, (command, process.returncode)
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def medians(rounds, measure):
    """The median of each reading, and the least seconds: those of an undisturbed round."""
    readings = list(zip(*(measure() for _ in range(rounds))))
    names = ("seconds", "processor_seconds", "mib")
    result = {name: round(statistics.median(r), 4) for name, r in zip(names, readings)}
    return {**result, "least_seconds": round(min(readings[0]), 4)}


def first_step(plimsoll):
    with tempfile.TemporaryDirectory() as output:
        started = time.perf_counter()
        run = subprocess.Popen([plimsoll, "train", "configs/quickstart.yaml", "--json", "-q",
                                f"output_dir={output}/run", "max_steps=1", "warmup_steps=0"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        step = None
        for line in run.stdout:
            if json.loads(line).get("event") == "step":
                step = time.perf_counter() - started
        assert run.wait() == 0 and step
        return (step,)


def write_rows(path, most):
    size = 0
    with open(path, "w", encoding="utf-8") as out:
        for source in sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py")):
            if "site-packages" in source.parts:
                continue
            text = source.read_text(encoding="utf-8", errors="ignore")
            for at in range(0, len(text), ROW_BYTES):
                row = text[at:at + ROW_BYTES]
                out.write(json.dumps({"text": row}) + "\n")
                size += len(row.encode())
                if size >= most:
                    return size
    return size


def tokens(plimsoll, tokenizer, rounds, megabytes):
    result = {}
    with tempfile.TemporaryDirectory() as scratch:
        rows = f"{scratch}/rows.jsonl"
        result["text_mb"] = write_rows(rows, megabytes * 10**6) / 1e6
        commands = {"plimsoll": [plimsoll, "tokenize", "--tokenizer", tokenizer,
                                 "--no-special-tokens", "--json"],
                    "tokenizers": [sys.executable, "-c", TOKENIZERS, f"{tokenizer}/tokenizer.json"]}
        commands["tokenizers_count"] = commands["tokenizers"] + ["--count"]
        try:
            import tokenizers
            result["tokenizers_version"] = tokenizers.__version__
        except ImportError:
            del commands["tokenizers"], commands["tokenizers_count"]
        ids = {}
        for name, command in list(commands.items())[:2]:
            with open(rows, "rb") as stdin, open(f"{scratch}/{name}", "wb") as out:
                timed(command, stdin, out)
            with open(f"{scratch}/{name}", encoding="utf-8") as out:
                ids[name] = [json.loads(line)["ids"] for line in out]
        if len(ids) == 2:
            result["same_ids"] = ids["plimsoll"] == ids["tokenizers"]

        def measure(command):
            with open(rows, "rb") as stdin:
                return timed(command, stdin)

        for name, command in commands.items():
            result[name] = medians(rounds, lambda c=command: measure(c))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plimsoll")
    parser.add_argument("tokenizer", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=25)
    given = parser.parse_args()
    subprocess.run(["tools/quickstart-data", "build/quickstart/text.jsonl"], check=True)
    # The memory of a process that is smaller than this one is not known to wait4().
    result = {
        "answer": medians(4 * given.rounds + 1,
                          lambda: timed([given.plimsoll, "estimate-vram", MODEL])[:2]),
        "first_step": medians(given.rounds, lambda: first_step(given.plimsoll)),
    }
    if given.tokenizer:
        result["tokens"] = tokens(given.plimsoll, given.tokenizer, given.rounds, given.megabytes)
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
