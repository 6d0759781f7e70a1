"""What Plimsoll writes, opened by transformers and peft, and the other way round.

For every family: a full model, a LoRA adapter, a merged model and its shards are loaded without a
missing or unexpected key, and give the loss that Plimsoll computes for the same tokens. Adapters
that peft wrote are continued by Plimsoll; those it must not read are refused by the key.

PLIMSOLL names the binary. Losses are means over 100 tokens of fp32 models: TOLERANCE is some thirty
times the difference between two orders of summation.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

try:
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
    from peft.utils import load_peft_weights, set_peft_model_state_dict
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print("skipped: needs PLIMSOLL_PYTHON, an interpreter with torch, transformers and peft "
          f"({error})")
    sys.exit(77)

TOLERANCE = 1e-5
ROWS, LENGTH, VOCABULARY = 4, 26, 64
SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=64,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
SPLIT = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
FAMILIES = {
    "llama": ("Llama", {}, SPLIT),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}, SPLIT),
    "qwen3": ("Qwen3", {"head_dim": 16}, SPLIT),
    "mistral": ("Mistral", {"sliding_window": None}, SPLIT),
    "phi3": ("Phi3", {}, FUSED),
    "smollm3": ("SmolLM3", {}, SPLIT),
}
JOB = f"""datasets: [{{path: train.jsonl, format: tokens}}]
dtype: fp32
device: cpu
threads: 1
shuffle: false
batch_size: {ROWS}
gradient_accumulation_steps: 1
max_seq_length: {LENGTH}
learning_rate: 0.01
lr_scheduler: constant
warmup_steps: 0
seed: 3
"""
failures = []


def check(holds, what):
    if not holds:
        failures.append(what)
        print(f"FAILED {what}", flush=True)


def plimsoll(where, *words, status=0):
    """Runs a command; what it said on stderr."""
    done = subprocess.run([os.environ["PLIMSOLL"], *map(str, words)], cwd=where, text=True,
                          capture_output=True, timeout=900)
    assert done.returncode == status, f"{words}: exit {done.returncode}\n{done.stderr}"
    return done.stderr


def train(where, output, steps, *words):
    """The loss of every step."""
    plimsoll(where, "train", "run.yaml", f"output_dir={output}", f"max_steps={steps}", *words)
    with open(where / output / "train_log.jsonl") as log:
        events = [json.loads(line) for line in log]
    return [e["loss"] for e in events if e["event"] == "step"]


def make_case(where, family, **sizes):
    """A model of random weights and tokens for it."""
    name, more, _ = FAMILIES[family]
    torch.manual_seed(11)
    config = getattr(transformers, name + "Config")(**{**SIZES, **more, **sizes})
    model = getattr(transformers, name + "ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2) if parameter.dim() > 1 else parameter.normal_(1, 0.1)
    model.save_pretrained(where / "model")
    ids = torch.randint(3, VOCABULARY, (ROWS, LENGTH))
    with open(where / "train.jsonl", "w") as rows:
        for row in ids.tolist():
            rows.write(json.dumps({"input_ids": row}) + "\n")
    (where / "run.yaml").write_text(JOB)
    return ids


def loss(model, ids):
    with torch.no_grad():
        logits = model(input_ids=ids).logits.float()
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY),
                                             ids[:, 1:].reshape(-1)).item()


def same(what, torch_loss, own_loss):
    check(abs(torch_loss - own_loss) < TOLERANCE,
          f"{what}: {torch_loss:.8f} in torch, {own_loss:.8f} in plimsoll")


def open_model(path, what):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        check(not info[kind], f"{what}: {kind} {info[kind]}")
    return model.eval()


def open_adapter(base, path, what):
    """The base with the adapter on it; every tensor of the file has its place and no other lacks."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        config = LoraConfig.from_pretrained(path)
    check(not said, f"{what}: {[str(w.message) for w in said]}")
    config.inference_mode = True
    model = PeftModel(open_model(base, what), config)
    result = set_peft_model_state_dict(model, load_peft_weights(str(path)))
    check(not result.unexpected_keys, f"{what}: unexpected {result.unexpected_keys}")
    lacking = [key for key in result.missing_keys if "lora_" in key]
    check(not lacking, f"{what}: missing {lacking}")
    return model.eval()


def check_full(where, family, ids):
    train(where, "full", 2, "mode=full", "model=model")
    own = train(where, "again", 1, "mode=full", "model=full")[0]
    same(f"{family} full", loss(open_model(where / "full", f"{family} full"), ids), own)
    open_model(where / "model", family).save_pretrained(where / "cut", max_shard_size="20KB")
    assert (where / "cut/model.safetensors.index.json").exists()
    own = train(where, "sharded", 1, "mode=full", "model=cut")[0]
    same(f"{family} from shards", loss(open_model(where / "cut", family), ids), own)


