"""Parts of the report that are runs of several ranks: the bits of one, what NCCL takes, scaling.

Every row trains the same global batch with `rank_order: true`, so its losses and norms have to be
those of one rank without NCCL, bit for bit.
"""
import json
import statistics

import runs
from command import FAILED, OK, run
from runs import Shape

SAMPLES = 16  # of a step, on all ranks together
STEPS = 4     # the first one is not timed
SHARDINGS = ("none", "gradients", "weights")
SHAPES = [Shape("SmolLM2-135M", "full", 2, 1024, "none"),
          Shape("Llama-3.2-1B", "full", 2, 2048, "none"),
          Shape("Qwen2.5-7B", "qlora", 2, 2048, "full")]
DUPLICATE = "uplicate GPU"  # as NCCL says it


class Crew:
    """Of one row: how many ranks, what they hold parts of, and by what they send."""

    def __init__(self, shape, ranks, sharding="none", **more):
        self.shape, self.ranks, self.sharding, self.more = shape, ranks, sharding, more

    def key(self):
        more = "".join(f" {k}={v}" for k, v in self.more.items())
        return f"{self.ranks} x {self.shape.key()} sharding={self.sharding}{more}"

    def facts(self):
        return {**self.shape.facts(), "ranks": self.ranks, "sharding": self.sharding,
                "more": {**self.shape.more, **self.more}}

    def keys(self):
        keys = {k: v for k, v in self.shape.keys().items() if k != "probe_steps"}
        return {**keys, "global_batch_size": SAMPLES, "rank_order": "true", "probe_steps": 0,
                "max_steps": STEPS, "devices": self.ranks, "sharding": self.sharding,
                "full_ft_ceiling_billions": 100, **self.more}


def train(machine, scratch, crew, seconds):
    """A run, and the objects of its log."""
    job = runs.write_job(scratch, crew.shape.model, crew.keys())
    out = run([machine.plimsoll, "train", job, "--no-progress"], seconds, machine.env)
    log = scratch / "out/train_log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return out, [json.loads(line) for line in lines]


def of_event(log, event):
    return [line for line in log if line["event"] == event]


def values(log):
    return [(s["loss"], s["grad_norm"]) for s in of_event(log, "step")]


def figures(log):
    """What a log says of speed and memory; nothing where the run did not get so far."""
    steps, ranks = of_event(log, "step"), of_event(log, "ranks")
    found = {}
    if len(steps) > 1:
        found["tokens_per_second"] = statistics.median(s["tokens_per_second"] for s in steps[1:])
    if ranks:
        found["each"] = ranks[-1]["ranks"]
    for admitted in of_event(log, "preflight")[-1:]:
        found["comm_predicted_bytes"] = admitted.get("comm_predicted_bytes")
    return found


def amiss(row, log, reference):
    """What must hold of a run besides its exit status; the names of what does not."""
    bad = {"bits differ from one rank's": values(log) != reference or not reference,
           "planned is not allocated": any(r["planned_bytes"] != r["allocated_bytes"]
                                           for r in row.get("each", [])),
           "not every rank was told of": len(row.get("each", [])) != row["ranks"]}
    return [name for name, is_bad in bad.items() if is_bad]


class Reference:
    """The run of one rank without NCCL that the others are compared with; made once a shape."""

    def __init__(self):
        self.known = {}

    def of(self, machine, scratch, shape, seconds):
        if shape.key() not in self.known:
            out, log = train(machine, scratch, Crew(shape, 1), seconds)
            if out.exit != 0:
                raise RuntimeError("one rank failed: " + out.text[-600:])
            self.known[shape.key()] = (values(log), figures(log))
        return self.known[shape.key()]


def measure(machine, scratch, crew, references, seconds):
    reference, alone = references.of(machine, scratch, crew.shape, seconds / 2)
    out, log = train(machine, scratch, crew, seconds / 2)
    row = out.row(**crew.facts())
    row.update(figures(log))
    if row["status"] != OK:
        return row
    row["checks"] = amiss(row, log, reference)
    if row["checks"]:
        row.update(status=FAILED, tail="; ".join(row["checks"]) + "\n" + out.text[-600:])
    one = alone.get("tokens_per_second")
    if one and row.get("tokens_per_second"):
        row["scaling"] = row["tokens_per_second"] / one / crew.ranks
    return row


def on_one_gpu(machine, scratch, crew, seconds):
    """NCCL takes no two ranks on one GPU; the row holds what it says."""
    out, _ = train(machine, scratch, crew, seconds)
    row = out.row(**crew.facts())
    if row["status"] == FAILED and DUPLICATE in out.text:
        row.update(status=OK, refused="two ranks on one GPU")
        del row["tail"]
    return row
