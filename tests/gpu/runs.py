"""Parts of the report that are training runs: memory, the published samples, speed."""
import json
import math
import random
import shutil

from machine import CONFIGS, FAILED, OK, ROOT, run

STEPS = 6


class Shape:
    def __init__(self, model, mode, batch, length, recompute, **more):
        self.model, self.mode, self.batch, self.length = model, mode, batch, length
        self.recompute, self.more = recompute, more

    def key(self):
        more = "".join(f" {k}={v}" for k, v in sorted(self.more.items()))
        name = self.model.rsplit("/", 1)[-1]
        return f"{name} {self.mode} {self.batch}x{self.length} {self.recompute}{more}"

    def facts(self):
        return {"model": self.model, "mode": self.mode, "batch": self.batch,
                "length": self.length, "recompute": self.recompute, "more": self.more}

    def keys(self):
        """Of the configuration, besides those of every run."""
        keys = {"mode": self.mode, "batch_size": self.batch, "max_seq_length": self.length,
                "gradient_checkpointing": self.recompute}
        keys.update({"master_weights": "false"} if self.mode == "full" else {"lora_r": 16})
        keys.update(self.more)
        return keys


# Planned, allocated and measured bytes of each; from small to large.
MEMORY = [
    Shape("SmolLM2-135M", "full", 8, 1024, "none"),
    Shape("Qwen2.5-7B", "qlora", 4, 2048, "full"),
    Shape("Llama-3.2-1B", "full", 4, 2048, "full"),
    Shape("Llama-3.1-8B", "qlora", 2, 4096, "full"),
    Shape("Qwen2.5-7B", "lora", 4, 2048, "full"),
    Shape("Llama-3.2-3B", "full", 1, 2048, "full"),
    Shape("Qwen2.5-14B", "qlora", 1, 4096, "full"),
    Shape("SmolLM2-135M", "lora", 4, 2048, "full"),
    Shape("Qwen2.5-0.5B", "full", 4, 1024, "none"),
    Shape("Qwen2.5-0.5B", "full", 8, 512, "full", optimizer="adamw_8bit"),
    Shape("Qwen2.5-0.5B", "lora", 2, 4096, "full"),
    Shape("Qwen2.5-1.5B", "full", 2, 2048, "full", master_weights="true"),
    Shape("Qwen2.5-1.5B", "lora", 4, 2048, "none"),
    Shape("Qwen2.5-1.5B", "qlora", 4, 2048, "light"),
    Shape("Llama-3.2-1B", "lora", 1, 4096, "none"),
    Shape("Llama-3.2-3B", "lora", 4, 2048, "full"),
    Shape("SmolLM2-1.7B", "full", 4, 1024, "light"),
    Shape("Phi-4-mini", "lora", 2, 2048, "full"),
    Shape("Qwen3-1.7B", "full", 2, 2048, "every_2"),
]
# Beside PyTorch, but for qlora, whose 4-bit kernels are another package's.
SPEED = [
    Shape("Llama-3.1-8B", "lora", 4, 2048, "full"),
    Shape("Llama-3.2-3B", "full", 4, 2048, "full"),
    Shape("Llama-3.1-8B", "qlora", 4, 2048, "full"),
    Shape("Qwen2.5-0.5B", "full", 8, 2048, "none"),
    Shape("Llama-3.2-1B", "full", 8, 2048, "none"),
    Shape("Qwen2.5-7B", "full", 2, 2048, "full", optimizer="adamw_8bit"),
    Shape("Qwen2.5-14B", "qlora", 1, 4096, "full"),
    Shape("Llama-3.2-3B", "lora", 1, 16384, "full"),
]
# Dense bf16 peak in FLOP/s, NVIDIA's data sheets, SXM parts.
PEAK = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "4090": 165.2e12, "B200": 2250e12}


def config_path(model):
    """Of a model of tests/model/configs, or of a directory."""
    return (CONFIGS / model) if (CONFIGS / model).exists() else model


def vocabulary(model):
    config = json.loads((ROOT / config_path(model) / "config.json").read_text())
    return config["vocab_size"]


