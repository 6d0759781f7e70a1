#!/usr/bin/env python3
"""Registers, spills and shared memory of the ten kernels that take the most time of a step.

resources.py print [ARCH...]         compiles them and prints the table, for every GPU or those named
resources.py check                   compares with resources.csv, for sm_90 or, where
                                     PLIMSOLL_ALL_ARCHS=1, for every GPU (needs nvcc; 77 = skipped)
resources.py launches BENCH          compares threads and shared bytes with those of a step of BENCH,
                                     which is bench_cuda of the emulation

Registers and spills are what ptxas says. A kernel that spills makes the driver take memory for it at
its first launch, which no plan holds: 0 is wanted, and what resources.csv has is the most. Another
version of nvcc is held to that and to the limits of the hardware alone. `check` also wants 0 of every
instance in the sources of QUIET.
"""
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("resources.csv")
ARCHS = ["75", "80", "86", "89", "90", "100", "120"]
SKIPPED = 77
REGISTERS = 65536  # of a multiprocessor, which one block may take
FIELDS = ["kernel", "threads", "shared_bytes", "sm", "registers", "spilled_bytes"]

# (source, kernel as c++filt prints it with T for the storage type, as PL_LAUNCH names it in the
# emulation, threads, dynamic shared bytes of a step with 3584 columns, heads of 128 and a vocabulary of
# 32,000 words or more, and where a GPU has another one: its architectures)
TURING, OTHERS = ["75"], ARCHS[1:]
SMALL = ["75", "86", "89", "120"]  # a multiprocessor has 100 KiB of shared memory or less
HOT = [
    ("attention_fwd", "forward_tensor<T, 128, 1, 64, false, true>", "of->kernel", 128, 34848, SMALL),
    ("attention_fwd", "forward_tensor<T, 128, 2, 64, false, false>", "of->kernel", 128, 69664,
     ["80", "90", "100"]),
    ("attention_bwd", "keys_tensor<T, 128, 32u, true, true>", "of->kernel", 128, 35360, ARCHS),
    ("attention_bwd", "queries_tensor<T, 128, 32u>", "of->kernel", 128, 34816, ARCHS),
    ("norms", "forward_norms<T, 8>", "(forward_norms<T, V>)", 224, 28, ARCHS),
    ("norms", "backward_norms<T, 8>", "(backward_norms<T, V>)", 224, 28, ARCHS),
    ("cross_entropy", "loss_rows<T, 8>", "(loss_rows<T, V>)", 512, 2112, ARCHS),
    ("glu", "swiglu<T, 8>", "(swiglu<T, V>)", 256, 0, ARCHS),
    ("glu", "swiglu_bwd<T, 8>", "(swiglu_bwd<T, V>)", 256, 0, ARCHS),
    ("dequant4", "dequantise<T, 4>", "(dequantise<T, BYTES>)", 256, 64, ARCHS),
    ("adamw8", "update_blocks<T, float, float>", "(update_blocks<W, G, S>)", 256, 4096, TURING),
    ("adamw8", "update_blocks<T, T, float>", "(update_blocks<W, G, S>)", 256, 4096, OTHERS),
]
# Sources whose kernels spill nothing, in any instance and on any GPU.
QUIET = ["embed", "gated_delta", "gated_delta_bwd", "gated_norm"]


def type_of(arch):
    """The type that `dtype: auto` stores on such a GPU."""
    return "__half" if arch in TURING else "__nv_bfloat16"


def named(kernel, arch):
    return re.sub(r"\bT\b", type_of(arch), kernel)


ENTRY = re.compile(r"Compiling entry function '(?:void )?([^']*)' for '[^']*'\n.*\n"
                   r"\s*\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
                   r".*Used (\d+) registers")


def find_nvcc():
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda"]
    places = [os.environ.get("PATH", "")] + [f"{home}/bin" for home in homes if home]
    return shutil.which("nvcc", path=os.pathsep.join(places))


def version(nvcc):
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release (\d+\.\d+)", said).group(1)


def known(nvcc, archs):
    said = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True)
    return [a for a in archs if f"compute_{a}" in said.stdout.split()]


