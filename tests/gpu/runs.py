"""Parts of the report that are training runs: memory, the published samples, speed."""
import json
import math
import os
import random
import re
import shutil

from command import FAILED, OK, ROOT, run
from machine import CONFIGS

STEPS = 6
FEW_STEPS = 2  # where a step takes long or much of the host's memory
WARM_UP_SECONDS = 60
GIB = 1 << 30
# The names that a row has for the figures of a run.
NAMES = {"planned_peak_bytes": "planned_bytes", "allocated_peak_bytes": "allocated_bytes",
         "measured_peak_bytes": "measured_bytes"}


class Shape:
    def __init__(self, model, mode, batch, length, recompute, accumulation=1, steps=STEPS, **more):
        self.model, self.mode, self.batch, self.length = model, mode, batch, length
        self.recompute, self.more = recompute, more
        self.accumulation, self.steps = accumulation, steps

    def key(self):
        more = "".join(f" {k}={v}" for k, v in sorted(self.more.items()))
        more += f" accumulation={self.accumulation}" if self.accumulation > 1 else ""
        name = self.model.rsplit("/", 1)[-1]
        return f"{name} {self.mode} {self.batch}x{self.length} {self.recompute}{more}"

    def facts(self):
        return {"model": self.model, "mode": self.mode, "batch": self.batch,
                "length": self.length, "recompute": self.recompute, "more": self.more,
                "accumulation": self.accumulation}

    def keys(self):
        """Of the configuration, besides those of every run."""
        keys = {"mode": self.mode, "batch_size": self.batch, "max_seq_length": self.length,
                "gradient_checkpointing": self.recompute}
        keys.update({"master_weights": "false"} if self.mode == "full" else {"lora_r": 16})
        if self.accumulation > 1:
            keys["gradient_accumulation_steps"] = self.accumulation
        if self.steps != STEPS:
            keys["probe_steps"] = self.steps
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
# Compared with PyTorch, but for qlora, whose 4-bit kernels are another package's. `auto` recomputes what
# the card at hand makes necessary; the first three are what a reader looks for.
SPEED = [
    Shape("Qwen2.5-7B", "full", 2, 2048, "auto", optimizer="adamw_8bit"),
    Shape("Llama-3.1-8B", "lora", 4, 2048, "auto"),
    Shape("Llama-3.1-8B", "qlora", 4, 2048, "auto"),
    Shape("Llama-3.2-3B", "full", 4, 2048, "auto"),
    Shape("Qwen2.5-0.5B", "full", 8, 2048, "none"),
    Shape("Llama-3.2-1B", "full", 8, 2048, "none"),
    Shape("Llama-3.1-8B", "lora", 4, 2048, "full"),
    Shape("Llama-3.1-8B", "qlora", 4, 2048, "full"),
    Shape("Qwen2.5-14B", "qlora", 1, 4096, "auto"),
    Shape("Llama-3.2-3B", "lora", 1, 16384, "full"),
]
# The row of LLMQ's table, as near as our keys come to it.
LLMQ = Shape("Qwen2.5-7B", "full", 4, 1024, "none", accumulation=128, steps=FEW_STEPS,
             optimizer="adamw_8bit", gradient_dtype="bf16")
LLMQ_SAYS = {"who": "LLMQ", "gpu": "H100", "tokens_per_second": 13900, "mfu_attention": 0.603,
             "differs": "moments in 8 bits, theirs are bf16; no optimizer of ours keeps bf16 ones"}
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


def context_source(machine, job):
    """Where the prediction of a run takes the context from: `measured` by an earlier run of this
    program, `profiled` by the table of cards, or the default. None: there was no answer."""
    out = run([machine.plimsoll, "estimate-vram", job, "--json"], 30, machine.env)
    answers = out.lines()
    return answers[-1].get("provenance", {}).get("context") if answers else None


def warm_up(machine, scratch):
    """A short run that measures what the driver takes here, before the first whose prediction is
    recorded. Its memory does not travel, so each call begins with one."""
    if not machine.is_warm:
        shape = machine.warm_up_shape
        job = write_job(scratch, shape.model, {**shape.keys(), "probe_steps": FEW_STEPS})
        run([machine.plimsoll, "train", job, "--probe", "--json", "--no-progress"], WARM_UP_SECONDS,
            machine.env)
        machine.is_warm = True


def train(machine, scratch, model, keys, seconds):
    """Steps on the longest samples, undone afterwards: a row with what the trainer says of them."""
    job = write_job(scratch, model, keys)
    source = context_source(machine, job)
    out = run([machine.plimsoll, "train", job, "--probe", "--json", "--no-progress"], seconds,
              machine.env)
    row = out.row(context_from=source)
    probes = out.lines("probe")
    if probes:
        row.update({NAMES.get(k, k): v for k, v in probes[-1].items()})
        row["computed_tokens"] = (keys["batch_size"] * keys["max_seq_length"] *
                                  keys.get("gradient_accumulation_steps", 1))
        row["tokens_per_second"] = row["computed_tokens"] / row["seconds_per_step"]
        row["level"] = level_of(out.text, keys)
        row["checks"] = checks(row, keys)
        row.update(command_seconds=row["seconds"])
    elif row["status"] == OK:
        row["status"] = FAILED
        row["tail"] = "no probe was reported: " + out.text[-600:]
    return row


def level_of(text, keys):
    """Of recomputation: what was asked for, or what `auto` became."""
    asked = keys.get("gradient_checkpointing", "full")
    found = re.search(r"gradient_checkpointing: auto is `([^`]+)`", text)
    return found.group(1) if asked == "auto" and found else asked