def check_lora(where, family, ids):
    words = ("mode=lora", "model=model", "lora_r=4", "lora_alpha=12")
    first, second = train(where, "lora", 2, *words)
    check(abs(first - second) > 1e-3, f"{family} lora: the adapter learned nothing")
    own = train(where, "on", 1, *words, "adapter_path=lora")[0]
    adapted = open_adapter(where / "model", where / "lora", f"{family} lora")
    same(f"{family} lora", loss(adapted, ids), own)
    plimsoll(where, "merge", "--model", "model", "--adapter", "lora", "--output", "merged")
    plimsoll(where, "merge", "--model", "model", "--adapter", "lora", "--output", "pieces",
             "--shard-size", "20KB")
    check((where / "pieces/model.safetensors.index.json").exists(), f"{family}: no shards")
    mixed = adapted.merge_and_unload().state_dict()
    for output in ("merged", "pieces"):
        merged = open_model(where / output, f"{family} {output}")
        same(f"{family} {output}", loss(merged, ids), own)
        for key, value in merged.state_dict().items():
            check(torch.allclose(value, mixed[key], rtol=0, atol=1e-6), f"{family} {output}: {key}")


def check_from_peft(where, family, ids):
    """An adapter of peft: bf16, rank-stabilised, with modules in an order of its own."""
    base = open_model(where / "model", family)
    targets = list(reversed(FAMILIES[family][2]))
    model = get_peft_model(base, LoraConfig(r=3, lora_alpha=5, use_rslora=True,
                                            target_modules=targets, task_type="CAUSAL_LM"))
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(parameter.normal_(0, 0.1).bfloat16().float())
                parameter.data = parameter.data.bfloat16()
    model.save_pretrained(where / "peft")
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.float()
    own = train(where, "continued", 1, "mode=lora", "model=model", "lora_r=3", "lora_alpha=5",
                "use_rslora=true", "adapter_path=peft")[0]
    same(f"{family} from peft", loss(model.eval(), ids), own)
    plimsoll(where, "merge", "--model", "model", "--adapter", "peft", "--output", "mixed")
    same(f"{family} merged from peft", loss(open_model(where / "mixed", family), ids), own)


def modules_of(path):
    """peft saves the weight itself together with an adapter on a head."""
    return {name.rsplit(".lora_", 1)[0] for name in load_file(path / "adapter_model.safetensors")
            if not name.endswith(".base_layer.weight")}


def check_targets(where, ids):
    """Whatever way modules were chosen, peft finds those again that have matrices, and no others."""
    settings = {
        "pattern": (dict(target_modules=r".*\.([02]\.self_attn\.[qk]|1\.mlp\.(up|down))_proj"), 6),
        "layers": (dict(target_modules=["v_proj", "mlp.up_proj"], layers_to_transform=[0, 2]), 4),
        "without": (dict(target_modules=SPLIT, exclude_modules=["1.self_attn.q_proj"]), 20),
        "head": (dict(target_modules=["lm_head", "q_proj"], layers_to_transform=[1, 2]), 3),
        "only-head": (dict(target_modules=["lm_head"]), 1),
        "table": (dict(target_modules=["embed_tokens", "v_proj"]), 4),
        "whole": (dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]), 5),
        "embedding": (dict(target_modules=["lm_head", "v_proj"],
                           modules_to_save=["embed_tokens"]), 5),
    }
    for name, (chosen, count) in settings.items():
        own = {("lora_" if "modules" in k else "") + k: json.dumps(v) for k, v in chosen.items()}
        words = ["mode=lora", "model=model", "lora_r=4", *(f"{k}={v}" for k, v in own.items())]
        train(where, name, 2, *words)
        own = train(where, name + "-on", 1, *words, f"adapter_path={name}")[0]
        adapted = open_adapter(where / "model", where / name, name)
        same(f"targets {name}", loss(adapted, ids), own)
        check(len(modules_of(where / name)) == count, f"{name}: {modules_of(where / name)}")
        model = get_peft_model(open_model(where / "model", name), LoraConfig(
            r=4, task_type="CAUSAL_LM", **chosen))
        model.save_pretrained(where / ("peft-" + name))
        check(modules_of(where / name) == modules_of(where / ("peft-" + name)), f"{name}: others")
        train(where, name + "-peft", 1, *words, "lora_alpha=8", f"adapter_path=peft-{name}")
        plimsoll(where, "merge", "--model", "model", "--adapter", name, "--output", name + "-merged")
        same(f"merged {name}", loss(open_model(where / (name + "-merged"), name), ids), own)
        plimsoll(where, "merge", "--model", "model", "--adapter", "peft-" + name, "--output",
                 name + "-as-it-was")
        same(f"as it was {name}", loss(open_model(where / (name + "-as-it-was"), name), ids),
             loss(open_model(where / "model", name), ids))
    head = torch.randn(VOCABULARY, SIZES["hidden_size"])
    tensors = load_file(where / "peft-head/adapter_model.safetensors")
    tensors["base_model.model.lm_head.base_layer.weight"] = head
    save_file(tensors, where / "peft-head/adapter_model.safetensors")
    said = plimsoll(where, "merge", "--model", "model", "--adapter", "peft-head", "--output", "no",
                    status=5)
    check("is not the weight of this model" in said, f"another head: {said}")
    said = plimsoll(where, "train", "run.yaml", "output_dir=refused", "max_steps=1", "mode=lora",
                    "model=model", "lora_r=4", "lora_alpha=8", "adapter_path=peft-head",
                    "lora_target_modules=lm_head,q_proj", "layers_to_transform=1,2", status=5)
    check("is not the weight of this model" in said, f"another head: {said}")


