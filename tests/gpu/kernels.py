"""Parts of the report that are measured op by op: attention, products, what memory allows, and the
time between kernels. The figures of an op - FLOPs, bytes - are those of the plan."""
import csv
import errno
import json
import shutil

from command import FAILED, OK, ROOT, need_built, run
from runs import Shape, config_path

# Bound by memory when written well; the rest are products and attention, or read what they choose.
STREAMING = ["rmsnorm", "add_rmsnorm", "renorm", "rmsnorm_bwd", "qk_norm", "qk_norm_bwd", "rope",
             "swiglu", "swiglu_bwd", "cross_entropy", "gather_add", "scatter_rows", "bias_grad",
             "square_sum", "adamw", "adamw_8bit", "dequant4"]

# Whole steps. `layers`: only so many of the model's, for the kernels of a layer at full size.
STEPS = [
    (Shape("Qwen2.5-7B", "full", 4, 2048, "none"), 2),
    (Shape("Qwen2.5-7B", "qlora", 1, 2048, "full"), None),
    (Shape("Qwen2.5-0.5B", "full", 4, 1024, "none"), None),
    (Shape("Qwen2.5-7B", "full", 4, 2048, "light", optimizer="adamw_8bit"), 2),
    (Shape("Llama-3.2-3B", "full", 1, 2048, "full"), None),
]
PRODUCTS = [(Shape("Qwen2.5-7B", "full", 4, 2048, "none"), 2),
            (Shape("Qwen2.5-7B", "lora", 4, 2048, "none"), 2)]

# (tokens of a sequence, query heads, heads of keys and values, head size), 32768 tokens in all
ATTENTION = [(length, heads, kv_heads, size)
             for length in (2048, 4096, 8192, 32768)
             for heads, kv_heads, size in ((32, 8, 128), (32, 8, 64))] + [(4096, 32, 32, 128)]
ATTENTION_TOKENS = 32768


def key(shape, layers):
    return f"{shape.key()}, layers {layers or 'all'}"


def write_config(scratch, name, config):
    directory = scratch / name
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return directory / "config.json"


def config_of(scratch, model, layers):
    """A model's config.json, or the same with fewer layers."""
    path = ROOT / config_path(model) / "config.json"
    if not layers:
        return path
    config = json.loads(path.read_text())
    config["num_hidden_layers"] = layers
    return write_config(scratch, f"{path.parent.name}-{layers}", config)


def measure(machine, what, config, keys, seconds):
    out = run_bench(machine, [what, config, *words_of(keys)], seconds)
    return out, out.row()


def words_of(keys):
    return [f"{k}={v}" for k, v in {"dtype": "bf16", **keys}.items()]


def run_bench(machine, words, seconds):
    return run([machine.bench, *words], seconds, machine.env)


def copy(machine, seconds):
    out = run_bench(machine, ["copy"], seconds)
    row = out.row()
    for line in out.lines("copy"):
        row.update(line)
    return row


def reported(machine, seconds):
    """Faults of libraries and drivers that others have met; one that is here too fails the row."""
    out = run_bench(machine, ["reported"], seconds)
    row = out.row(lost=out.lines("lost"))
    for event in ("ones", "capture", "memory"):
        row[event] = (out.lines(event) or [{}])[0]
    if row["status"] == OK:
        row.update(judge_reported(row))
    return row


def judge_reported(row):
    found = [text for text, is_there in (
        (f"{row['ones'].get('wrong')} of {row['ones'].get('products')} products of ones lose terms",
         row["ones"].get("wrong") != 0),
        ("cuBLASLt cannot be asked while a graph is recorded", not row["capture"].get("works")),
        ("the driver gives memory that the card does not have",
         row["memory"].get("over_commits") is not False)) if is_there]
    return {"status": FAILED, "tail": "; ".join(found)} if found else {}


def step(machine, scratch, shape, layers, seconds):
    out, row = measure(machine, "ops", config_of(scratch, shape.model, layers), shape.keys(),
                       seconds)
    row.update(shape.facts(), layers=layers, ops_of=out.lines("op"))
    for line in out.lines("step"):
        row.update(step=line)
    if row["status"] == OK and not row.get("step", {}).get("finite"):
        row["checks"] = ["the norm of the gradients is not finite"]
    return row


def products(machine, scratch, shape, layers, seconds):
    out, row = measure(machine, "products", config_of(scratch, shape.model, layers), shape.keys(),
                       seconds)
    row.update(shape.facts(), layers=layers, products=out.lines("product"))
    return row


