"""Kinds of faults. Each is a function of a bench and a random.Random: it disturbs a run, and raises
bench.Loss unless the run resumes bit-equal, or refuses by name with nothing lost. A kind that this
program or machine cannot have raises Absent."""
import errno
import os
import random as random_module
import shutil
import signal
import time

import powercut
from bench import JOBS, STEPS, digests, newest, require

SAVE_AND_END = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
                signal.SIGXCPU}
KILLED = 128 + signal.SIGKILL
FAILURES = (1, 4, 5)


class Absent(Exception):
    """This program, or this machine, does not have the fault."""


def any_job(random):
    return random.choice(sorted(JOBS))


def begin(bench, random, job):
    """A new run, or one that is half done: (directory, its newest checkpoint)."""
    folder = bench.half_done(job) if random.random() < 0.5 else bench.fresh(job)
    return folder, newest(folder / "out")


def random_kills(bench, random):
    """SIGKILL at random times, up to three in a row."""
    job = any_job(random)
    bench.reference(job)
    folder, least = begin(bench, random, job)
    for _ in range(random.randint(1, 3)):
        run = bench.start(folder, "train", "run.yaml")
        time.sleep(random.uniform(0, 1.2 * bench.seconds[job]))
        run.kill()
        ended = bench.wait(run, folder)
        require(ended.status in (0, KILLED), "exit %d: %s", ended.status, ended.said[-600:])
        require(newest(folder / "out") >= least, "checkpoint-%d is lost", least)
        least = newest(folder / "out")
    bench.finish(folder, job, least=least)


def kills_at_calls(bench, random):
    """SIGKILL before a call on a file, up to three in a row."""
    job = any_job(random)
    folder, least = begin(bench, random, job)
    for _ in range(random.randint(1, 3)):
        ended = bench.kill_before(folder, random.randint(1, bench.calls_of(job)))
        require(ended.status in (0, KILLED), "exit %d: %s", ended.status, ended.said[-600:])
        require(newest(folder / "out") >= least, "checkpoint-%d is lost", least)
        least = newest(folder / "out")
    bench.finish(folder, job, least=least)


def failing_calls(bench, random):
    """A call on a file fails, once or for good."""
    job = any_job(random)
    folder, least = begin(bench, random, job)
    code = random.choice([errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE])
    run = bench.fault_at(folder, random.randint(1, bench.calls_of(job)), code,
                         for_good=random.random() < 0.5)
    ended = bench.wait(run, folder)
    bench.expect_words(ended, (0, 2, *FAILURES))
    bench.finish(folder, job, least=least)


def failing_allocations(bench, random):
    """A request for host memory fails, once or for good."""
    if not bench.knows("host_oom@alloc=1"):
        raise Absent("debug_inject has no host_oom@alloc")
    job = any_job(random)
    folder, least = begin(bench, random, job)
    rule = "host_oom@alloc=%d%s" % (int(10 ** random.uniform(0, 4)),
                                    random.choice(["", ",forever"]))
    ended = bench.train(folder, "debug_inject=" + rule)
    bench.expect_words(ended, (0, 2, *FAILURES))
    bench.finish(folder, job, least=least)


def device_out_of_memory(bench, random):
    """A step runs out of device memory: halved, or saved and ended; and then a kill."""
    job = any_job(random)
    rule = "debug_inject=device_oom@step=%d" % random.randint(1, STEPS)
    if "batch_size: 1\n" in JOBS[job]:
        folder = bench.fresh(job)
        ended = bench.train(folder, rule)
        bench.expect_words(ended, (4,))
        require("RUNTIME_GPU_OOM" in ended.said, "another code: %s", ended.said[-600:])
        bench.finish(folder, job, least=int(rule.split("=")[-1]) - 1)
        return
    bench.reference(job, rule)
    folder = bench.fresh(job)
    for _ in range(random.randint(0, 2)):
        ended = bench.kill_before(folder, random.randint(1, bench.calls_of(job)), rule)
        require(ended.status in (0, KILLED), "exit %d: %s", ended.status, ended.said[-600:])
    bench.finish(folder, job, rule, least=newest(folder / "out"))


def signals(bench, random):
    """One or two signals that save and end, at random times."""
    job = any_job(random)
    bench.reference(job)
    folder, least = begin(bench, random, job)
    first = random.choice(sorted(SAVE_AND_END))
    second = random.choice([None, first, signal.SIGTERM, signal.SIGHUP])
    run = bench.start(folder, "train", "run.yaml")
    time.sleep(random.uniform(0, 1.2 * bench.seconds[job]))
    for number in (first, second):
        if number is not None and run.poll() is None:
            run.send_signal(number)
    ended = bench.wait(run, folder)
    told = [128 + number for number in (first, second) if number is not None]
    require(ended.status in (0, *told), "exit %d after signal %d: %s", ended.status, first,
            ended.said[-600:])
    bench.finish(folder, job, least=least)


# --- hostile files ---------------------------------------------------------------------------------

