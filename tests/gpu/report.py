#!/usr/bin/env python3
"""The report of a GPU: suites, memory, speed and kernels, compared with PyTorch on the same card.

Called by tools/gpu_report. Every row has a limit of its own, and RESULTS.json and RESULTS.md are
written again after each, so a report that is cut short keeps what it had. Rows go by their worth;
--resume goes on where earlier calls ended, whatever ended them. What was not run is listed.
"""
import argparse
import os
import pathlib
import shlex
import signal
import sys
import tempfile

sys.dont_write_bytecode = True  # the modules below lie in the source tree
import parts
from book import Book, now
from command import FAILED, OK, ROOT, Clock
from machine import TURING, Machine, Rehearsal, Unusable

MARGIN = 4          # seconds to write what a row found
SMOKE_SECONDS = 60  # a driver that nothing has used yet takes long to begin
IMPORT_SECONDS = 60
TIMED = ("speed", "ranks", "pytorch", "attention", "kernels", "products", "profiles")


def say(text):
    print(text, file=sys.stderr, flush=True)


def perform(task, seconds):
    """A part that breaks is a failed row, not the end of the report. None: its program is not
    built, which a later call may find otherwise."""
    try:
        return {**task.facts, **task.action(seconds)}
    except FileNotFoundError as missing:
        task.why_not = f"not built, or not installed: {missing.filename}"
        return None
    except Exception as broken:  # whatever it is, the other rows are worth more
        return broken_row(broken, task.facts)


def broken_row(broken, facts=None):
    return {**(facts or {}), "status": FAILED, "exit": None, "seconds": 0,
            "tail": f"the report itself: {type(broken).__name__}: {broken}"}


def attempt(book, part, key, action):
    """A row of what comes before the tasks; it is put into every call's book."""
    try:
        row = action()
    except Exception as broken:  # a row that says so is all there would be of this call
        row = broken_row(broken)
    book.put(part, key, row)
    say(f"             {part}: {key}: {row.get('how', '')} {row['status']}")
    return row


def opens(book, machine, clock):
    """Whether the GPU can be used; without, every row would fail and count as run."""
    if not machine.bench.exists():
        return True  # a build that failed in part may still measure something
    seconds = min(SMOKE_SECONDS, clock.left() - MARGIN)
    return attempt(book, "suites", "opens", lambda: machine.smoke(seconds))["status"] == OK


def give_up(book):
    for task in book.missing:
        task.why_not = "the GPU could not be used"
    book.write()
    say("gpu_report: the GPU cannot be used; see `suites: opens`. Nothing else is run.")


def work(book, machine, clock, tasks):
    """False: the GPU was lost on the way."""
    book.missing = book.left_to_do(tasks)
    for task in list(book.missing):
        if clock.left() < task.need + MARGIN:
            continue  # a shorter one may still fit
        if task.part in TIMED:
            machine.end_importing(min(IMPORT_SECONDS, clock.left() - task.need - MARGIN))
        book.begin(task.part, task.key)
        say(f"{clock.left():5.0f} s left: {task.part}: {task.key}")
        row = perform(task, min(task.seconds(), clock.left() - MARGIN))
        book.running = None
        if row is None:
            continue
        if row["status"] == FAILED and not opens(book, machine, clock):
            book.begin(task.part, task.key)  # it has not run, and the next call leaves it for last
            return False
        book.missing.remove(task)
        book.put(task.part, task.key, row)
        say(f"             {row['status']}")
    return True


def allow_ranks(machine, gpu, devices, nccl):
    if nccl["status"] == OK:
        machine.ranks = min(gpu["gpus"], devices or gpu["gpus"])


def prepare(book, machine, clock, gpu, devices):
    """Programs and libraries. False: the GPU cannot be used."""
    machine.ask_interpreter()
    machine.begin_importing()
    held = machine.hold_driver()
    say(f"             the driver is {'held open' if held else 'not held open'}")
    attempt(book, "build", "cuBLASLt", machine.find_cublas)
    allow_ranks(machine, gpu, devices, attempt(book, "build", "NCCL", machine.find_nccl))
    attempt(book, "build", f"compute_{TURING}", lambda: machine.find_turing(gpu))
    log = book.places[0] / "build.log"
    attempt(book, "build", "build",
            lambda: machine.make(gpu, min(400, clock.left() - MARGIN), log))
    return opens(book, machine, clock)


def arguments():
    parser = argparse.ArgumentParser(prog="gpu_report", description=__doc__.split("\n")[0],
                                     epilog="docs/gpu-report.md has the commands for a GPU that "
                                     "is lent for half an hour.")
    parser.add_argument("--minutes", type=float, default=9, help="of this call (9)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/gpu")
    parser.add_argument("--only", help="parts, with commas: suites, sanitizers, memory, speed, "
                        "pytorch, samples, ranks, attention, kernels, products, profiles")
    parser.add_argument("--devices", type=int, metavar="N", help="GPUs that runs of several ranks "
                        "take at most (all)")
    parser.add_argument("--resume", type=pathlib.Path, nargs="+", metavar="RESULTS.json",
                        default=[], help="run only what is missing in these; a file that is not "
                        "there, or of another GPU, is nothing to resume")
    parser.add_argument("--again", action="store_true",
                        help="with --resume: also what failed there")
    parser.add_argument("--python", help="an interpreter with PyTorch, transformers and peft; "
                        "`none` leaves those rows out (this one)", default=sys.executable)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-gpu")
    parser.add_argument("--list", action="store_true", help="say what would run, in order")
    parser.add_argument("--rehearse", action="store_true",
                        help="with tiny models on the emulated GPU of --build, to try the report")
    return parser.parse_args()


def end_on_signals():
    """By way of what cleans up: the command that runs is ended, and the scratch goes."""
    def end(number, _):
        sys.exit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def chosen(args, machine, scratch, gpu):
    tasks = parts.tasks(machine, scratch, gpu)
    return [t for t in tasks if not args.only or t.part in args.only.split(",")]


def list_tasks(args, book, machine, scratch, gpu):
    machine.ask_interpreter()
    allow_ranks(machine, gpu, args.devices, machine.find_nccl())
    for task in book.left_to_do(chosen(args, machine, scratch, gpu)):
        print(f"{task.part}: {task.key} (at most {task.seconds()} s)")
    return 0


def report(args, scratch):
    bundle = ["--bundle", os.environ["GPU_BUNDLE"]] if "GPU_BUNDLE" in os.environ else []
    clock = Clock(args.minutes)
    python = None if args.python == "none" else args.python
    machine = (Rehearsal if args.rehearse else Machine)(args.build.resolve(), python)
    gpu = machine.facts()
    book = Book(gpu, [args.out.resolve(), machine.build])
    book.resume(args.resume, args.again)
    if args.list:
        return list_tasks(args, book, machine, scratch, gpu)
    book.calls.append({"date": now(), "command": shlex.join(["tools/gpu_report", *bundle,
                                                             *sys.argv[1:]])})
    usable = prepare(book, machine, clock, gpu, args.devices)
    tasks = chosen(args, machine, scratch, gpu)
    book.missing = book.left_to_do(tasks)
    usable = usable and work(book, machine, clock, tasks)
    if not usable:
        give_up(book)
    book.write()
    print(book.text)
    return int(not usable or not book.succeeded())


def main():
    end_on_signals()
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return report(args, pathlib.Path(scratch))
        except Unusable as none:
            sys.exit(f"gpu_report: {none}")


if __name__ == "__main__":
    sys.exit(main())
