#!/usr/bin/env python3
"""One training shape in PyTorch + transformers (+ peft) on the GPU; prints one JSON object.

Usage: pytorch_run.py CONFIG_DIRECTORY full|lora BATCH LENGTH none|full STEPS
bf16 weights, fused AdamW, clip 1, SDPA attention, random tokens at full length. `process_bytes` is
what the driver counts for this process, `allocated_bytes` the peak of PyTorch's allocator.
"""
import json
import statistics
import sys
import time

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
           "qkv_proj", "gate_up_proj"]
WARM_UP = 2


def build(directory, mode, recompute):
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(directory)
    config.use_cache = False
    with torch.device("cuda"):
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
    return model.train()


def main():
    directory, mode, batch, length, level, steps = sys.argv[1:]
    batch, length, steps = int(batch), int(length), int(steps)
    import torch

    free_before, total = torch.cuda.mem_get_info()
    torch.manual_seed(1)
    model = build(directory, mode, level == "full")
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-5, fused=True)
    ids = torch.randint(0, 32000, (batch, length), device="cuda")
    times, losses = [], []
    for _ in range(WARM_UP + steps):
        torch.cuda.synchronize()
        before = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - before)
        losses.append(loss.item())
    print(json.dumps({
        "tokens_per_second": batch * length / statistics.median(times[WARM_UP:]),
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "process_bytes": free_before - torch.cuda.mem_get_info()[0],
        "device_bytes": total, "first_loss": losses[0], "last_loss": losses[-1],
        "grad_norm": norm.item()}))


if __name__ == "__main__":
    main()