def check_refusals(where):
    for key, more in {"use_dora": dict(use_dora=True),
                      "rank_pattern": dict(rank_pattern={"q_proj": 2}),
                      "init_lora_weights": dict(init_lora_weights="pissa"),
                      "bias": dict(bias="all")}.items():
        model = get_peft_model(open_model(where / "model", key),
                               LoraConfig(r=4, target_modules=SPLIT, task_type="CAUSAL_LM", **more))
        model.save_pretrained(where / key)
        said = plimsoll(where, "merge", "--model", "model", "--adapter", key, "--output", "no",
                        status=5)
        check(key in said and not (where / "no").exists(), f"{key}: {said}")


def check_gguf(where):
    """The file for llama.cpp, read by its own package where that is installed."""
    try:
        import gguf
    except ImportError:
        print("gguf is not installed: its reader saw no file")
        return
    plimsoll(where, "merge", "--model", "model", "--adapter", "lora", "--gguf", "adapter.gguf")
    reader = gguf.GGUFReader(where / "adapter.gguf")
    tensors = {t.name: torch.tensor(t.data) for t in reader.tensors}
    weights = load_peft_weights(str(where / "lora"))
    b = weights["base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"]
    heads = SIZES["num_attention_heads"]
    moved = b.reshape(heads, 2, b.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(b.shape)
    check(torch.equal(tensors["blk.1.attn_q.weight.lora_b"], moved), "gguf: q is not permuted")
    a = weights["base_model.model.model.layers.2.mlp.down_proj.lora_A.weight"]
    check(torch.equal(tensors["blk.2.ffn_down.weight.lora_a"], a), "gguf: A differs")
    check(len(tensors) == len(weights), "gguf: other tensors")


def check_stored_codes(where):
    """Matrices that bitsandbytes quantised: trained on as they are in the file."""
    try:
        from bitsandbytes.functional import QuantState, dequantize_4bit
    except ImportError:
        print("bitsandbytes is not installed: no file of its codes was read")
        return
    ids = make_case(where, "llama", hidden_size=64, intermediate_size=192)
    for kind, double in (("nf4", True), ("nf4", False), ("fp4", True)):
        name = f"{kind}-{double}"
        config = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double)
        transformers.AutoModelForCausalLM.from_pretrained(
            where / "model", dtype=torch.float32, quantization_config=config
        ).save_pretrained(where / name)
        stored = load_file(where / name / "model.safetensors")
        model = open_model(where / "model", name)
        for key, weight in model.state_dict().items():
            if stored[key].dtype == torch.uint8:
                parts = {k[len(key) + 1:]: v for k, v in stored.items() if k.startswith(key + ".")}
                state = QuantState.from_dict(parts, device="cpu")
                weight.copy_(dequantize_4bit(stored[key], state))
        own = train(where, "out-" + name, 1, "mode=qlora", f"model={name}", f"quant_type={kind}",
                    f"double_quant={str(double).lower()}", "compute_dtype=fp32")[0]
        same(f"codes {name}", loss(model, ids), own)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as name:
            where = pathlib.Path(name)
            ids = make_case(where, family)
            check_full(where, family, ids)
            check_lora(where, family, ids)
            check_from_peft(where, family, ids)
            if family == "llama":
                check_targets(where, ids)
                check_refusals(where)
                check_gguf(where)
        print(f"{family}: done", flush=True)
    with tempfile.TemporaryDirectory() as name:
        where = pathlib.Path(name)
        check_targets(where, make_case(where, "llama", tie_word_embeddings=True))
    with tempfile.TemporaryDirectory() as name:
        check_stored_codes(pathlib.Path(name))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
