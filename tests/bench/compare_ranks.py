#!/usr/bin/env python3
"""What several ranks cost on one machine: N ranks of one thread compared with one rank of N threads.

Usage: compare_ranks.py path/to/plimsoll [--modes full,lora] [--tokens 128,512] [--ranks 2]
Trains a model of the sizes of SmolLM2-135M in fp32, from random values, on rows of as many tokens;
each row is a micro-batch and a step has one for every rank. The two run in turn, `--rounds` times.
Prints one JSON object with the tokens per second of every run (the median of its steps) and the
median of the ratios of the pairs.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

CONFIG = pathlib.Path(__file__).resolve().parents[1] / "model/configs/SmolLM2-135M/config.json"
VOCABULARY = 49152
WARM_UP = 1  # steps


def write_job(folder, mode, tokens, ranks, steps):
    rng = random.Random(1)
    rows = [{"input_ids": [rng.randrange(VOCABULARY) for _ in range(tokens)]}
            for _ in range(ranks * steps)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.yaml").write_text(
        f"init: random\nmodel_config: {CONFIG}\nmode: {mode}\ndtype: fp32\nbase_dtype: fp32\n"
        "datasets:\n- path: train.jsonl\n  format: tokens\nshuffle: false\nbatch_size: 1\n"
        f"global_batch_size: {ranks}\nmax_seq_length: {tokens}\nmax_steps: {steps}\n"
        "logging_steps: 1\ngradient_checkpointing: none\ndevice: cpu\nresume: never\n"
        "overwrite_output_dir: true\n")


def train(plimsoll, folder, out, words):
    subprocess.run([plimsoll, "train", "run.yaml", f"output_dir={out}", *words], cwd=folder,
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    events = [json.loads(line) for line in (folder / out / "train_log.jsonl").open()]
    rates = [e["tokens_per_second"] for e in events if e["event"] == "step"]
    waited = [r.get("wait_seconds") for e in events if e["event"] == "ranks"
              for r in e.get("ranks", [])]
    return {"tokens_per_second": statistics.median(rates[WARM_UP:]), "wait_seconds": waited}


def compare(args, mode, tokens):
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_job(folder, mode, tokens, args.ranks, args.steps)
        for _ in range(args.rounds):
            several = train(args.plimsoll, folder, "several",
                            [f"devices={args.ranks}", "threads=1", *args.words])
            one = train(args.plimsoll, folder, "one", [f"threads={args.ranks}"])
            rows.append({"several": several, "one": one})
    ratios = [r["several"]["tokens_per_second"] / r["one"]["tokens_per_second"] for r in rows]
    return {"mode": mode, "tokens": tokens, "ranks": args.ranks, "rounds": rows,
            "ratio": round(statistics.median(ratios), 3),
            "ratios": [round(r, 3) for r in ratios]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plimsoll", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="of the run of several ranks")
    parser.add_argument("--modes", default="full,lora")
    parser.add_argument("--tokens", default="128,512")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(json.dumps([compare(args, mode, int(tokens)) for mode in args.modes.split(",")
                      for tokens in args.tokens.split(",")], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
