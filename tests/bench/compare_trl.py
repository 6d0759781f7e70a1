#!/usr/bin/env python3
"""DPO with LoRA on the CPU compared with TRL: the same model, rows and settings, on one machine.

Usage: VENV/bin/python compare_trl.py PLIMSOLL [SHAPE ...] [--rounds N] [--steps N] [--threads N]
where VENV has torch, trl and peft: python3 -m venv VENV; VENV/bin/pip install torch trl peft
Runs both in turn, `--rounds` times, so that a busy machine is busy for both, and prints one JSON
object with every reading, the medians and the medians of the ratios. Exits 77 (skipped) where torch,
trl or peft is missing.

Rows are pairs of tokens of one length; both read the same file, in its order. Weights are random,
saved in bf16: Plimsoll holds the frozen base so and computes in fp32, TRL loads it in fp32, its
default. Rows a second: of the median step after the first ones. Memory: the peak resident set of the
whole process, as wait4(2) tells it.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

# hidden, layers, heads, heads of keys, ffn, vocabulary, pairs a step, tokens of prompt and of answer
SHAPES = {
    "tiny": (256, 6, 8, 4, 768, 4096, 4, 128, 128),
    "135m": (576, 30, 9, 3, 1536, 49152, 1, 128, 128),
}
WARM_UP = 2
PACKAGES = ("torch", "trl", "peft")
RANK = 16
RATE = 1e-4
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def write_model(folder, shape):
    import torch
    import transformers

    hidden, layers, heads, kv_heads, ffn, vocab = shape[:6]
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=ffn, vocab_size=vocab,
        tie_word_embeddings=True, max_position_embeddings=2048, pad_token_id=0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def write_rows(path, shape, steps):
    vocab, pairs, prompt, answer = shape[5:]
    draw = random.Random(1)
    with open(path, "w") as out:
        for _ in range(steps * pairs):
            row = {name: [draw.randrange(1, vocab) for _ in range(n)]
                   for name, n in (("prompt_ids", prompt), ("chosen_ids", answer),
                                   ("rejected_ids", answer))}
            out.write(json.dumps(row) + "\n")


def run_trl(folder, shape, steps, threads):
    """Trains in this process, and writes the seconds and the loss of each step."""
    import datasets
    import peft
    import tokenizers
    import torch
    import transformers
    import trl

    class Trainer(trl.DPOTrainer):
        def _prepare_dataset(self, dataset, *_):
            return dataset  # its rows are tokens

    class Clock(transformers.TrainerCallback):
        seconds, losses = [], []

        def on_step_begin(self, *_, **__):
            self.begun = time.perf_counter()

        def on_step_end(self, *_, **__):
            self.seconds.append(time.perf_counter() - self.begun)

        def on_log(self, _args, _state, _control, logs=None, **__):
            if "loss" in logs:
                self.losses.append(logs["loss"])

    torch.set_num_threads(threads)
    pairs, prompt, answer = shape[6:]
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>",
                                                     eos_token="<pad>")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    config = trl.DPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=pairs, max_steps=steps,
        beta=0.1, learning_rate=RATE, lr_scheduler_type="constant", weight_decay=0.0,
        max_grad_norm=1.0, max_length=prompt + answer, gradient_checkpointing=False, bf16=False,
        logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
        dataloader_pin_memory=False)
    clock = Clock()
    rows = datasets.Dataset.from_list([json.loads(line) for line in open(folder / "rows.jsonl")])
    lora = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=LINEARS, task_type="CAUSAL_LM")
    Trainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer,
            peft_config=lora, callbacks=[clock]).train()
    (folder / "trl.json").write_text(json.dumps({"seconds": clock.seconds, "losses": clock.losses}))


def job_of(shape, steps, threads):
    pairs, prompt, answer = shape[6:]
    return f"""model: model
mode: lora
stage: dpo
beta: 0.1
lora_r: {RANK}
lora_alpha: {RANK}
datasets: [{{path: rows.jsonl, format: tokens}}]
shuffle: false
max_seq_length: {prompt + answer}
batch_size: {pairs}
gradient_accumulation_steps: 1
max_steps: {steps}
learning_rate: {RATE}
lr_scheduler: constant
weight_decay: 0
max_grad_norm: 1
dtype: fp32
device: cpu
threads: {threads}
save_steps: 0
resume: never
output_dir: out
"""


def apart(work, *args):
    """Works in a process of its own. A program begins with the resident set of the process that
    starts it as its peak, so this one must never have imported torch."""
    pid = os.fork()
    if pid == 0:
        work(*args)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit("%s failed" % work.__name__)


def measure(command, folder):
    """Runs to the end; the peak resident set in bytes."""
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        with open(folder / "said", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.execv(command[0], command)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit("%s failed: %s" % (command[0], (folder / "said").read_text()[-2000:]))
    return used.ru_maxrss * 1024


def reading(pairs, seconds, losses, peak):
    return {"rows_per_second": pairs / statistics.median(seconds[WARM_UP:]), "peak_rss_bytes": peak,
            "losses": [losses[0], losses[-1]]}


def run_ours(args, folder, shape):
    peak = measure([args.plimsoll, "train", "run.yaml"], folder)
    steps = [json.loads(line) for line in open(folder / "out" / "train_log.jsonl")]
    steps = [event for event in steps if event["event"] == "step"]
    seconds = [event["computed_tokens"] / event["tokens_per_second"] for event in steps]
    return reading(shape[6], seconds, [event["loss"] for event in steps], peak)


def run_theirs(args, folder, name):
    command = [sys.executable, os.path.abspath(__file__), args.plimsoll, name, "--trl", str(folder),
               "--steps", str(args.steps), "--threads", str(args.threads)]
    peak = measure(command, folder)
    told = json.loads((folder / "trl.json").read_text())
    return reading(SHAPES[name][6], told["seconds"], told["losses"], peak)


def middle(rounds, who, key):
    return statistics.median(r[who][key] for r in rounds)


def compare(args, name):
    shape, rounds = SHAPES[name], []
    with tempfile.TemporaryDirectory(prefix="plimsoll-trl-") as scratch:
        folder = pathlib.Path(scratch)
        apart(write_model, folder / "model", shape)
        write_rows(folder / "rows.jsonl", shape, args.steps)
        (folder / "run.yaml").write_text(job_of(shape, args.steps, args.threads))
        for _ in range(args.rounds):
            rounds.append({"plimsoll": run_ours(args, folder, shape),
                           "trl": run_theirs(args, folder, name)})
    keys = ("rows_per_second", "peak_rss_bytes")
    return {"shape": name, "rounds": rounds,
            **{who: {key: middle(rounds, who, key) for key in keys} for who in ("plimsoll", "trl")},
            "ratios": {key: round(statistics.median(r["plimsoll"][key] / r["trl"][key]
                                                    for r in rounds), 3) for key in keys}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plimsoll", type=os.path.abspath)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help="default: " + ", ".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trl", metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    missing = [p for p in PACKAGES if importlib.util.find_spec(p) is None]
    if missing:
        print(f"skipped: no Python package {', '.join(missing)}")
        return 77
    if args.trl:
        run_trl(pathlib.Path(args.trl), SHAPES[args.shapes[0]], args.steps, args.threads)
        return 0
    result = {p: importlib.metadata.version(p) for p in PACKAGES}
    result["shapes"] = [compare(args, name) for name in args.shapes or SHAPES]
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