def write_data(path, length, rows, vocab):
    source = random.Random(1)
    with open(path, "w") as f:
        for _ in range(rows):
            ids = [source.randrange(vocab) for _ in range(length)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def data_of(scratch, model, length):
    vocab = min(32000, vocabulary(model))
    path = scratch / f"data-{vocab}-{length}.jsonl"
    if not path.exists():
        write_data(path, length, 16, vocab)
    return path


def write_job(scratch, model, keys):
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    lines = {
        "model_config": config_path(model), "init": "random", "dtype": "bf16", "max_steps": 20,
        "learning_rate": "1e-5" if keys["mode"] == "full" else "1e-3", "warmup_steps": 0,
        "lr_scheduler": "constant", "device": "cuda", "output_dir": out, "probe_steps": STEPS,
        "preflight": "warn", **keys}
    job = scratch / "run.yaml"
    job.write_text("".join(f"{k}: {v}\n" for k, v in lines.items()) +
                   f"datasets:\n  - path: {data_of(scratch, model, keys['max_seq_length'])}\n"
                   "    format: tokens\n")
    return job


def train(machine, scratch, model, keys, seconds):
    """Steps on the longest samples, undone afterwards: a row with what the trainer says of them."""
    job = write_job(scratch, model, keys)
    out = run([machine.plimsoll, "train", job, "--probe", "--json", "--no-progress"], seconds,
              machine.env)
    row = out.row()
    probes = out.lines("probe")
    if probes:
        row.update(probes[-1])
        row["computed_tokens"] = keys["batch_size"] * keys["max_seq_length"]
        row["tokens_per_second"] = row["computed_tokens"] / row["seconds_per_step"]
        row["checks"] = checks(row, keys)
        row.update(command_seconds=row["seconds"])
    elif row["status"] == OK:
        row["status"] = FAILED
        row["tail"] = "no probe was reported: " + out.text[-600:]
    return row


def checks(row, keys):
    """What must hold of a run besides its exit status; the names of what does not."""
    numbers = [row[k] for k in ("first_loss", "last_loss", "grad_norm")]
    finite = all(isinstance(x, (int, float)) and math.isfinite(x) for x in numbers)
    bad = {
        "planned is not allocated": row["planned_peak_bytes"] != row["allocated_peak_bytes"],
        "loss or norm is not finite": not finite,
        "loss does not fall": finite and row["last_loss"] >= row["first_loss"],
        "rows are not full": row["longest_sample_tokens"] != keys["max_seq_length"],
        "prediction is off by over 1 %":
            abs(row["predicted_process_bytes"] / (row["measured_peak_bytes"] or 1) - 1) > 0.01}
    return [name for name, is_bad in bad.items() if is_bad]


# --- memory ---------------------------------------------------------------------------------------

def memory(machine, scratch, shape, seconds):
    row = shape.facts()
    row.update(train(machine, scratch, shape.model,
                     {"full_ft_ceiling_billions": 100, **shape.keys()}, seconds))
    return row


# --- published samples ----------------------------------------------------------------------------

def variant(published, suffix, old, new):
    return {**published, "id": published["id"] + suffix,
            "estimate_vram": published["estimate_vram"].replace(old, new)}


def samples(machine):
    """The table of the rule of thumb; its LoRA rows again over 4-bit weights, which is what their
    figures were published for, and offloading with states in 8 bits, which less memory holds."""
    out = run([machine.plimsoll, "estimate-vram", "--rule-of-thumb", "--table", "samples",
               "--json"], 30, machine.env)
    answers = out.lines()
    if out.exit != 0 or not answers:
        raise RuntimeError("the table of samples did not come: " + out.text[-600:])
    rows = answers[-1]["rows"]
    return rows + [variant(r, ", 4-bit", "--mode lora", "--mode qlora") for r in rows
                   if "--mode lora" in r["estimate_vram"]] + [
        variant(r, ", 8-bit states", "--full-ft-offload", "--full-ft-offload --optimizer "
                "adamw_8bit --master-weights false") for r in rows
        if "--full-ft-offload" in r["estimate_vram"]]


def keys_of(words):
    """Model, and keys of a configuration, from the words of estimate-vram; the card is real."""
    model, *rest = words.split()
    keys = {}
    while rest:
        name = rest.pop(0)[2:].replace("-", "_")
        keys[name] = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
    keys.pop("vram_gb", None)
    for name in ("batch_size", "max_seq_length"):
        keys[name] = int(keys.get(name, {"batch_size": 1, "max_seq_length": 2048}[name]))
    return model, keys


def sample_facts(published):
    return {"id": published["id"], "says": published["document_says"],
            "published_gb": published["document_total_gb"], "command": published["estimate_vram"]}


def sample(machine, scratch, published, seconds):
    model, keys = keys_of(published["estimate_vram"])
    row = sample_facts(published)
    row.update(train(machine, scratch, model, {**keys, "preflight": "enforce"}, seconds))
    for error in ("RUNTIME_FULL_FT_MODEL_TOO_LARGE", "RUNTIME_DOES_NOT_FIT"):
        if row["exit"] == 3 and error in row["tail"]:
            row.update(status=OK, refused=error)
            del row["tail"]
            break
    return row


# --- speed ----------------------------------------------------------------------------------------

def flops_per_token(machine, shape):
    """2 a weight of a product forward, 2 for the gradient of its input, 2 for its own where it
    trains. Attention, adapters and recomputation do not count. None: there was no answer."""
    if not machine.plimsoll.exists():
        return None
    out = run([machine.plimsoll, "estimate-vram", config_path(shape.model), "--json", "--mode",
               "lora", "--batch-size", "1", "device=cpu"], 30, machine.env)
    config = json.loads((ROOT / config_path(shape.model) / "config.json").read_text())
    answers = out.lines()
    params = answers[-1].get("param_count") if answers else None
    if not params:
        return None
    embedding = config["vocab_size"] * config["hidden_size"]
    if not config.get("tie_word_embeddings", False):
        params -= embedding
    return (6 if shape.mode == "full" else 4) * params


def utilisation(gpu, flops, row):
    peak = next((v for k, v in PEAK.items() if k in gpu["name"]), None)
    if not (flops and peak and row.get("tokens_per_second")):
        return {}
    return {"mfu": flops * row["tokens_per_second"] / peak}


def speed(machine, scratch, gpu, shape, seconds):
    row = memory(machine, scratch, shape, seconds)
    row["flops_per_token"] = flops_per_token(machine, shape)
    row.update(utilisation(gpu, row["flops_per_token"], row))
    return row


def speed_pytorch(machine, gpu, shape, seconds):
    """The same shape in PyTorch."""
    out = run([machine.python, ROOT / "tests/gpu/pytorch_run.py", *machine.torch_arguments(),
               config_path(shape.model), shape.mode, shape.batch, shape.length, shape.recompute,
               STEPS], seconds)
    row = {**shape.facts(), **out.row()}
    answers = out.lines()
    if row["status"] == OK and answers:
        row.update(answers[-1])
        row.update(utilisation(gpu, flops_per_token(machine, shape), row))
    elif row["status"] == OK:
        row.update(status=FAILED, tail=out.text[-600:])
    return row
