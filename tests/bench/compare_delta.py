#!/usr/bin/env python3
"""Tokens per second of the gated delta rule compared with the PyTorch reference, on one machine.

Usage: compare_delta.py path/to/bench_delta [--rounds N] [--tokens N] [--threads N]
Runs bench_delta and transformers' torch_chunk_gated_delta_rule (chunks of 64, fp32, the shape of
bench_delta.c) in turn, and prints one JSON object with every reading and the median of the ratios.
Exits 77 (skipped) when torch or transformers is missing.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import subprocess
import sys
import time

# As in bench_delta.c.
KEY_HEADS, HEADS, DIM = 16, 32, 128
PACKAGES = ("torch", "transformers")
PASSES = ("forward_tokens_per_second", "backward_tokens_per_second")


def run_torch(tokens, threads, rounds):
    """Runs in this process and prints what bench_delta prints."""
    import torch
    from transformers.models.qwen3_next import modeling_qwen3_next

    rule = modeling_qwen3_next.torch_chunk_gated_delta_rule
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    shapes = [(1, tokens, KEY_HEADS, DIM)] * 2 + [(1, tokens, HEADS, DIM)]
    shapes += [(1, tokens, HEADS)] * 2 + [(HEADS,)] * 2
    inputs = [torch.rand(shape).mul(2).sub(1).requires_grad_() for shape in shapes]
    query, key, value, b, a, a_log, dt_bias = inputs
    gradient = torch.rand(1, tokens, HEADS, DIM)
    times = []
    for _ in range(rounds + 1):
        before = time.perf_counter()
        decay = -a_log.exp() * torch.nn.functional.softplus(a + dt_bias)
        out, _ = rule(query, key, value, decay, b.sigmoid(), use_qk_l2norm_in_kernel=True)
        there = time.perf_counter()
        out.backward(gradient)
        times.append((there - before, time.perf_counter() - there))
        for x in inputs:
            x.grad = None
    rates = (tokens / statistics.median(t) for t in zip(*times[1:]))
    print(json.dumps(dict(zip(PASSES, rates))))


def child(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench_delta")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="runs of each pass in a round")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    missing = [p for p in PACKAGES if importlib.util.find_spec(p) is None]
    if missing:
        print(f"skipped: no Python package {', '.join(missing)}")
        return 77
    if args.torch:
        run_torch(args.tokens, args.threads, args.steps)
        return 0
    threads, tokens, steps = str(args.threads), str(args.tokens), str(args.steps)
    rows = []
    for _ in range(args.rounds):
        rows.append({
            "plimsoll": child([args.bench_delta, threads, tokens, steps]),
            "pytorch": child([sys.executable, __file__, args.bench_delta, "--torch", "--tokens",
                              tokens, "--threads", threads, "--steps", steps])})
    result = {p: importlib.metadata.version(p) for p in PACKAGES}
    result["rounds"] = rows
    for name in PASSES:
        ratios = sorted(row["plimsoll"][name] / row["pytorch"][name] for row in rows)
        result[name.replace("tokens_per_second", "ratio")] = {
            "median": round(statistics.median(ratios), 2), "lowest": round(ratios[0], 2),
            "highest": round(ratios[-1], 2)}
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
