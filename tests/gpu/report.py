#!/usr/bin/env python3
"""The report of a GPU: suites, memory, speed and kernels, beside PyTorch on the same card.

Called by tools/gpu_report. Every row has a limit of its own, and RESULTS.json and RESULTS.md are
written again after each, so a report that is cut short keeps what it had. Rows go by their worth;
--resume goes on where an earlier call ended, whatever ended it. What was not run is listed.
"""
import argparse
import datetime
import errno
import json
import os
import pathlib
import shlex
import signal
import sys
import tempfile

sys.dont_write_bytecode = True  # the modules below lie in the source tree
import kernels
import markdown
import runs
from machine import FAILED, LATE, OK, ROOT, Clock, Machine, Rehearsal, number_after, run

MARGIN = 4  # seconds to write what a row found


class Task:
    """worth: the lower, the sooner. need: seconds without which it is not begun. facts: of the row,
    whatever comes of it."""

    def __init__(self, worth, part, key, need, limit, action, facts=None):
        self.worth, self.part, self.key = worth, part, key
        self.need, self.limit, self.action, self.facts = need, limit, action, facts or {}
        self.why_not = "no time was left"


# --- parts ----------------------------------------------------------------------------------------

def suite(machine, program, env, seconds):
    """A test program; 77 is its word for skipped."""
    out = run([program], seconds, {**machine.env, **env})
    row = out.row(summary=next((x for x in out.text.splitlines() if x.endswith("Errors: 0")
                                or ", Failures: " in x), ""))
    if out.exit == 77:
        row.update(status="skipped")
    return row


def suites(machine):
    gpu = machine.build / "tests/gpu"
    golden = {"PLIMSOLL": str(machine.plimsoll), "GOLDEN_DEVICE": "cuda",
              "GOLDEN_CASES": str(ROOT / "tests/golden/cases"), "TINY_DEVICE": "cuda",
              "QUANT_VECTORS": str(ROOT / "tests/kernels/vectors"),
              "NEIGHBOUR": str(gpu / "neighbour")}
    few = {} if machine.is_gpu else {"KERNEL_ROUNDS": "1"}
    rows = [(0, "conformance", machine.kernels, few, 180)]
    if machine.is_gpu:
        rows += [(1, "golden", gpu.parent / "golden/check_golden", golden, 120),
                 (40, "neighbour", gpu / "check_neighbour", golden, 120),
                 (60, "generate", gpu.parent / "golden/check_generate", golden, 60),
                 (61, "quant", gpu / "check_quant_gpu", golden, 60),
                 (62, "quant_golden", gpu / "check_quant_golden_gpu", golden, 60)]
    for worth, key, program, env, limit in rows:
        yield Task(worth, "suites", key, 20, limit,
                   lambda s, p=program, e=env: suite(machine, p, e, s))


def sanitize(machine, tool, command, env, seconds):
    if not command[0].exists():  # the sanitizer would say so, and fail
        raise FileNotFoundError(errno.ENOENT, "not built", str(command[0]))
    out = run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--target-processes",
               "all", *command], seconds, {**machine.env, **env})
    return out.row(errors=number_after("SUMMARY:", out.text))


def sanitizers(machine, scratch, tiny):
    subset = {"CK_FORK": "no", "KERNEL_ROUNDS": "2"}

    def steps(tool, seconds):
        job = runs.write_job(scratch, tiny.model, {**tiny.keys(), "probe_steps": 2})
        return sanitize(machine, tool, [machine.plimsoll, "train", job, "--probe"], {}, seconds)
    for i, tool in enumerate(("memcheck", "racecheck", "synccheck", "initcheck")):
        yield Task(41 + i, "sanitizers", f"{tool}: kernels", 40, 110,
                   lambda s, t=tool: sanitize(machine, t, [machine.kernels], subset, s))
        yield Task(70 + i, "sanitizers", f"{tool}: steps of a run", 30, 90,
                   lambda s, t=tool: steps(t, s))


def memory(machine, scratch, shapes):
    for i, shape in enumerate(shapes):
        yield Task(2 if i < 3 else 20 if i < 9 else 50, "memory", shape.key(), 20, 75,
                   lambda s, x=shape: runs.memory(machine, scratch, x, s), shape.facts())


