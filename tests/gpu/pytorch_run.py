#!/usr/bin/env python3
"""One training shape in PyTorch + transformers (+ peft) on the GPU; prints one JSON object.

Usage: pytorch_run.py [--cpu] CONFIG_DIRECTORY full|lora BATCH LENGTH none|full|auto STEPS
`auto`: nothing is recomputed where memory holds it, else whole layers; `level` says which.
bf16 weights, fused AdamW, clip 1, SDPA attention, random tokens at full length, the same ones in
every step. `process_bytes` is what free memory of the GPU lost from before CUDA was touched until
after the last step, context included; `allocated_bytes` the peak of PyTorch's allocator. The rate
is that of the fastest step, as for ours; the median is given, too.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
           "qkv_proj", "gate_up_proj"]
WARM_UP = 2


def free_bytes():
    """Asked of the driver by another process; None where it does not tell: the rate is worth more.
    """
    if not shutil.which("nvidia-smi"):
        return None
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.free",
                           "--format=csv,noheader,nounits"],
                          stdout=subprocess.PIPE, text=True, check=False).stdout
    number = next(iter(text.split()), "")
    return int(number) << 20 if number.isdigit() else None


def build(directory, mode, recompute, device):
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(directory)
    config.use_cache = False
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        torch.set_default_dtype(torch.float32)
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if mode == "lora":
        import peft

        names = {n.rsplit(".", 1)[-1] for n, _ in model.named_modules()}
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=16, lora_alpha=16, target_modules=[n for n in LINEARS if n in names],
            task_type="CAUSAL_LM"))
    return config, model.train()


def recompute_instead():
    """In a process of its own, since what this one has taken would stay with it."""
    at = sys.argv.index("auto")
    os.execv(sys.executable, [sys.executable, *sys.argv[:at], "full", *sys.argv[at + 1:]])


def main():
    try:
        measure()
    except RuntimeError as broken:  # torch.OutOfMemoryError is one
        if "auto" not in sys.argv or "out of memory" not in str(broken):
            raise
        recompute_instead()


def measure():
    words = sys.argv[1:]
    device = "cuda"
    if words[0] == "--cpu":
        device = "cpu"
        del words[0]
    directory, mode, batch, length, level, steps = words
    batch, length, steps = int(batch), int(length), int(steps)
    before_cuda = free_bytes()
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.manual_seed(1)
    config, model = build(directory, mode, level == "full", device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-5 if mode == "full" else 1e-3, fused=True)
    ids = torch.randint(0, min(32000, config.vocab_size), (batch, length), device=device)
    times, losses = [], []
    for _ in range(WARM_UP + steps):
        wait()
        before = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        times.append(time.perf_counter() - before)
        losses.append(loss.item())
    timed = times[WARM_UP:]
    after = free_bytes()
    print(json.dumps({
        "tokens_per_second": batch * length / min(timed),
        "median_tokens_per_second": batch * length / statistics.median(timed),
        "allocated_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
        "process_bytes": before_cuda - after if before_cuda and after else None,
        "level": "full" if level == "full" else "none",
        "first_loss": losses[0], "last_loss": losses[-1], "grad_norm": norm.item(),
        "versions": {"torch": torch.__version__,
                     "transformers": sys.modules["transformers"].__version__}}))


if __name__ == "__main__":
    main()
