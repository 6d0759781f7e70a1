#!/usr/bin/env python3
"""Write targets.jsonl: which modules of a model PEFT adapts for given settings (requirements of
tests/golden). Settings are drawn from the seed around hand-written ones; those that PEFT refuses
are left out."""

import json
import random
import warnings
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = Path(__file__).parent
PARTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BLOCKS = {p: "self_attn" if p[0] in "qkvo" else "mlp" for p in PARTS}
SIZES = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=12, num_attention_heads=2,
             num_key_value_heads=1, vocab_size=32, tie_word_embeddings=False)
WRITTEN = [
    dict(target_modules="all-linear"),
    dict(target_modules="all-linear", exclude_modules=["lm_head", "vision_tower"]),
    dict(target_modules=r".*\.(q|v)_proj"),
    dict(target_modules=r"model\.layers\.[\d]+\.mlp\.(up|down|gate)_proj"),
    dict(target_modules=r"model.layers.(?:1|1[01]).*?(?:self_attn|mlp).*?_proj"),
    dict(target_modules=r"^(?!.*layers\.[0-8]\.).*\.[kv]_proj$"),
    dict(target_modules=r"(?:.*?(?:language|text).*?(?:q_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\."
                        r"(?:self_attn|mlp)\.(?:(?:q_proj|o_proj|up_proj)))"),
    dict(target_modules=r".*(?<=layers\.3\.self_attn\.)\w+"),
    dict(target_modules=PARTS, exclude_modules=r".*\.(?:0|[2-9])\..*"),
    dict(target_modules=["q_proj", "1.mlp.up_proj", "model.layers.11.mlp.down_proj"]),
    dict(target_modules=["_proj", "k_proj"]),
    dict(target_modules=PARTS, layers_to_transform=[0, 11], layers_pattern="layers"),
    dict(target_modules=PARTS, layers_to_transform=3, layers_pattern=["h", "lay.*"]),
    dict(target_modules=["model.layers.5.mlp.up_proj", "q_proj"], layers_to_transform=[2, 40]),
    dict(target_modules=["lm_head"]),
    dict(target_modules=["lm_head", "v_proj"], layers_to_transform=[1]),
    dict(target_modules=r".*o_proj|lm_head"),
    dict(target_modules=["lm_head", "k_proj"], exclude_modules=r"lm_.*"),
]


def drawn(rng):
    names = lambda: [rng.choice([p, f"{BLOCKS[p]}.{p}", f"{rng.randrange(13)}.{BLOCKS[p]}.{p}",
                                 f"model.layers.{rng.randrange(12)}.{BLOCKS[p]}.{p}"])
                     for p in rng.sample(PARTS, rng.randrange(1, 6))]
    layers = lambda: rng.sample(range(14), rng.randrange(1, 6))
    expression = lambda: (rng.choice([r".*\.", r"model\.layers\.(\d|1[01])\.\w+\.", r".*[02468]\.\w+\."])
                          + rng.choice(["(q|k|v)_proj", "[^.]*up_proj", "(gate|down)_.{4,}", r"\w+_proj"]))
    settings = dict(target_modules=expression() if rng.random() < 0.4 else names())
    if rng.random() < 0.4:
        settings["exclude_modules"] = expression() if rng.random() < 0.5 else names()
    if isinstance(settings["target_modules"], list) and rng.random() < 0.5:
        settings["layers_to_transform"] = layers()
    return settings


def adapted(model, settings):
    try:
        peft = get_peft_model(model, LoraConfig(r=1, task_type="CAUSAL_LM", **settings))
    except ValueError:
        return None
    found = peft.base_model.targeted_module_names
    peft.unload()
    return sorted(found)


def main():
    warnings.simplefilter("ignore")
    rng = random.Random(3)
    config = AutoConfig.for_model("llama", **SIZES)
    rows = []
    for settings in WRITTEN + [drawn(rng) for _ in range(60)]:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        paths = adapted(model, settings)
        if paths is not None:
            short = {}
            head = "lm_head" in paths
            for path in set(paths) - {"lm_head"}:
                _, _, layer, _, module = path.split(".")
                short.setdefault(layer, []).append(PARTS.index(module))
            masks = [sum(1 << i for i in short.get(str(l), [])) for l in range(12)]
            rows.append(json.dumps(dict(settings, masks=masks, head=head)))
    (FOLDER / "targets.jsonl").write_text("\n".join(rows) + "\n")
    print(len(rows), "settings")


if __name__ == "__main__":
    main()
