#!/usr/bin/env python3
"""Make the golden cases of this directory: tiny models, tiny data, and what PyTorch makes of them.

    generate.py [--out DIR] [--seed N] [--only CASE,CASE]

README.md describes the files, the semantics and the tolerances. Everything is drawn from the seed:
the same seed, package versions (requirements.txt) and kind of CPU give the same bytes.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import argparse
import hashlib
import json
import math
import random
import shutil
from pathlib import Path

import torch
import yaml
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, get_scheduler
from transformers.utils.logging import disable_progress_bar

MASKED = -100
ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# --- the cases ---
# (name, family, config over BASE_CONFIG, run over BASE_RUN, rows over BASE_ROWS)

BASE_CONFIG = dict(
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=256,
    max_position_embeddings=96,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
BASE_RUN = dict(
    model="model",
    mode="full",
    dtype="fp32",
    datasets=[dict(path="train.jsonl", format="tokens")],
    shuffle=False,
    batch_size=2,
    gradient_accumulation_steps=1,
    max_seq_length=28,
    optimizer="adamw",
    learning_rate=0.0015,
    lr_scheduler="constant",
    warmup_steps=0,
    weight_decay=0.0,
    adam_beta1=0.9,
    adam_beta2=0.98,
    adam_epsilon=2e-6,
    max_grad_norm=0.0,
    max_steps=8,
    gradient_checkpointing="none",
    seed=7,
    device="cpu",
    output_dir="out",
)
BASE_ROWS = dict(count=9, masked=False)
ROPE = dict(rope_type="default", rope_theta=20000.0)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=300000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
YARN = dict(
    rope_type="yarn",
    rope_theta=20000.0,
    factor=4.0,
    original_max_position_embeddings=12,
    beta_fast=2.0,
    beta_slow=0.1,
)
DYNAMIC = dict(rope_type="dynamic", rope_theta=20000.0, factor=3.0)
LORA = dict(
    mode="lora",
    lora_r=8,
    lora_alpha=16,
    lora_dropout=0.0,
    lora_target_modules=ALL_LINEAR,
    use_rslora=False,
    adapter_path="adapter",
    learning_rate=0.002,
)

# Four layers of few numbers, where which ones carry an adapter is what matters.
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=4, vocab_size=64, head_dim=4)

CASES = [
    ("llama-full", "llama", {}, {}, {}),
    (
        "llama-tied-llama3",
        "llama",
        dict(tie_word_embeddings=True, rope_parameters=LLAMA3),
        dict(lr_scheduler="linear", warmup_steps=2, weight_decay=0.1),
        {},
    ),
    (
        "qwen2-full",
        "qwen2",
        dict(use_sliding_window=False),
        dict(lr_scheduler="cosine", weight_decay=0.05, max_grad_norm=1.0),
        dict(masked=True),
    ),
    ("qwen3-full", "qwen3", dict(head_dim=16), dict(weight_decay=0.1), {}),
    (
        "mistral-window",
        "mistral",
        dict(sliding_window=7),
        dict(lr_scheduler="linear", warmup_steps=3, max_grad_norm=1.0),
        {},
    ),
    (
        "qwen2-windows",
        "qwen2",
        dict(
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=6,
            max_window_layers=1,
            tie_word_embeddings=True,
        ),
        dict(weight_decay=0.1, gradient_checkpointing="full"),
        {},
    ),
    (
        "mistral-yarn",
        "mistral",
        dict(sliding_window=None, tie_word_embeddings=True, rope_parameters=YARN),
        dict(weight_decay=0.1),
        {},
    ),
    (
        "llama-dynamic",
        "llama",
        dict(max_position_embeddings=18, tie_word_embeddings=True, rope_parameters=DYNAMIC),
        dict(gradient_accumulation_steps=2, batch_size=1),
        {},
    ),
    (
        "llama-accumulate",
        "llama",
        {},
        dict(
            batch_size=3,
            gradient_accumulation_steps=2,
            lr_scheduler="cosine",
            warmup_steps=2,
            weight_decay=0.1,
            max_grad_norm=0.5,
            adam_epsilon=1e-4,
        ),
        dict(count=11, masked=True),
    ),
    (
        "llama-freeze",
        "llama",
        dict(num_hidden_layers=3),
        dict(freeze_layers=1, weight_decay=0.1),
        {},
    ),
    (
        "llama-sgd",
        "llama",
        {},
        dict(optimizer="sgd", learning_rate=0.05, weight_decay=0.02, max_grad_norm=1.0),
        {},
    ),
    (
        "lora-llama",
        "llama",
        {},
        LORA | dict(weight_decay=0.1, max_grad_norm=1.0, adam_epsilon=1e-8),
        dict(masked=True),
    ),
    (
        "lora-rslora",
        "llama",
        {},
        LORA
        | dict(
            lora_r=4,
            lora_alpha=6,
            use_rslora=True,
            lora_target_modules=["q_proj", "v_proj"],
            batch_size=1,
            gradient_accumulation_steps=2,
        ),
        dict(masked=True),
    ),
    (
        "lora-pattern",
        "llama",
        SMALL,
        LORA | dict(lora_target_modules=r".*\.(1\..*_proj|3\.self_attn\.[qv]_proj)"),
        dict(masked=True),
    ),
    (
        "lora-layers",
        "qwen3",
        SMALL,
        LORA
        | dict(
            lora_target_modules=["self_attn.q_proj", "v_proj", "up_proj", "down_proj"],
            lora_exclude_modules=["2.mlp.up_proj", "v_proj"],
            layers_to_transform=[1, 2],
        ),
        {},
    ),
    (
        "lora-head",
        "llama",
        SMALL,
        LORA | dict(lora_target_modules=["lm_head", "v_proj"], max_grad_norm=1.0),
        dict(masked=True),
    ),
    (
        "lora-head-tied",
        "llama",
        SMALL | dict(tie_word_embeddings=True),
        LORA
        | dict(lora_target_modules=["lm_head"], lora_r=3, weight_decay=0.1, loss_chunk_tokens=8),
        {},
    ),
    (
        "lora-whole",
        "llama",
        SMALL,
        LORA
        | dict(
            lora_modules_to_save=["embed_tokens", "lm_head"],
            batch_size=1,
            gradient_accumulation_steps=2,
            max_grad_norm=1.0,
        ),
        dict(masked=True),
    ),
    (
        "lora-whole-tied",
        "qwen3",
        SMALL | dict(tie_word_embeddings=True),
        LORA
        | dict(
            lora_modules_to_save=["embed_tokens"],
            lora_target_modules=["q_proj", "lm_head"],
            layers_to_transform=[2],
            weight_decay=0.1,
            gradient_checkpointing="full",
        ),
        {},
    ),
    (
        "lora-whole-head-tied",
        "llama",
        SMALL | dict(tie_word_embeddings=True),
        LORA | dict(lora_modules_to_save=["lm_head"], loss_chunk_tokens=8),
        {},
    ),
    (
        "lora-embedding",
        "llama",
        SMALL,
        LORA
        | dict(lora_target_modules=["embed_tokens", "q_proj"], lora_r=3, max_grad_norm=1.0),
        dict(masked=True),
    ),
    (
        "lora-embedding-tied",
        "qwen3",
        SMALL | dict(tie_word_embeddings=True),
        LORA
        | dict(
            lora_target_modules=["embed_tokens", "lm_head", "v_proj"],
            batch_size=1,
            gradient_accumulation_steps=2,
            weight_decay=0.1,
        ),
        {},
    ),
]


def seed_for(*parts):
    """A seed of its own for each purpose, so that adding a case leaves the others as they are."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:6], "little")


