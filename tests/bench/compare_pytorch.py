#!/usr/bin/env python3
"""Training rate and memory compared with PyTorch + transformers (+ peft), same shapes, same machine.

Usage: PLIMSOLL=path/to/plimsoll compare_pytorch.py path/to/bench_train [SHAPE ...] [--rounds N]
           [--dtype fp32|bf16]
Runs both in turn, `--rounds` times, and prints one JSON object with every reading and the median
of the ratios. Exits 77 (skipped) when torch, transformers or peft is missing.

With `--dtype bf16` Plimsoll trains in bf16 and PyTorch in either type, and a round is compared with
PyTorch's better rate: with the model and the optimizer in fp32, or with all of both in bf16.

Else both compute in fp32. The frozen base of 135m-lora is held in bf16 by Plimsoll, as SmolLM2-135M is
published, and widened on its way into products: to the bit what fp32 storage of it gives. PyTorch
holds it in fp32.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time

# As in shapes.c.
SHAPES = {
    "tiny-full": ("full", 256, 6, 8, 4, 768, 4096, 4, 256),
    "tiny-lora": ("lora", 256, 6, 8, 4, 768, 4096, 4, 256),
    "135m-full": ("full", 576, 30, 9, 3, 1536, 49152, 1, 256),
    "135m-lora": ("lora", 576, 30, 9, 3, 1536, 49152, 1, 256),
}
WARM_UP = 5
PACKAGES = ("torch", "transformers", "peft")
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def torch_model(shape, dtype):
    mode, hidden, layers, heads, kv_heads, ffn, vocab, _, _ = shape
    import transformers

    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, intermediate_size=ffn, vocab_size=vocab,
            tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa"))
    if dtype == "bf16":
        import torch

        model = model.to(torch.bfloat16)
    if mode == "lora":
        import peft

        model = peft.get_peft_model(
            model, peft.LoraConfig(r=16, lora_alpha=16, target_modules=LINEARS,
                                   task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    return model.train()


def run_torch(name, dtype, threads, steps, started):
    """Trains in this process and prints what bench_train prints for a shape."""
    shape = SHAPES[name]
    vocab, batch, length = shape[6:]
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = torch_model(shape, dtype)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-4, fused=True)
    times = []
    for _ in range(steps):
        ids = torch.randint(0, vocab, (batch, length))
        before = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.item()
        times.append(time.perf_counter() - before)
        if len(times) == 1:
            first = time.time() - started
    print(json.dumps({
        "shape": name, "dtype": dtype, "steps": steps, "last_loss": loss,
        "tokens_per_second": batch * length / statistics.median(times[WARM_UP:]),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "first_step_seconds": first}))


def child(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def compare(args, name):
    rows = []
    steps, threads = str(args.steps), str(args.threads)
    for _ in range(args.rounds):
        ours = child([args.bench_train, "--only", name, "--steps", steps, "--threads", threads] +
                     ([f"dtype={args.dtype}"] if args.dtype != "fp32" else []))
        theirs = [child([sys.executable, __file__, args.bench_train, name, "--torch", dtype,
                         "--steps", steps, "--threads", threads])
                  for dtype in sorted({"fp32", args.dtype})]
        rows.append({"plimsoll": ours["runs"][0],
                     "pytorch": max(theirs, key=lambda run: run["tokens_per_second"]),
                     "pytorch_all": theirs, "sgemm_2048_gflops": ours["sgemm_2048_gflops"]})
    keys = {"rate_ratio": "tokens_per_second", "rss_ratio": "peak_rss_bytes",
            "first_step_ratio": "first_step_seconds"}
    return {"shape": name, "dtype": args.dtype, "rounds": rows,
            **{k: round(statistics.median(r["plimsoll"][v] / r["pytorch"][v] for r in rows), 3)
               for k, v in keys.items()}}


def main():
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench_train")
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help="default: " + ", ".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--torch", choices=("fp32", "bf16"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    missing = [p for p in PACKAGES if importlib.util.find_spec(p) is None]
    if missing:
        print(f"skipped: no Python package {', '.join(missing)}")
        return 77
    if args.torch:
        run_torch(args.shapes[0], args.torch, args.threads, args.steps, started)
        return 0
    result = {p: importlib.metadata.version(p) for p in PACKAGES}
    result["shapes"] = [compare(args, name) for name in args.shapes or SHAPES]
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_PROC_BIND", "true")
    sys.exit(main())
