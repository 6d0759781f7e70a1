#!/usr/bin/env python3
"""The report of a GPU: builds, suites, memory and speed, beside PyTorch on the same card.

Called by tools/gpu_report. Every part has a share of the time; what does not fit into it is listed
as not run, never left out in silence. Writes RESULTS.md and RESULTS.json.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/model/configs"
BUILD = ROOT / "build-gpu"
PLIMSOLL = BUILD / "tools/plimsoll"

# (model, mode, batch, length, recompute): memory of each; the ones with a star also beside PyTorch.
MEMORY = [
    ("SmolLM2-135M", "full", 8, 1024, "none"),
    ("SmolLM2-135M", "lora", 4, 2048, "full"),
    ("Qwen2.5-0.5B", "full", 4, 1024, "none"),
    ("Qwen2.5-0.5B", "full", 8, 512, "full"),
    ("Qwen2.5-0.5B", "lora", 2, 4096, "full"),
    ("Qwen2.5-1.5B", "full", 2, 2048, "full"),
    ("Qwen2.5-1.5B", "lora", 4, 2048, "none"),
    ("Qwen2.5-1.5B", "qlora", 4, 2048, "full"),
    ("Llama-3.2-1B", "full", 4, 2048, "full"),
    ("Llama-3.2-1B", "lora", 1, 4096, "none"),
    ("Llama-3.2-3B", "full", 1, 2048, "full"),
    ("Llama-3.2-3B", "lora", 4, 2048, "full"),
    ("SmolLM2-1.7B", "full", 4, 1024, "light"),
    ("Phi-4-mini", "lora", 2, 2048, "full"),
    ("Qwen2.5-7B", "lora", 4, 2048, "full"),
]
SPEED = [
    ("Qwen2.5-7B", "full", 1, 2048, "full"),
    ("Llama-3.1-8B", "lora", 4, 2048, "full"),
    ("Llama-3.2-3B", "full", 4, 2048, "full"),
    ("Llama-3.2-1B", "full", 8, 2048, "none"),
    ("Qwen2.5-0.5B", "full", 8, 2048, "none"),
]
# Dense bf16 peak in FLOP/s, NVIDIA's data sheets, SXM parts.
PEAK = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "4090": 165.2e12, "B200": 2250e12}
PROBE_STEPS = 6


class Clock:
    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def left(self):
        return self.end - time.monotonic()


def run(command, seconds, env=None, cwd=ROOT):
    """(status, output, seconds spent); status None when time ran out."""
    before = time.monotonic()
    try:
        done = subprocess.run([str(c) for c in command], cwd=cwd, env={**os.environ, **(env or {})},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=max(seconds, 1))
        return done.returncode, done.stdout, time.monotonic() - before
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
        return None, text.decode(errors="replace") if isinstance(text, bytes) else text, seconds


def gpu_facts():
    if not shutil.which("nvidia-smi"):
        sys.exit("gpu_report: no nvidia-smi, so no GPU to report on")
    names = "name,driver_version,memory.total,compute_cap"
    status, text, _ = run(["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"], 20)
    if status != 0:
        sys.exit("gpu_report: nvidia-smi finds no GPU\n" + text)
    first = [f.strip() for f in text.splitlines()[0].split(",")]
    return {"name": first[0], "driver": first[1], "memory": first[2],
            "sm": first[3].replace(".", "")}


def build(gpu, clock):
    setup = ["meson", "setup", BUILD, "-Dtests=enabled", "-Dcuda=enabled",
             f"-Dcuda-arch={gpu['sm']}", "--buildtype=release"]
    if (BUILD / "build.ninja").exists():
        setup.insert(2, "--reconfigure")
    for command in (setup, ["ninja", "-C", BUILD]):
        status, text, _ = run(command, clock.left())
        if status != 0:
            sys.exit(f"gpu_report: {command[0]} failed\n{text[-6000:]}")


def suites(clock):
    """Conformance, golden and pressure on the card, and a subset under compute-sanitizer."""
    rows = []
    status, text, spent = run(["meson", "test", "-C", BUILD, "--suite", "gpu", "--suite", "cuda",
                               "--no-rebuild", "--print-errorlogs"], min(150, clock.left()))
    rows.append({"suite": "meson: gpu, cuda", "status": status, "seconds": round(spent, 1),
                 "tail": text[-3000:]})
    tool = shutil.which("compute-sanitizer")
    for check in ("memcheck", "racecheck"):
        if not tool:
            rows.append({"suite": f"compute-sanitizer {check}", "status": "not installed"})
            continue
        status, text, spent = run([tool, "--tool", check, "--error-exitcode", "9",
                                   BUILD / "tests/gpu/check_kernels_gpu"],
                                  min(60, clock.left()),
                                  {"CK_FORK": "no", "KERNEL_TRIALS": "1"})
        rows.append({"suite": f"compute-sanitizer {check}", "status": status,
                     "seconds": round(spent, 1), "tail": text[-1500:]})
    return rows


def write_data(path, length, rows):
    source = random.Random(1)
    with open(path, "w") as f:
        for _ in range(rows):
            ids = [source.randrange(32000) for _ in range(length)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def train(shape, scratch, seconds):
    """A probe of the shape: planned, allocated and measured bytes, rate, losses."""
    model, mode, batch, length, recompute = shape
    data = scratch / f"data-{length}.jsonl"
    if not data.exists():
        write_data(data, length, 16)
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    job = scratch / "run.yaml"
    job.write_text(
        f"model_config: {MODELS / model}\ninit: random\nmode: {mode}\ndtype: bf16\n"
        f"datasets:\n  - path: {data}\n    format: tokens\nbatch_size: {batch}\n"
        f"max_seq_length: {length}\nmax_steps: 10\nlearning_rate: 1e-5\nwarmup_steps: 0\n"
        f"lr_scheduler: constant\ngradient_checkpointing: {recompute}\ndevice: cuda\n"
        f"full_ft_ceiling_billions: 100\noutput_dir: {out}\nprobe_steps: {PROBE_STEPS}\n"
        + ("master_weights: false\n" if mode == "full" else "lora_r: 16\n"))
    status, text, spent = run([PLIMSOLL, "train", job, "--probe", "--json", "--no-progress"],
                              seconds)
    row = {"model": model, "mode": mode, "batch": batch, "length": length,
           "recompute": recompute, "status": status, "seconds": round(spent, 1)}
    for line in text.splitlines():
        if line.startswith('{"event":"probe"'):
            row.update(json.loads(line))
            row["tokens_per_second"] = row["tokens"] / row["seconds_per_step"]
    if status != 0:
        row["tail"] = text[-800:]
    return row


def matmul_params(model, mode):
    """Parameters of the products: linears of the decoder and the output layer, once."""
    status, text, _ = run([PLIMSOLL, "estimate-vram", MODELS / model, "--json", "--mode", "lora",
                           "--batch-size", "1"], 20)
    c = json.loads((MODELS / model / "config.json").read_text())
    params = json.loads(text)["param_count"] if status in (0, 3) else 0
    embedding = c["vocab_size"] * c["hidden_size"]
    tied = c.get("tie_word_embeddings", False)
    # 2 FLOPs a weight forward, 2 for dx, and 2 for dW where the weight trains
    return (6 if mode == "full" else 4) * (params if tied else params - embedding)


def memory_table(clock, scratch):
    rows = []
    for shape in MEMORY:
        if clock.left() < 100:
            rows.append({"model": shape[0], "mode": shape[1], "status": "not run: no time left"})
            continue
        rows.append(train(shape, scratch, 40))
    return rows


def speed_table(clock, scratch, gpu):
    rows = []
    peak = next((v for k, v in PEAK.items() if k in gpu["name"]), None)
    for shape in SPEED:
        if clock.left() < 45:
            rows.append({"model": shape[0], "mode": shape[1], "status": "not run: no time left"})
            continue
        row = train(shape, scratch, 60)
        if row.get("tokens_per_second") and peak:
            row["mfu"] = matmul_params(shape[0], shape[1]) * row["tokens_per_second"] / peak
        if clock.left() > 45:
            status, text, _ = run([sys.executable, ROOT / "tests/gpu/pytorch_run.py",
                                   MODELS / shape[0], shape[1], shape[2], shape[3], shape[4], "5"],
                                  min(90, clock.left()))
            last = text.strip().splitlines()[-1] if text.strip() else ""
            row["pytorch"] = json.loads(last) if status == 0 else {"failed": text[-400:]}
        rows.append(row)
    return rows


def gib(n):
    return f"{n / 2**30:.3f}" if n else "-"


def memory_markdown(rows):
    lines = ["| model | mode | batch x length | recompute | planned GiB | allocated | "
             "predicted process GiB | measured | error % | loss | grad norm |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        if r.get("status") != 0 or "planned_peak_bytes" not in r:
            lines.append(f"| {r['model']} | {r['mode']} | failed or not run: {r['status']} "
                         "| | | | | | | | |")
            continue
        equal = "equal" if r["planned_peak_bytes"] == r["allocated_peak_bytes"] else "DIFFERENT"
        predicted, measured = r["predicted_process_bytes"], r["measured_peak_bytes"]
        lines.append(
            f"| {r['model']} | {r['mode']} | {r['batch']} x {r['length']} | {r['recompute']} | "
            f"{gib(r['planned_peak_bytes'])} | {equal} | {gib(predicted)} | {gib(measured)} | "
            f"{100 * (predicted / measured - 1):+.2f} | {r['first_loss']:.3f} -> "
            f"{r['last_loss']:.3f} | {r['grad_norm']:.3g} |")
    return "\n".join(lines)


def speed_markdown(rows):
    lines = ["| model | mode | batch x length | recompute | tokens/s | MFU % | process GiB | "
             "PyTorch tokens/s | PyTorch process GiB | loss | grad norm |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        if "tokens_per_second" not in r:
            lines.append(f"| {r['model']} | {r['mode']} | failed or not run: {r['status']} "
                         "| | | | | | | | |")
            continue
        theirs = r.get("pytorch", {})
        rate = theirs.get("tokens_per_second")
        lines.append(
            f"| {r['model']} | {r['mode']} | {r['batch']} x {r['length']} | {r['recompute']} | "
            f"{r['tokens_per_second']:.0f} | {100 * r.get('mfu', 0):.1f} | "
            f"{gib(r['measured_peak_bytes'])} | {f'{rate:.0f}' if rate else 'failed'} | "
            f"{gib(theirs.get('process_bytes'))} | {r['first_loss']:.3f} -> {r['last_loss']:.3f} | "
            f"{r['grad_norm']:.3g} |")
    return "\n".join(lines)


def markdown(result):
    suites_text = "\n".join(f"| {s['suite']} | {s['status']} | {s.get('seconds', '-')} |"
                            for s in result["suites"])
    return f"""# What was measured on a GPU

{result['date']}, {result['gpu']['name']}, driver {result['gpu']['driver']}, by `tools/gpu_report`.

## Suites

| suite | exit status | seconds |
|---|---|---|
{suites_text}

## Memory

`planned` is the plan's arenas, `allocated` what was asked of the device, `predicted` the total
before any CUDA call, `measured` what the driver counts for the process.

{memory_markdown(result['memory'])}

## Speed

Fastest of {PROBE_STEPS} steps; every row of full length, real tokens only. MFU = FLOPs of the
products (6 a weight and token in `full`, 4 in `lora`; recomputation and attention not counted) over
the card's dense bf16 peak.

{speed_markdown(result['speed'])}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/gpu")
    parser.add_argument("--quick", action="store_true", help="the first two rows of each table")
    args = parser.parse_args()
    clock = Clock(args.minutes)
    if args.quick:
        del MEMORY[2:], SPEED[2:]
    gpu = gpu_facts()
    build(gpu, clock)
    result = {"date": datetime.date.today().isoformat(), "gpu": gpu, "suites": suites(clock)}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        result["speed"] = speed_table(clock, scratch, gpu)
        result["memory"] = memory_table(clock, scratch)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "RESULTS.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "RESULTS.md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