def damage(content, random):
    """One change: bits, a cut, a hole, something put in, a piece doubled."""
    at = random.randrange(len(content) + 1)
    length = min(len(content) - at, 1 << random.randrange(12))
    noise = bytes(random.randrange(256) for _ in range(random.randint(1, 16)))
    if not content:
        return noise
    flipped = bytearray(content)
    flipped[at - 1] ^= 1 << random.randrange(8)
    return random.choice([bytes(flipped), content[:at], b"", content[:at] + content[at + length:],
                          content[:at] + bytes(length) + content[at + length:],
                          content[:at] + noise + content[at:],
                          content[:at + length] + content[at:]])


def damage_header(content, random):
    """Of weights that a run starts from the names, types, shapes and the first 4 KiB of every tensor
    are compared: what a run is known by."""
    end = 8 + int.from_bytes(content[:8], "little")
    return damage(content[:end], random) + content[end:]


# A start writes this before it has read everything: the log is cut to the steps of the checkpoint.
OF_A_START = ("train_log.jsonl", "preflight.json", "receipt.json", "config.resolved.yaml")


def hostile_files(bench, random):
    """A file that a resumed run reads is damaged: refused with nothing lost, or of no consequence."""
    job = any_job(random)
    folder = bench.half_done(job)
    saved = sorted(path for path in (folder / "out").rglob("*") if path.is_file())
    read = [folder / "train.jsonl", *sorted((folder / "base").glob("*.safetensors")),
            folder / ("base/config.json" if "model: base" in JOBS[job] else "config.json")]
    path = random.choice(saved + 3 * read)
    good = path.read_bytes()
    harm = damage_header if path.parent.name == "base" and path.suffix == ".safetensors" else damage
    harmed = harm(good, random)
    path.write_bytes(harmed)
    name = str(path.relative_to(folder))
    in_checkpoint = "checkpoint-%d/" % newest(folder / "out") in name
    before, least = digests(folder / "out"), newest(folder / "out")
    if in_checkpoint and harmed != good:
        checked = bench.run(folder, "verify", "out")
        require(checked.status == 5, "verify takes %s: exit %d", name, checked.status)
    ended = bench.train(folder)
    bench.expect_words(ended, (0, 2, 5))
    require(ended.status or harmed == good or not in_checkpoint, "a damaged %s was resumed",
            name)
    if ended.status == 0:
        bench.finish(folder, job, log=name != "out/train_log.jsonl")
        return
    after = digests(folder / "out")
    lost = sorted(name for name in before
                  if before[name] != after.get(name) and name not in OF_A_START)
    require(not lost, "a refused run has changed %s: %s", ", ".join(lost), ended.said[-600:])
    path.write_bytes(good)
    bench.finish(folder, job, least=least)


# --- power cuts ------------------------------------------------------------------------------------

CUTS = 4  # of each recorded run


def power_cuts(bench, random):
    """The power fails at random changes of a run; what may be on the disk then is resumed."""
    job = any_job(random)
    bench.reference(job)
    folder, _ = begin(bench, random, job)
    (folder / "out").mkdir(exist_ok=True)
    before = bench.folder / "before"
    shutil.rmtree(before, ignore_errors=True)
    shutil.copytree(folder / "out", before)
    ended = bench.train(folder, env={"LD_PRELOAD": bench.recorder,
                                     "RECORD_TO": str(bench.folder / "record")})
    require(ended.status == 0, "exit %d: %s", ended.status, ended.said[-600:])
    changes = powercut.read_record(bench.folder / "record")
    changes = [below_out(change, folder) for change in changes]
    final = {"train_log.jsonl": (folder / "out" / "train_log.jsonl").read_bytes()}
    for _ in range(CUTS):
        seed = random.random()
        try:
            resume_after_cut(bench, job, folder, before, changes, final, seed)
        except Exception as failure:
            raise type(failure)("cut %r: %s" % (seed, failure))


def below_out(change, folder):
    """With paths relative to output_dir."""
    def relative(path):
        return os.path.relpath(os.path.join(folder, path), folder / "out")
    what, size, content, path, old = change
    return what, size, content, relative(path), relative(old)


def resume_after_cut(bench, job, folder, before, changes, final, seed):
    random = random_module.Random(seed)
    at = random.randint(0, len(changes))
    shutil.rmtree(folder / "out")
    disk = powercut.Disk(before)
    powercut.cut(disk, changes, at, final, random, folder / "out")
    bench.finish(folder, job, least=durable_step(disk))


def durable_step(disk):
    """The newest checkpoint that no cut can take any more."""
    steps = [0]
    for name, node in disk.tree.durable.items():
        number = name[len("checkpoint-"):]
        if name.startswith("checkpoint-") and number.isdigit() and \
                "trainer_state.json" in node.durable and name in disk.tree.names:
            steps.append(int(number))
    return max(steps)


KINDS = {"kills": random_kills, "kills at calls": kills_at_calls, "failing calls": failing_calls,
         "failing allocations": failing_allocations, "out of memory": device_out_of_memory,
         "signals": signals, "hostile files": hostile_files, "power cuts": power_cuts}
TRIALS = {"power cuts": CUTS}  # of one call; 1 otherwise