def compile_one(nvcc, source, arch):
    """What ptxas says of each kernel of a source: (registers, spilled bytes) by its name."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([nvcc, "-std=c++17", "-O3", f"-I{ROOT}", f"-arch=sm_{arch}", "-cubin",
                               "-Xptxas", "-v", "-o", f"{scratch}/out.cubin",
                               ROOT / f"runtime/kernels/cuda/{source}.cu"],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{source}.cu does not compile for sm_{arch}:\n{done.stderr}")
    said = subprocess.run(["c++filt"], input=done.stderr, capture_output=True, text=True,
                          check=True).stdout
    found = {}
    for name, stores, loads, registers in ENTRY.findall(said.replace("(anonymous namespace)::", "")):
        found[name.split("(")[0]] = (int(registers), int(stores) + int(loads))
    return found


def rows(nvcc, archs):
    for arch in archs:
        found = {source: compile_one(nvcc, source, arch) for source in sorted({h[0] for h in HOT})}
        for source, template, _, threads, shared, archs in HOT:
            if arch not in archs:
                continue
            kernel = named(template, arch)
            if kernel not in found[source]:
                sys.exit(f"{source}.cu has no kernel {kernel}; it has {', '.join(found[source])}")
            registers, spilled = found[source][kernel]
            yield dict(zip(FIELDS, (kernel, threads, shared, arch, registers, spilled)))


def print_table(nvcc, archs):
    print(f"# nvcc {version(nvcc)} -O3")
    out = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    out.writeheader()
    for row in rows(nvcc, archs):
        out.writerow(row)


def read_table():
    first, *lines = TABLE.read_text().splitlines()
    table = {(r["kernel"], r["sm"]): {k: r[k] for k in FIELDS} for r in csv.DictReader(lines)}
    return first.split()[2], table


def wrong(row, recorded, same_nvcc):
    if recorded is None:
        return "is not in resources.csv"
    if row["spilled_bytes"] > int(recorded["spilled_bytes"]):
        return f"spills {row['spilled_bytes']} bytes"
    if row["registers"] * row["threads"] > REGISTERS:
        return f"does not start: {row['registers']} registers for {row['threads']} threads"
    if same_nvcc and {k: str(v) for k, v in row.items()} != recorded:
        return f"was {recorded['registers']} registers, {recorded['shared_bytes']} shared bytes"
    return None


def spilling(nvcc, archs):
    """(kernel, GPU, bytes) of each instance of QUIET that spills."""
    for arch in archs:
        for source in QUIET:
            for kernel, (_, spilled) in compile_one(nvcc, source, arch).items():
                if spilled:
                    yield kernel, arch, spilled


def check(nvcc, archs):
    recorded_by, table = read_table()
    same, bad = recorded_by == version(nvcc), 0
    if not same:
        print(f"resources.csv is of nvcc {recorded_by}, this is {version(nvcc)}: limits alone are held")
    for row in rows(nvcc, archs):
        why = wrong(row, table.get((row["kernel"], row["sm"])), same)
        if why:
            bad += 1
            print(f"{row['kernel']}, sm_{row['sm']}: {row['registers']} registers, "
                  f"{row['shared_bytes']} shared bytes: {why}", file=sys.stderr)
    for kernel, arch, spilled in spilling(nvcc, archs):
        bad += 1
        print(f"{kernel}, sm_{arch}: spills {spilled} bytes", file=sys.stderr)
    return int(bad > 0)


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
          "num_key_value_heads": 1, "head_dim": 128,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "bfloat16"}
# (columns, words, keys): the widest of each kernel, one at a time, since the emulation is slow
STEPS = [(3584, 64, ["mode=lora"]),
         (128, 8192, ["mode=full", "optimizer=adamw_8bit"]),
         (128, 64, ["mode=qlora"])]


def launches_of(bench, step, arch, scratch):
    columns, vocabulary, keys = step
    report, config = (pathlib.Path(scratch) / name for name in ("launches", "config.json"))
    config.write_text(json.dumps({**CONFIG, "hidden_size": columns, "vocab_size": vocabulary}))
    words = ["batch_size=1", "max_seq_length=8", "gradient_checkpointing=none", *keys]
    words += ["dtype=fp16"] if arch in TURING else ["dtype=bf16", "master_weights=false"]
    subprocess.run([bench, "ops", config, *words], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PLSIM_LAUNCHES": str(report), "PLSIM_SM": arch})
    return {tuple(line.split(" ", 2)) for line in report.read_text().splitlines()}


def wrong_launches(bench, arch):
    """Rows of HOT that no step of the emulated GPU launches so."""
    with tempfile.TemporaryDirectory() as scratch:
        seen = set().union(*(launches_of(bench, step, arch, scratch) for step in STEPS))
    bad = [(h[1], wanted) for h in HOT
           if arch in h[5] and (wanted := (str(h[3]), str(h[4]), h[2])) not in seen]
    for kernel, wanted in bad:
        near = sorted(s[:2] for s in seen if s[2] == wanted[2])
        print(f"{kernel}, sm_{arch}: threads and shared bytes {wanted[:2]} are in the table, {near} "
              "are launched", file=sys.stderr)
    return len(bad)


def launches(bench):
    return int(sum(wrong_launches(bench, arch) for arch in ("75", "86", "90")) > 0)


def main(words):
    if words[:1] == ["launches"] and len(words) == 2:
        return launches(words[1])
    if words[:1] not in (["print"], ["check"]):
        sys.exit(__doc__)
    nvcc = find_nvcc()
    if not nvcc:
        print("skipped: needs the CUDA toolkit (nvcc)")
        return SKIPPED
    if words[0] == "print":
        return print_table(nvcc, known(nvcc, words[1:] or ARCHS))
    every = os.environ.get("PLIMSOLL_ALL_ARCHS") == "1"
    return check(nvcc, known(nvcc, ARCHS if every else ["90"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