def attention_config(scratch, shape):
    length, heads, kv_heads, size = shape
    return write_config(scratch, "attention-%d-%d-%d-%d" % shape, {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": heads * size, "intermediate_size": 256, "num_hidden_layers": 1,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": size,
        "vocab_size": 512, "max_position_embeddings": length, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
        "initializer_range": 0.02, "torch_dtype": "bfloat16"})


def attention_facts(shape, tokens):
    return {**dict(zip(("length", "heads", "kv_heads", "size"), shape)),
            "batch": tokens // shape[0]}


def attention_keys(shape, tokens):
    return {"mode": "full", "batch_size": tokens // shape[0], "max_seq_length": shape[0],
            "master_weights": "false", "gradient_checkpointing": "none"}


def attention(machine, scratch, shape, tokens, seconds):
    """Forward and backward of one shape: seconds and planned FLOPs."""
    out, row = measure(machine, "ops", attention_config(scratch, shape),
                       attention_keys(shape, tokens), seconds)
    row.update(attention_facts(shape, tokens))
    for op in out.lines("op"):
        if op["op"] in ("attention", "attention_bwd"):
            row[op["op"]] = {"ms": op["ms"] / op["calls"], "flops": op["flops"] / op["calls"]}
    if row["status"] == OK and "attention_bwd" not in row:
        row["status"] = FAILED
    return row


def attention_pytorch(machine, shapes, tokens, seconds):
    """All shapes in one process: importing takes longer than measuring."""
    words = [",".join(str(n) for n in (tokens // s[0], *s)) for s in shapes]
    out = run([machine.python, ROOT / "tests/gpu/pytorch_attention.py",
               *machine.torch_arguments(), *words], seconds)
    row = {**out.row(), "shapes": out.lines()}
    if row["status"] == OK:
        row.update(judge_attention(row["shapes"], len(shapes)))
    return row


def judge_attention(answers, asked):
    """A back-end that takes none of the shapes has not been measured."""
    took = [[n for n in ("flash", "cudnn") if "ms" in a.get(n, {})] for a in answers]
    if not any(took):
        why = {a.get(n, {}).get("refused", "no answer") for a in answers for n in ("flash", "cudnn")}
        return {"status": FAILED, "tail": "every shape was refused: " + "; ".join(sorted(why))}
    refused = asked - sum(bool(t) for t in took)
    return {"checks": [f"{refused} of {asked} shapes were refused"]} if refused else {}


# --- counters of the hardware ---------------------------------------------------------------------

SECTIONS = ["SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "WarpStateStats", "LaunchStats"]
# (what, kernels by name, launches, step): attention forward and backward, and the largest norms.
PROFILES = [
    ("attention, forward and backward", "forward_tensor|keys_tensor|queries_tensor", 3,
     (4096, 32, 8, 128)),
    ("norms of Qwen2.5-7B, forward and backward", "forward_norms|backward_norms", 8,
     (Shape("Qwen2.5-7B", "full", 4, 2048, "none"), 2)),
]


def profile(machine, scratch, what, tokens, seconds):
    """Some launches under Nsight Compute; the clocks of the card stay as they are."""
    name, kernels, launches, step_of = what
    if not shutil.which("ncu"):
        raise FileNotFoundError(errno.ENOENT, "not installed", "ncu")
    need_built(machine.bench)  # the profiler would say so, and fail
    if isinstance(step_of[0], Shape):
        config = config_of(scratch, step_of[0].model, step_of[1])
        keys = step_of[0].keys()
    else:
        config = attention_config(scratch, step_of)
        keys = attention_keys(step_of, tokens)
    sections = [word for s in SECTIONS for word in ("--section", s)]
    out = run(["ncu", "--clock-control", "none", "--csv", *sections, "--kernel-name",
               f"regex:{kernels}", "--launch-count", launches, machine.bench, "ops", config,
               *words_of(keys)], seconds, machine.env)
    row = out.row(profile=name, counters=counters(out.text))
    if row["status"] == OK and not row["counters"]:
        row.update(status=FAILED, tail="no counter was read: " + out.text[-600:])
    return row


def counters(text):
    """A dictionary of each launch from the table among what ncu and the program said."""
    lines = [x for x in text.splitlines() if x.startswith('"')]
    launches = {}
    for line in csv.DictReader(lines):
        launch = launches.setdefault(line.get("ID"), {"kernel": line.get("Kernel Name"),
                                                      "grid": line.get("Grid Size")})
        unit = line.get("Metric Unit")
        launch[line.get("Metric Name")] = f"{line.get('Metric Value')} {unit}" if unit else \
            line.get("Metric Value")
    return list(launches.values())