def checks(row, keys):
    """What must hold of a run besides its exit status; the names of what does not. A context that
    only a table knows may be off by more, and the row says that it was one."""
    numbers = [row[k] for k in ("first_loss", "last_loss", "grad_norm")]
    finite = all(isinstance(x, (int, float)) and math.isfinite(x) for x in numbers)
    measured = row["measured_bytes"]
    bad = {
        "planned is not allocated": row["planned_bytes"] != row["allocated_bytes"],
        "loss or norm is not finite": not finite,
        "loss does not fall": finite and row["last_loss"] >= row["first_loss"],
        "rows are not full": row["longest_sample_tokens"] != keys["max_seq_length"],
        "the driver does not tell what the process holds": not measured,
        "prediction is off by over 1 %": measured and row["context_from"] == "measured" and
            abs(row["predicted_process_bytes"] / measured - 1) > 0.01}
    return [name for name, is_bad in bad.items() if is_bad]


# --- memory ---------------------------------------------------------------------------------------

def memory(machine, scratch, shape, seconds):
    warm_up(machine, scratch)
    row = shape.facts()
    row.update(train(machine, scratch, shape.model,
                     {"full_ft_ceiling_billions": 100, **shape.keys()}, seconds))
    return row


def first_prediction(machine, scratch, shape, seconds):
    """As on a GPU that has never been seen: the context comes from the table of cards."""
    shutil.rmtree(machine.env["XDG_CACHE_HOME"], ignore_errors=True)
    row = {**shape.facts(), **train(machine, scratch, shape.model, shape.keys(), seconds)}
    machine.is_warm = row["status"] == OK
    return row


# --- published samples ----------------------------------------------------------------------------

def variant(published, suffix, old, new):
    return {**published, "id": published["id"] + suffix,
            "estimate_vram": published["estimate_vram"].replace(old, new)}


# States in fp32 of the largest published sample take 113 GiB of the host as planned.
OFFLOAD_HOST_BYTES = 160 * GIB


def host_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_offloaded(published):
    return "--full-ft-offload" in published["estimate_vram"]


def samples(machine):
    """The table of the rule of thumb; its LoRA rows again over 4-bit weights, which is what their
    figures were published for, and offloading with states in 8 bits, which less memory holds: with
    others only where the host can lose what they take."""
    out = run([machine.plimsoll, "estimate-vram", "--rule-of-thumb", "--table", "samples",
               "--json"], 30, machine.env)
    answers = out.lines()
    if out.exit != 0 or not answers:
        raise RuntimeError("the table of samples did not come: " + out.text[-600:])
    rows = answers[-1]["rows"]
    offloaded = [r for r in rows if is_offloaded(r)]
    return [r for r in rows if r not in offloaded or host_bytes() >= OFFLOAD_HOST_BYTES] + [variant(r, ", 4-bit", "--mode lora", "--mode qlora") for r in rows
                   if "--mode lora" in r["estimate_vram"]] + [
        variant(r, ", 8-bit states", "--full-ft-offload", "--full-ft-offload --optimizer "
                "adamw_8bit --master-weights false") for r in offloaded]


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
    if is_offloaded(published):
        keys["probe_steps"] = FEW_STEPS
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
    """Of the products: 2 a weight forward, 2 for the gradient of its input, 2 for its own where it
    trains. And of causal attention, forward and twice that backward. Adapters and recomputation
    do not count. None: there was no answer."""
    if not machine.plimsoll.exists():
        return None
    out = run([machine.plimsoll, "estimate-vram", config_path(shape.model), "--json", "--mode",
               "lora", "--batch-size", "1", "device=cpu"], 30, machine.env)
    config = json.loads((ROOT / config_path(shape.model) / "config.json").read_text())
    answers = out.lines()
    params = answers[-1].get("param_count") if answers else None
    if not params:
        return None
    if not config.get("tie_word_embeddings", False):
        params -= config["vocab_size"] * config["hidden_size"]
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    attention = (6 * config["num_hidden_layers"] * config["num_attention_heads"] * size *
                 shape.length)
    return {"products": (6 if shape.mode == "full" else 4) * params, "attention": attention}


def utilisation(gpu, flops, row):
    """`mfu`: of the products alone; `mfu_attention`: with causal attention."""
    peak = next((v for k, v in PEAK.items() if k in gpu["name"]), None)
    if not (flops and peak and row.get("tokens_per_second")):
        return {}
    share = row["tokens_per_second"] / peak
    return {"mfu": flops["products"] * share,
            "mfu_attention": (flops["products"] + flops["attention"]) * share}


def speed(machine, scratch, gpu, shape, seconds):
    row = memory(machine, scratch, shape, seconds)
    row["flops_per_token"] = flops_per_token(machine, shape)
    row.update(utilisation(gpu, row["flops_per_token"], row))
    return row


def speed_beside(machine, scratch, gpu, shape, says, seconds):
    """A row that another program's table has."""
    return {**speed(machine, scratch, gpu, shape, seconds), "published": says}


def speed_pytorch(machine, gpu, shape, seconds):
    """The same shape in PyTorch."""
    out = run([machine.python, ROOT / "tests/gpu/pytorch_run.py", *machine.torch_arguments(),
               config_path(shape.model), shape.mode, shape.batch, shape.length, shape.recompute,
               STEPS], seconds)
    row = {**shape.facts(), **out.row()}
    answers = out.lines()
    if row["status"] == OK and answers:
        row.update({"measured_bytes" if k == "process_bytes" else k: v
                    for k, v in answers[-1].items()})
        row.update(utilisation(gpu, flops_per_token(machine, shape), row))
    elif row["status"] == OK:
        row.update(status=FAILED, tail=out.text[-600:])
    return row