def speed(machine, scratch, gpu, shapes):
    for i, shape in enumerate(shapes):
        worth = 3 if i < 2 else 30
        yield Task(worth, "speed", shape.key(), 25, 90,
                   lambda s, x=shape: runs.speed(machine, scratch, gpu, x, s), shape.facts())
        if shape.mode != "qlora" and machine.python:
            yield Task(worth, "pytorch", shape.key(), 45, 120,
                       lambda s, x=shape: runs.speed_pytorch(machine, gpu, x, s),
                       shape.facts())


def samples(machine, scratch, only_refused):
    try:
        table = runs.samples(machine)
    except Exception as broken:  # a row that says so, and the others are still to come
        def fail(seconds, why=broken):
            raise why
        yield Task(45, "samples", "the table of samples", 1, 1, fail)
        return
    for published in table:
        if not only_refused or "refused" in published["document_says"]:
            yield Task(45, "samples", published["id"], 30, 90,
                       lambda s, p=published: runs.sample(machine, scratch, p, s),
                       runs.sample_facts(published))


def attention(machine, scratch, shapes, tokens):
    for shape in shapes:
        yield Task(5, "attention", "%d tokens, %d/%d heads of %d" % shape, 15, 45,
                   lambda s, x=shape: kernels.attention(machine, scratch, x, tokens, s),
                   kernels.attention_facts(shape, tokens))
    if machine.python:
        yield Task(6, "attention", "PyTorch", 40, 100,
                   lambda s: kernels.attention_pytorch(machine, shapes, tokens, s))


def steps(machine, scratch, shapes, products):
    yield Task(4, "kernels", "copy", 10, 30, lambda s: kernels.copy(machine, s))
    for i, (shape, layers) in enumerate(shapes):
        yield Task(7 if i < 2 else 55, "kernels", kernels.key(shape, layers), 25, 80,
                   lambda s, x=shape, n=layers: kernels.step(machine, scratch, x, n, s))
    for i, (shape, layers) in enumerate(products):
        yield Task(8 if i < 1 else 56, "products", kernels.key(shape, layers), 25, 80,
                   lambda s, x=shape, n=layers: kernels.products(machine, scratch, x, n, s))


# --- what a rehearsal measures instead ------------------------------------------------------------

TINY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "hidden_act": "silu", "initializer_range": 0.02,
        "torch_dtype": "bfloat16"}


def tiny(scratch, mode, **more):
    config = kernels.write_config(scratch, "tiny", TINY)
    return runs.Shape(str(config.parent), mode, 1, 16, "full", **more)


def rehearsal(machine, scratch, gpu):
    shapes = [tiny(scratch, "full"), tiny(scratch, "lora"), tiny(scratch, "qlora")]
    return [*suites(machine), *memory(machine, scratch, shapes),
            *list(sanitizers(machine, scratch, shapes[0]))[1:2],
            *speed(machine, scratch, gpu, shapes[1:]), *samples(machine, scratch, True),
            *attention(machine, scratch, [(16, 2, 1, 16), (16, 2, 2, 64)], 32),
            *steps(machine, scratch, [(shapes[0], None), (shapes[2], None)], [(shapes[1], None)])]


def real(machine, scratch, gpu):
    return [*suites(machine), *memory(machine, scratch, runs.MEMORY),
            *sanitizers(machine, scratch, tiny(scratch, "full")),
            *speed(machine, scratch, gpu, runs.SPEED), *samples(machine, scratch, False),
            *attention(machine, scratch, kernels.ATTENTION, kernels.ATTENTION_TOKENS),
            *steps(machine, scratch, kernels.STEPS, kernels.PRODUCTS)]


# --- the book -------------------------------------------------------------------------------------

