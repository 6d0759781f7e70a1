#!/usr/bin/env python3
"""Predicted against measured seconds of a step: one job is measured, all others are predicted by it.

Usage: PLIMSOLL=path/to/plimsoll predict_step.py [--measure JOB] [--rounds N] [--steps N]
                                                 [--threads N] [JOB ...] [-- key=value ...]
A JOB is SHAPE:MODE, such as tiny:full; all of them unless some are named. Every round measures the
first job in an empty cache directory, then runs each job with a copy of what that left. Prints a
table: medians over the rounds and the error of the prediction; the same of the least figures, for a
machine that others use; and `spread`, the largest measured figure over the smallest, which says
how quiet it was.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile

# hidden, layers, heads, kv heads, ffn, vocabulary, batch, length; llama, tied. As in shapes.c:
# `135m` is SmolLM2-135M.
SHAPES = {
    "tiny": (256, 6, 8, 4, 768, 4096, 4, 256),
    "micro": (128, 4, 4, 2, 384, 2048, 8, 128),
    "short": (256, 6, 8, 4, 768, 4096, 8, 128),
    "long": (256, 6, 8, 4, 768, 4096, 1, 1024),
    "wide": (512, 8, 8, 8, 1408, 8192, 2, 256),
    "wider": (1024, 4, 16, 8, 2816, 16384, 1, 512),
    "135m": (576, 30, 9, 3, 1536, 49152, 1, 256),
}
JOBS = ["%s:%s" % (s, m) for s in SHAPES for m in ("full", "lora", "qlora")]
CONFIG = """model_config: config.json
init: random
mode: %s
dtype: fp32
datasets:
  - path: train.jsonl
    format: tokens
shuffle: false
batch_size: %d
max_seq_length: %d
max_steps: %d
threads: %d
learning_rate: 1e-4
lr_scheduler: constant
gradient_checkpointing: none
device: cpu
output_dir: out
"""


def write_job(path, job, options):
    shape, mode = job.split(":")
    hidden, layers, heads, kv_heads, ffn, vocab, batch, length = SHAPES[shape]
    model = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocab, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "hidden_act": "silu", "initializer_range": 0.02, "torch_dtype": "float32"}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(model, f)
    tokens = random.Random(1)
    with open(os.path.join(path, "train.jsonl"), "w") as f:
        for _ in range(8 * batch):
            ids = [tokens.randrange(vocab) for _ in range(length)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    with open(os.path.join(path, "run.yaml"), "w") as f:
        f.write(CONFIG % (mode, batch, length, options.steps, options.threads))
        if mode != "full":
            f.write("lora_r: 16\n")


def run(job, cache, options):
    """(predicted or None, measured) seconds of a step; the job leaves its figures in `cache`."""
    with tempfile.TemporaryDirectory() as path:
        write_job(path, job, options)
        command = [os.environ["PLIMSOLL"], "train", "run.yaml", "--quiet"] + options.overrides
        subprocess.run(command, cwd=path, check=True, env=dict(os.environ, XDG_CACHE_HOME=cache))
        with open(os.path.join(path, "out", "train_log.jsonl")) as f:
            events = [json.loads(line) for line in f]
    summary = [e for e in events if e["event"] == "summary"][0]
    return summary["predicted_step_seconds"], summary["measured_step_seconds"]


def round_of(jobs, options):
    readings = {}
    with tempfile.TemporaryDirectory() as path:
        first = os.path.join(path, "first")
        run(options.measure, first, options)
        for job in jobs:
            cache = os.path.join(path, job.replace(":", "_"))
            shutil.copytree(first, cache)
            readings[job] = run(job, cache, options)
    return readings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--measure", default="tiny:full")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.overrides = [job for job in options.jobs if "=" in job]
    jobs = [job for job in options.jobs if "=" not in job] or JOBS
    rounds = [round_of(jobs, options) for _ in range(options.rounds)]
    print("measured once: %s; %d rounds" % (options.measure, options.rounds))
    print("%-12s %9s %9s %8s   %9s %9s %8s %7s" % (
        "job", "predicted", "measured", "error", "least", "least", "error", "spread"))
    errors = {"median": [], "least": []}
    for job in jobs:
        predicted, measured = zip(*(r[job] for r in rounds))
        row = [job]
        for name, pick in (("median", statistics.median), ("least", min)):
            error = pick(predicted) / pick(measured) - 1
            errors[name].append(abs(error))
            row += [pick(predicted), pick(measured), 100 * error]
        row.append(max(measured) / min(measured))
        print("%-12s %8.4fs %8.4fs %+7.1f%%   %8.4fs %8.4fs %+7.1f%% %7.2f" % tuple(row))
    for name, values in errors.items():
        print("%s: largest error %.1f%%, mean %.1f%%" % (
            name, 100 * max(values), 100 * statistics.mean(values)))


if __name__ == "__main__":
    main()
