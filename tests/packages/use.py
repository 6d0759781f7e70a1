"""Runs where the wheel is installed: the Python module, and the time of an answer."""

import json
import os
import subprocess
import sys

import plimsoll

MODEL = "Qwen/Qwen2.5-7B-Instruct"
MOST_SECONDS = 0.030  # of a processor, from the start of the process to its exit

program = plimsoll.find_program()
assert program == os.path.join(os.path.dirname(sys.executable), "plimsoll"), program

estimate = plimsoll.Trainer(MODEL).estimate_vram(
    mode="lora", lora_r=256, batch_size=2, max_seq_length=2048)
printed = subprocess.run([program, "estimate-vram", MODEL, "--json", "--mode", "lora", "--lora-r",
                          "256", "--batch-size", "2", "--max-seq-length", "2048"],
                         stdout=subprocess.PIPE, check=True).stdout
assert estimate.answer == json.loads(printed)
assert not estimate.fits_on_card(16.0)

run = plimsoll.train("configs/quickstart.yaml", max_steps=2, warmup_steps=0, save_steps=0,
                     batch_size=2, val_set_size=0, output_dir="output/python")
events = [event["event"] for event in run]
assert events == ["preflight", "step", "step", "summary"], events
assert run.summary["steps"] == 2 and run.returncode == 0


def seconds_of_an_answer():
    process = subprocess.Popen([program, "estimate-vram", MODEL], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime


least = min(seconds_of_an_answer() for _ in range(5))
assert least < MOST_SECONDS, f"an answer takes {least * 1000:.1f} ms"
print(f"an answer takes {least * 1000:.1f} ms of a processor")