class Book:
    """Rows by part and key, on disk after every one; a second copy stays in the build."""

    def __init__(self, out, build, gpu):
        self.places, self.rows, self.calls, self.gpu = [out, build], {}, [], gpu
        self.missing, self.text = [], ""

    def resume(self, path, forget_failed):
        if not path.exists():
            return
        try:
            old = json.loads(path.read_text())
        except ValueError as broken:  # of a machine that went down; what it held comes again
            print(f"gpu_report: {path}: {broken}; beginning anew", file=sys.stderr)
            return
        if old["gpu"]["name"] != self.gpu["name"]:
            sys.exit(f"gpu_report: {path} is about another GPU, {old['gpu']['name']}")
        self.calls = old["calls"]
        self.rows = {(r["part"], r["key"]): r for r in old["rows"]
                     if not (forget_failed and r["status"] == FAILED)}

    def put(self, part, key, row):
        self.rows[part, key] = {"part": part, "key": key, **row}
        self.write()

    def write(self):
        result = {"gpu": self.gpu, "calls": self.calls, "rows": list(self.rows.values()),
                  "not_run": [[t.part, t.key, t.why_not] for t in self.missing]}
        self.text = markdown.report(result)
        texts = {"RESULTS.json": json.dumps(result, indent=1) + "\n",
                 "RESULTS.md": self.text}
        for place in self.places:
            for name, text in texts.items():
                try:
                    place.mkdir(parents=True, exist_ok=True)
                    temporary = place / (name + ".new")
                    temporary.write_text(text)
                    os.replace(temporary, place / name)
                except OSError as refused:  # the other place has it, or the next row writes it
                    print(f"gpu_report: {refused}", file=sys.stderr, flush=True)


def perform(task, seconds):
    """A part that breaks is a failed row, not the end of the report. None: its program is not
    built, which a later call may find otherwise."""
    try:
        return {**task.facts, **task.action(seconds)}
    except FileNotFoundError as missing:
        task.why_not = f"not built, or not installed: {missing.filename}"
        return None
    except Exception as broken:  # whatever it is, the other rows are worth more
        return {**task.facts, "status": FAILED, "exit": None, "seconds": 0,
                "tail": f"the report itself: {type(broken).__name__}: {broken}"}


def left_to_do(book, tasks):
    """By worth; what ran out of time before comes last, since it may do so again."""
    late = [t for t in tasks if book.rows.get((t.part, t.key), {}).get("status") == LATE]
    new = [t for t in tasks if (t.part, t.key) not in book.rows]
    return sorted(new, key=lambda t: t.worth) + sorted(late, key=lambda t: t.worth)


def work(book, clock, tasks):
    book.missing = left_to_do(book, tasks)
    for task in list(book.missing):
        if clock.left() < task.need + MARGIN:
            continue  # a shorter one may still fit
        print(f"{clock.left():5.0f} s left: {task.part}: {task.key}", file=sys.stderr, flush=True)
        row = perform(task, min(task.limit, clock.left() - MARGIN))
        if row is None:
            continue
        book.missing.remove(task)
        book.put(task.part, task.key, row)
        print(f"             {row['status']}", file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(prog="gpu_report", description=__doc__.split("\n")[0],
                                     epilog="A second and a third call go on with --resume "
                                     "build-gpu/RESULTS.json; CONTRIBUTING.md has the commands.")
    parser.add_argument("--minutes", type=float, default=9, help="of this call (9)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/gpu")
    parser.add_argument("--only", help="parts, with commas: suites, sanitizers, memory, speed, "
                        "pytorch, samples, attention, kernels, products")
    parser.add_argument("--resume", type=pathlib.Path, metavar="RESULTS.json",
                        help="run only what is missing there; no such file is nothing to resume")
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


def main():
    args = arguments()
    end_on_signals()
    bundle = ["--bundle", os.environ["GPU_BUNDLE"]] if "GPU_BUNDLE" in os.environ else []
    clock = Clock(args.minutes)
    python = None if args.python == "none" else args.python
    machine = (Rehearsal if args.rehearse else Machine)(args.build.resolve(), python)
    gpu = machine.facts()
    book = Book(args.out.resolve(), machine.build, gpu)
    if args.resume:
        book.resume(args.resume, args.again)
    book.calls.append({"date": datetime.datetime.now().isoformat(timespec="seconds"),
                       "command": shlex.join(["tools/gpu_report", *bundle, *sys.argv[1:]])})
    if not args.list:
        book.put("build", "build", machine.make(gpu, min(400, clock.left() - MARGIN)))
    if python and not machine.has_torch():
        machine.python = None
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        tasks = (rehearsal if args.rehearse else real)(machine, scratch, gpu)
        if args.only:
            tasks = [t for t in tasks if t.part in args.only.split(",")]
        if args.list:
            for task in left_to_do(book, tasks):
                print(f"{task.part}: {task.key} (at most {task.limit} s)")
            return 0
        work(book, clock, tasks)
    book.write()
    print(book.text)
    return int(any(r["status"] == FAILED for r in book.rows.values()))


if __name__ == "__main__":
    sys.exit(main())
