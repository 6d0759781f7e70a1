#!/usr/bin/env python3
"""Write continued.json next to the model of some golden cases: prompts, and the ids that greedy decoding puts after them.

The ids are those of the model classes of transformers in fp32 without a cache or a memory of lengths, and are kept only if float64 chooses the
same. The start weights of the case are used, with the start adapter where it has one.
"""
import json
import pathlib
import random

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from generate import forget_lengths

CASES = pathlib.Path(__file__).parent / "cases"
NAMES = ("llama-full", "llama-tied-llama3", "qwen2-full", "qwen3-full", "mistral-window", "qwen2-windows", "mistral-yarn", "llama-dynamic", "lora-llama", "lora-rslora", "lora-whole", "lora-whole-tied", "lora-embedding-tied")
LENGTHS = (1, 6, 13)
NEW = 20


def continued(model, prompt):
    ids, gap = list(prompt), float("inf")
    for _ in range(NEW):
        forget_lengths(model)
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        top = torch.topk(logits, 2).values
        gap = min(gap, float(top[0] - top[1]))
        ids.append(int(torch.argmax(logits)))
    return ids[len(prompt):], gap


def load(case, dtype):
    model = AutoModelForCausalLM.from_pretrained(case / "model", dtype=dtype)
    if (case / "adapter").exists():
        model = PeftModel.from_pretrained(model, case / "adapter").to(dtype)
    return model.eval()


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    for name in NAMES:
        case, rows, draw = CASES / name, [], random.Random(name)
        single, double = load(case, torch.float32), load(case, torch.float64)
        for n in LENGTHS:
            prompt = [draw.randrange(3, single.config.vocab_size) for _ in range(n)]
            ids, gap = continued(single, prompt)
            assert continued(double, prompt)[0] == ids, f"{name}: a tie"
            rows.append({"prompt_ids": prompt, "output_ids": ids, "smallest_top2_logit_gap": gap})
        (case / "continued.json").write_text(json.dumps({"prompts": rows}, indent=1) + "\n")
        print(name, [round(r["smallest_top2_logit_gap"], 5) for r in rows])


main()
