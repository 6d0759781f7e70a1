"""One long run of a tiny model that is disturbed, again and again, until it has done all its steps."""
import errno
import signal
import time

from bench import FULL, Loss, newest, require

SAVES = 200  # of the whole run
FAULTS = 150  # at the most, about; fewer where a start takes long compared with a save
STARTS = 6  # times that a run of a dozen steps takes, in which a disturbed one comes further
SAVED = (0, 128 + signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP, 1,
         4, 5)


def disturb(bench, folder, random, seconds):
    """One start that is not left in peace; the name of what was done to it."""
    kind = random.choice(["kill", "kill", "signal", "failing call", "out of memory"])
    if kind == "failing call":
        run = bench.fault_at(folder, int(10 ** random.uniform(1, 4)),
                             random.choice([errno.EIO, errno.ENOSPC]),
                             for_good=random.random() < 0.5)
    elif kind == "out of memory":
        step = newest(folder / "out") + random.randint(1, 400)
        run = bench.start(folder, "train", "run.yaml", "debug_inject=device_oom@step=%d" % step)
    else:
        run = bench.start(folder, "train", "run.yaml")
    time.sleep(random.uniform(seconds / 4, seconds))
    if kind == "signal" and run.poll() is None:
        run.send_signal(random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
    elif run.poll() is None:
        run.kill()
    ended = bench.wait(run, folder)
    require(ended.status in SAVED, "%s: exit %d: %s", kind, ended.status, ended.said[-600:])
    return kind


def soak(bench, steps, random):
    bench.make_job("soak", FULL + "dtype: fp32\nbatch_size: 1\nsave_steps: %d\n" % max(
        1, steps // SAVES), steps)
    bench.reference("soak")
    bench.reference("full")
    seconds = max(2 * bench.seconds["soak"] / FAULTS, STARTS * bench.seconds["full"])
    folder, done, begun = bench.fresh("soak"), {}, time.monotonic()
    try:
        while newest(folder / "out") < steps and sum(done.values()) < 20 * FAULTS:
            least = newest(folder / "out")
            kind = disturb(bench, folder, random, seconds)
            require(newest(folder / "out") >= least, "%s: checkpoint-%d is lost", kind, least)
            done[kind] = done.get(kind, 0) + 1
        bench.finish(folder, "soak", least=newest(folder / "out"))
    except Loss as loss:
        print("LOST after %d restarts: %s" % (sum(done.values()), loss))
        return 1
    print("%d steps, %d restarts (%s), bit-equal to the undisturbed run, %.0f s" % (
        steps, sum(done.values()), ", ".join("%d %s" % (n, kind) for kind, n in sorted(
            done.items())), time.monotonic() - begun))
    return 0