# --- model, adapter, data ---


def randomise(model, gen):
    """Weights under which attention is not flat, norms are not one, biases are not zero."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=gen)
            if name.endswith("bias"):
                p.copy_(0.25 * noise)
            elif p.ndim == 1:
                p.copy_(1 + 0.25 * noise.clamp(-2, 2))
            elif "embed_tokens" in name:
                p.copy_((0.15 if model.config.tie_word_embeddings else 0.5) * noise)
            elif "lm_head" in name:
                p.copy_(0.15 * noise)
            else:
                spread = 1.3 if "q_proj" in name or "k_proj" in name else 0.9
                p.copy_(spread / math.sqrt(p.shape[1]) * noise)


def make_model(folder, family, over, gen):
    config = AutoConfig.for_model(family, **(BASE_CONFIG | dict(rope_parameters=dict(ROPE)) | over))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomise(model, gen)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def make_adapter(case_dir, run, gen):
    """A PEFT adapter whose B is not zero, or A would have no gradient in the first step."""
    base = AutoModelForCausalLM.from_pretrained(case_dir / "model", dtype=torch.float32)
    model = get_peft_model(
        base,
        LoraConfig(
            r=run["lora_r"],
            lora_alpha=run["lora_alpha"],
            bias="none",
            target_modules=run["lora_target_modules"],
            exclude_modules=run.get("lora_exclude_modules"),
            layers_to_transform=run.get("layers_to_transform"),
            modules_to_save=run.get("lora_modules_to_save"),
            use_rslora=run["use_rslora"],
            task_type="CAUSAL_LM",
        ),
    )
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(
                    torch.randn(p.shape, generator=gen)
                    * (0.08 if "lora_B" in name or "embedding_A" in name else p.shape[1] ** -0.5)
                )
            elif "modules_to_save" in name:
                p.add_(0.05 * torch.randn(p.shape, generator=gen))
    folder = case_dir / "adapter"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text()) | dict(base_model_name_or_path="../model")
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config[key], list):
            config[key] = sorted(config[key])
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def make_rows(rng, count, masked, longest, vocab):
    """Walks on a sparse random graph: something can be learnt, and no row is like another."""
    edges = [[rng.randrange(3, vocab) for _ in range(3)] for _ in range(vocab)]
    rows = []
    for i in range(count):
        n = longest if i == 1 else rng.randrange(longest // 3, longest + 1)
        ids = [rng.randrange(3, vocab)]
        while len(ids) < n:
            ids.append(
                rng.choice(edges[ids[-1]]) if rng.random() < 0.9 else rng.randrange(3, vocab)
            )
        labels = list(ids)
        if masked and i % 3 != 1:
            head = rng.randrange(1, n // 2)
            labels[:head] = [MASKED] * head
        if masked and i % 3 == 2:
            hole = rng.randrange(n // 2, n - 2)
            labels[hole : hole + 2] = [MASKED, MASKED]
        if masked and i == 4:
            labels = [MASKED] * n
        rows.append(dict(input_ids=ids, labels=labels))
    return rows


# --- the reference run ---


def load(case_dir, run, dtype, attention):
    model = AutoModelForCausalLM.from_pretrained(
        case_dir / "model", dtype=torch.float32, attn_implementation=attention
    )
    if run["mode"] == "lora":
        model = PeftModel.from_pretrained(model, case_dir / "adapter", is_trainable=True)
    elif run.get("freeze_layers"):
        model.get_input_embeddings().requires_grad_(False)
        for layer in model.model.layers[: run["freeze_layers"]]:
            layer.requires_grad_(False)
    if dtype == torch.float64:
        widen(model)
    return model


def widen(model):
    """float64 all through: the classes of transformers compute norms and rotations in fp32."""
    model.double()
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            module.forward = norm_in_double(module)
        elif kind.endswith("RotaryEmbedding"):
            module.forward = rotation_in_double(module)


def norm_in_double(norm):
    def forward(x):
        return norm.weight * x * (x * x).mean(-1, keepdim=True).add(norm.variance_epsilon).rsqrt()

    return forward


def rotation_in_double(rotary):
    config = rotary.config
    rope = config.rope_parameters
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pairs, base = torch.arange(0, dim, 2).double() / dim, rope["rope_theta"]
    frequency = base**-pairs
    if rope["rope_type"] == "llama3":
        turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / rope["factor"])
    if rope["rope_type"] == "yarn":
        pair_of = lambda turns: (
            dim * math.log(rope["original_max_position_embeddings"] / (2 * math.pi * turns))
        ) / (2 * math.log(base))
        low = max(math.floor(pair_of(rope["beta_fast"])), 0)
        high = min(math.ceil(pair_of(rope["beta_slow"])), dim - 1)
        stretched = ((torch.arange(dim // 2).double() - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (stretched / rope["factor"] + 1 - stretched)
    if not torch.allclose(frequency.float(), rotary.inv_freq.float(), rtol=1e-5):
        raise SystemExit("the frequencies here are not those of transformers")

    def forward(x, position_ids):
        nonlocal frequency
        if rope["rope_type"] == "dynamic":
            length = max(int(position_ids.max()) + 1, config.max_position_embeddings)
            stretch = rope["factor"] * length / config.max_position_embeddings - rope["factor"] + 1
            frequency = (base * stretch ** (dim / (dim - 2))) ** -pairs
        angle = position_ids[..., None].double() * frequency
        angle = torch.cat((angle, angle), -1)
        scale = rotary.attention_scaling
        return (scale * angle.cos()).to(x.dtype), (scale * angle.sin()).to(x.dtype)

    return forward


def forget_lengths(model):
    """Dynamic positions remember the longest sequence there was; here each forward is the first."""
    for module in model.modules():
        if getattr(module, "rope_type", None) == "dynamic":
            module.max_seq_len_cached = module.original_max_seq_len
            module.register_buffer("inv_freq", module.original_inv_freq, persistent=False)


def trainable(model):
    plain = lambda name: (
        name.replace(".modules_to_save.", ".").removesuffix(".default").replace(".default.", ".")
    )
    return {plain(n): p for n, p in model.named_parameters() if p.requires_grad}


def micro_batches(rows, run, step):
    """Consecutive rows in file order, around the end, padded to the longest of the micro-batch."""
    size, count = run["batch_size"], run["gradient_accumulation_steps"]
    for a in range(count):
        first = ((step - 1) * count + a) * size
        picked = [rows[(first + i) % len(rows)] for i in range(size)]
        width = max(len(r["input_ids"]) for r in picked)
        pad = lambda key, filler: torch.tensor(
            [r[key] + [filler] * (width - len(r[key])) for r in picked]
        )
        mask = torch.tensor(
            [[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"])) for r in picked]
        )
        yield pad("input_ids", 0), pad("labels", MASKED), mask


def step_gradients(model, rows, run, step):
    """Loss of the step (mean over all its targets), their number, and its gradients in .grad."""
    batches = list(micro_batches(rows, run, step))
    targets = sum(int((labels[:, 1:] != MASKED).sum()) for _, labels, _ in batches)
    total = 0.0
    for ids, labels, mask in batches:
        forget_lengths(model)
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        loss = cross_entropy(
            logits[:, :-1].flatten(0, 1),
            labels[:, 1:].flatten(),
            ignore_index=MASKED,
            reduction="sum",
        )
        (loss / targets).backward()
        total += loss.item()
    return total / targets, targets


def make_optimizer(params, run):
    groups = [
        dict(params=[p for p in params if p.ndim > 1], weight_decay=run["weight_decay"]),
        dict(params=[p for p in params if p.ndim == 1], weight_decay=0.0),
    ]
    groups = [g for g in groups if g["params"]]
    if run["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=run["learning_rate"], foreach=False)
    return torch.optim.AdamW(
        groups,
        lr=run["learning_rate"],
        betas=(run["adam_beta1"], run["adam_beta2"]),
        eps=run["adam_epsilon"],
        foreach=False,
    )


class Disturbance:
    """Takes each gradient at weights with relative noise, which spreads as rounding errors do."""

    def __init__(self, model, seed, size):
        self.params, self.size = list(model.parameters()), size
        self.gen = torch.Generator().manual_seed(seed)

    def __enter__(self):
        self.saved = [p.detach().clone() for p in self.params]
        with torch.no_grad():
            for p in self.params:
                p.mul_(1 + self.size * torch.randn(p.shape, generator=self.gen, dtype=p.dtype))

    def __exit__(self, *_):
        with torch.no_grad():
            for p, value in zip(self.params, self.saved):
                p.copy_(value)


def run_case(case_dir, run, rows, dtype=torch.float32, attention="sdpa", noise=None):
    """-> (steps as logged, trainable weights after the last)."""
    model = load(case_dir, run, dtype, attention)
    params = trainable(model)
    optimizer = make_optimizer(list(params.values()), run)
    scheduler = get_scheduler(run["lr_scheduler"], optimizer, run["warmup_steps"], run["max_steps"])
    disturbance = Disturbance(model, noise, NOISE) if noise is not None else None
    steps = []
    for step in range(1, run["max_steps"] + 1):
        optimizer.zero_grad()
        if disturbance:
            with disturbance:
                loss, tokens = step_gradients(model, rows, run, step)
        else:
            loss, tokens = step_gradients(model, rows, run, step)
        limit = run["max_grad_norm"] or math.inf
        norm = torch.nn.utils.clip_grad_norm_(params.values(), limit, foreach=False).item()
        steps.append(
            dict(
                step=step,
                loss=loss,
                grad_norm=norm,
                learning_rate=optimizer.param_groups[0]["lr"],
                tokens=tokens,
            )
        )
        optimizer.step()
        scheduler.step()
    return steps, {n: p.detach().clone() for n, p in params.items()}


# --- tolerances ---

NOISE, NOISY_RUNS = 5e-7, 4
EXACT_FACTOR, NOISE_FACTOR = 30.0, 3.0
FLOOR = dict(loss=1e-5, norm=5e-5, update=5e-4, element_of_rate=0.05)


def length(t):
    return t.double().norm().item()


def drift(reference, other, start):
    """How far another way to compute the case ends from the reference."""
    (steps, final), (steps2, final2) = reference, other
    updates = {n: max(length(final[n] - start[n]), 1e-30) for n in final}
    return dict(
        loss=max(abs(a["loss"] - b["loss"]) for a, b in zip(steps, steps2)),
        norm=max(
            abs(a["grad_norm"] - b["grad_norm"]) / max(a["grad_norm"], 1e-12)
            for a, b in zip(steps, steps2)
        ),
        element=max((final[n].double() - final2[n].double()).abs().max().item() for n in final),
        update={n: length(final[n].double() - final2[n].double()) / updates[n] for n in final},
    )


def worst(drifts):
    out = {k: max(d[k] for d in drifts) for k in ("loss", "norm", "element")}
    out["update"] = {n: max(d["update"][n] for d in drifts) for n in drifts[0]["update"]}
    return out


def tolerances(run, exact, noisy, start, final):
    over = lambda pick, floor: max(floor, EXACT_FACTOR * pick(exact), NOISE_FACTOR * pick(noisy))
    tol = dict(
        loss_abs=over(lambda d: d["loss"], FLOOR["loss"]),
        grad_norm_rel=over(lambda d: d["norm"], FLOOR["norm"]),
        learning_rate_rel=1e-6,
        weights_abs=over(lambda d: d["element"], FLOOR["element_of_rate"] * run["learning_rate"]),
    )
    tensors = {
        n: dict(
            update_l2=length(final[n] - start[n]),
            tol_rel_l2=over(lambda d: d["update"][n], FLOOR["update"]),
        )
        for n in final
    }
    return tol, tensors


# --- a case's files ---


def nine_digits(x):
    if isinstance(x, dict):
        return {k: nine_digits(v) for k, v in x.items()}
    if isinstance(x, list):
        return [nine_digits(v) for v in x]
    return float(f"{x:.9g}") if isinstance(x, float) else x


def json_lines(entries, close):
    return ",\n".join("  " + e for e in entries) + "\n " + close


def write_expected(path, facts, steps, tol, drifts, tensors):
    """JSON with one step or tensor a line."""
    facts, steps, tol, drifts, tensors = (
        nine_digits(x) for x in (facts, steps, tol, drifts, tensors)
    )
    rows = [json.dumps(k) + ": " + json.dumps(v) for k, v in facts.items()]
    rows += ['"tolerances": ' + json.dumps(tol), '"drift": ' + json.dumps(drifts)]
    rows += ['"steps": [\n' + json_lines([json.dumps(s) for s in steps], "]")]
    rows += [
        '"tensors": {\n'
        + json_lines([f"{json.dumps(n)}: {json.dumps(t)}" for n, t in tensors.items()], "}")
    ]
    path.write_text("{\n " + ",\n ".join(rows) + "\n}\n")


def make_case(root, seed, name, family, config, run, rows):
    gen = torch.Generator().manual_seed(seed_for(seed, name, "weights"))
    case_dir, run, rows = root / name, BASE_RUN | run, BASE_ROWS | rows
    shutil.rmtree(case_dir, ignore_errors=True)
    case_dir.mkdir(parents=True)
    make_model(case_dir / "model", family, config, gen)
    if run["mode"] == "lora":
        make_adapter(case_dir, run, gen)
    data = make_rows(
        random.Random(seed_for(seed, name, "data")),
        rows["count"],
        rows["masked"],
        run["max_seq_length"],
        (BASE_CONFIG | config)["vocab_size"],
    )
    (case_dir / "run.yaml").write_text(yaml.safe_dump(run, sort_keys=False))
    (case_dir / "train.jsonl").write_text(
        "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in data)
    )

    reference = run_case(case_dir, run, data)
    exact = worst(
        [
            drift(reference, other, trained_start(case_dir, run))
            for other in (
                run_case(case_dir, run, data, torch.float64),
                run_case(case_dir, run, data, attention="eager"),
            )
        ]
    )
    noisy = worst(
        [
            drift(
                reference,
                run_case(case_dir, run, data, torch.float64, noise=i),
                trained_start(case_dir, run),
            )
            for i in range(NOISY_RUNS)
        ]
    )
    start, (steps, final) = trained_start(case_dir, run), reference
    tol, tensors = tolerances(run, exact, noisy, start, final)
    whole = load(case_dir, run | dict(mode="full", freeze_layers=0), torch.float32, "sdpa")
    facts = dict(
        case=name,
        family=family,
        mode=run["mode"],
        param_count=sum(p.numel() for p in whole.parameters()),
        trainable_param_count=sum(p.numel() for p in final.values()),
    )
    summary = {
        k: {m: max(v.values()) if isinstance(v, dict) else v for m, v in d.items()}
        for k, d in dict(exact=exact, noisy=noisy).items()
    }
    write_expected(case_dir / "expected.json", facts, steps, tol, summary, tensors)
    save_file({n: t.contiguous() for n, t in final.items()}, case_dir / "expected.safetensors")
    print(
        f"{name}: loss {steps[0]['loss']:.4f} -> {steps[-1]['loss']:.4f}, drift of updates at most "
        f"{summary['exact']['update']:.1e}"
    )


def trained_start(case_dir, run):
    return {
        n: p.detach().clone()
        for n, p in trainable(load(case_dir, run, torch.float32, "sdpa")).items()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case in CASES:
        if not args.only or case[0] in args.only.split(","):
            make_case(args.out, args.seed, *case)


if __name__ == "__main__":
    main()
