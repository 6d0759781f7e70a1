"""RESULTS.md from what RESULTS.json holds."""
from kernels import STREAMING
from command import OK

NONE = "-"
DEAREST = 14  # rows of a step


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value, form="{:.2f}", scale=1):
    return NONE if value is None else form.format(value * scale)


def gib(value):
    return number(value, "{:.3f}", 2**-30) if value else NONE


def of(result, part):
    return [r for r in result["rows"] if r["part"] == part]


def what_failed(row):
    """In place of the figures of a row that has none."""
    code = f", exit {row['exit']}" if row.get("exit") else ""
    return f"{row['status']}{code}"


def learns(row):
    if "first_loss" not in row:
        return NONE
    return f"{row['first_loss']:.4f} -> {row['last_loss']:.4f}, norm {row['grad_norm']:.3g}"


def shape(row):
    more = "".join(f", {k} {v}" for k, v in row.get("more", {}).items())
    level = row.get("level", row["recompute"])
    times = f" x {row['accumulation']}" if row.get("accumulation", 1) > 1 else ""
    return [row["model"].rsplit("/", 1)[-1], row["mode"] + more,
            f"{row['batch']} x {row['length']}{times}",
            f"auto: {level}" if row["recompute"] == "auto" else level]


def error(row):
    measured = row.get("measured_bytes")
    return row["predicted_process_bytes"] / measured - 1 if measured else None


# --- parts ----------------------------------------------------------------------------------------

def suites(result):
    rows = [[r["part"], r["key"], what_failed(r), number(r.get("errors"), "{}"), r["seconds"],
             r.get("summary", r.get("how", ""))]
            for part in ("build", "suites", "sanitizers") for r in of(result, part)]
    return "## Suites\n\n" + table(["part", "what", "status", "sanitizer errors", "seconds",
                                    "it said"], rows)


def memory_cells(row):
    if "planned_bytes" not in row:
        return [what_failed(row)] + [""] * 7
    equal = row["planned_bytes"] == row["allocated_bytes"]
    return [gib(row["planned_bytes"]), "equal" if equal else "DIFFERENT",
            gib(row["predicted_process_bytes"]), CONTEXTS.get(row.get("context_from"), NONE),
            gib(row.get("measured_bytes")), number(error(row), "{:+.3f}", 100), learns(row), "; ".join(row.get("checks", []))]


# The source from which a prediction takes the context.
CONTEXTS = {"measured": "an earlier run", "profiled": "the table of cards"}
MEMORY_HEADS = ["planned GiB", "allocated", "predicted process", "context from", "measured", "error %",
                "loss, gradient", "amiss"]


def memory(result):
    rows = of(result, "memory")
    known = [error(r) for r in rows if r.get("context_from") == "measured" and
             "planned_bytes" in r and error(r) is not None]
    equal = sum(r.get("planned_bytes", 0) == r.get("allocated_bytes", 1) for r in rows)
    head = (f"{equal} of {len(rows)} runs allocated exactly what was planned; "
            f"{sum(abs(e) <= 0.01 for e in known)} of {len(known)} whose context an earlier run had "
            "measured were predicted within 1 %.")
    return f"""## Memory

`planned` is the plan's arenas, `allocated` what was asked of the device, `predicted` the total
before any CUDA call, `measured` what the driver counts for the process. {head}

""" + table(["model", "mode", "batch x length", "recompute", *MEMORY_HEADS],
            [shape(r) + memory_cells(r) for r in rows])


def samples(result):
    def cells(r):
        if "refused" in r:
            return ["refused: " + r["refused"]] + [""] * 7
        return memory_cells(r)
    return """## Published sample estimates, run

The first two figures are the published ones, in GB.

""" + table(["sample", "published GB", "says", *MEMORY_HEADS],
            [[r["id"], r["published_gb"], r["says"], *cells(r)] for r in of(result, "samples")])


def both_mfu(row):
    return f"{number(row.get('mfu'), '{:.1f}', 100)} / " + \
        number(row.get("mfu_attention"), "{:.1f}", 100)


def published(rows):
    """What other programs' tables say of the same shape, and in what ours differs from it."""
    return "".join(
        f"\n\n{r['key']}: {p['who']} publishes {p['tokens_per_second']} tokens/s on one {p['gpu']}, "
        f"MFU {number(p['mfu_attention'], '{:.1f}', 100)} % with attention. {p['differs']}."
        for r in rows if (p := r.get("published")))


def speed(result):
    theirs = {r["key"]: r for r in of(result, "pytorch")}
    rows = []
    for r in of(result, "speed"):
        t = theirs.get(r["key"], {})
        ours, other = r.get("tokens_per_second"), t.get("tokens_per_second")
        missing = "no 4-bit package" if r["mode"] == "qlora" else \
            what_failed(t) if t else "not run"
        rows.append(shape(r) + [
            number(ours, "{:.0f}") if ours else what_failed(r), both_mfu(r),
            gib(r.get("measured_bytes")), number(other, "{:.0f}") if other else missing,
            both_mfu(t), t.get("level", NONE), gib(t.get("measured_bytes")),
            number(ours / other) if ours and other else NONE, learns(r), learns(t)])
    versions = next((t["versions"] for t in theirs.values() if "versions" in t), {})
    named = ", ".join(f"{k} {v}" for k, v in versions.items()) or "PyTorch"
    return f"""## Speed, beside {named}

Tokens a second of the fastest of six steps on both sides; every row of full length, no padding.
MFU, by two definitions: FLOPs of the products over the card's dense bf16 peak, 6 a weight and token
in `full`, 4 in `lora` and `qlora`; and with causal attention, forward and twice that backward.
Adapters and recomputation do not count. Both sides: bf16 weights, fused AdamW, clip 1, and the same
recomputation but for `auto`, where each recomputes what its memory makes it; PyTorch with SDPA, and
its moments are bf16 where ours are fp32, or 8 bits as named (`full`).{published(of(result, "speed"))}

""" + table(["model", "mode", "batch x length", "recompute", "tokens/s", "MFU %", "process GiB",
             "PyTorch tokens/s", "MFU %", "recompute", "process GiB", "ratio", "loss, gradient",
             "PyTorch's"], rows)


def bill(row, key):
    """Of the rank that took the most."""
    return gib(max((r.get(key) or 0 for r in row.get("each", [])), default=0))


def ranks(result):
    cells = [[r["ranks"], r["sharding"], *shape(r),
              r.get("refused") or (what_failed(r) if r["status"] != OK else "equal"),
              number(r.get("tokens_per_second"), "{:.0f}"),
              number(r.get("scaling"), "{:.1f}", 100), bill(r, "planned_bytes"),
              gib(r.get("comm_predicted_bytes")), bill(r, "comm_bytes"),
              number(max((e["wait_seconds"] for e in r.get("each", [])), default=None))]
             for r in of(result, "ranks")]
    return """## Ranks

The global batch is the same in every row. `bits`: losses and norms compared with those of one rank
without NCCL. `scaling`: tokens a second over those of one rank, and over the number of ranks.

""" + table(["ranks", "sharding", "model", "mode", "batch x length", "recompute", "bits",
             "tokens/s", "scaling %", "planned GiB", "NCCL predicted", "NCCL measured",
             "waited s"], cells)


def rate(flops, ms):
    return number(flops / ms * 1e-9, "{:.0f}") if flops and ms else NONE


def attention(result):
    rows = of(result, "attention")
    theirs = {}
    for t in next((r["shapes"] for r in rows if "shapes" in r), []):
        theirs[t["length"], t["heads"], t["kv_heads"], t["size"]] = t
    cells = []
    for r in rows:
        if "attention" not in r:
            continue
        t = theirs.get((r["length"], r["heads"], r["kv_heads"], r["size"]), {})
        forward, backward = r["attention"], r.get("attention_bwd", {})
        line = [f"{r['batch']} x {r['length']}", f"{r['heads']}/{r['kv_heads']}", r["size"]]
        for ours, key in ((forward, "ms"), (backward, "backward_ms")):
            line.append(rate(ours.get("flops"), ours.get("ms")))
            line += [rate(ours.get("flops"), t.get(n, {}).get(key)) for n in ("flash", "cudnn")]
        cells.append(line)
    return """## Attention

TFLOP/s, causal, bf16, by the FLOPs of the plan: 2 products of half the square forward, 5 backward.

""" + table(["batch x tokens", "heads", "head size", "forward", "PyTorch flash", "PyTorch cuDNN",
             "backward", "PyTorch flash", "PyTorch cuDNN"], cells)


def streaming(result):
    copy = next((r.get("bytes_per_second") for r in of(result, "kernels") if r["key"] == "copy"),
                None)
    cells = []
    for r in of(result, "kernels"):
        ops = [o for o in r.get("ops_of", []) if o["op"] in STREAMING and o["ms"] > 0]
        for op in ops[:DEAREST]:
            speed_of = op["bytes"] / op["ms"] * 1e3
            cells.append([op["op"], f"{op['rows']} x {op['cols']}", op["dtype"], op["calls"],
                          f"{op['ms'] / op['calls'] * 1e3:.1f}", f"{speed_of * 1e-9:.0f}",
                          number(speed_of / copy if copy else None, "{:.0f}", 100), r["key"]])
    return f"""## Kernels that memory bounds

Bytes as planned over time, as a share of what a copy within the GPU reaches:
{number(copy, "{:.0f}", 1e-9)} GB/s. Over 100 % means that a cache served it; small tensors show a
launch more than a kernel. Ops that run as one share its time by their bytes. The {DEAREST} dearest
of each step.

""" + table(["op", "result", "dtype", "calls", "us", "GB/s", "% of a copy", "step"], cells)


def steps(result):
    cells = []
    trained = {r["key"]: r for part in ("memory", "speed") for r in of(result, part)}
    for r in of(result, "kernels"):
        s = r.get("step")
        if not s:
            continue
        parts = {}
        for op in r["ops_of"]:
            name = op["op"] if op["op"] in ("dequant4", "attention", "attention_bwd", "adamw",
                                            "adamw_8bit", "cross_entropy") else \
                "products" if op["op"].startswith("linear") else "others"
            parts[name] = parts.get(name, 0) + op["share"]
        shares = ", ".join(f"{k} {100 * v:.1f}" for k, v in sorted(parts.items(),
                                                                  key=lambda p: -p[1]))
        idle = 1 - s["queued_ms"] / s["wall_ms"] if s["wall_ms"] else None
        run = {} if r["layers"] else trained.get(r["key"].split(",")[0], {})
        cells.append([r["key"], s["ops"], number(run.get("seconds_per_step"), "{:.2f}", 1e3),
                      f"{s['wall_ms']:.2f}", f"{s['queued_ms']:.2f}",
                      f"{s['sum_ms']:.2f}", number(idle, "{:.1f}", 100), shares])
    heads = ["step", "ops", "train ms", "wall ms", "GPU ms", "sum ms", "idle %",
             "share of the sum, %"]
    return """## Time between kernels, and where a step goes

`train`: a step of the trainer, where the tables above have the same one, samples and all; `wall`:
as this measurement's host sees it; `GPU`: the same when the host had queued it before; `sum`: its
ops, each between two events. `idle`: what the GPU waited for the host.

""" + table(heads, cells)


def algorithm(t):
    return f"{t['algorithm']}/{t['tile']}/{t['stages']}/{t['split']}"


def products(result):
    cells = []
    for r in of(result, "products"):
        for p in r.get("products", []):
            first, best = p["first"], p["best"]
            gain = first["ms"] / best["ms"] - 1 if best["ms"] else None
            cells.append([p["op"], f"{p['rows']} x {p['cols']} x {p['inner']}", p["dtype"],
                          p["calls"], f"{first['tflops']:.0f}", algorithm(first),
                          f"{best['tflops']:.0f}", algorithm(best),
                          f"{p['best_number']} of {p['proposals']}",
                          number(gain, "{:+.1f}", 100)])
    return """## Products

TFLOP/s of the algorithm that runs - cuBLASLt's first proposal - and of the best it proposed, as
algorithm/tile/stages/split.

""" + table(["op", "rows x columns x inner", "dtype", "calls", "runs", "which", "best", "which",
             "number", "gain %"], cells)


# The counters that are shown; RESULTS.json has them all.
COUNTERS = ["Duration", "Compute (SM) Throughput", "Memory Throughput", "DRAM Throughput",
            "L2 Hit Rate", "Achieved Occupancy", "Registers Per Thread"]


def profiles(result):
    cells = [[r["profile"], c["kernel"], c["grid"], *(c.get(n, NONE) for n in COUNTERS)]
             for r in of(result, "profiles") for c in r.get("counters", [])]
    return "## Counters of the hardware\n\n" + table(["what", "kernel", "grid", *COUNTERS], cells)


def not_run(result):
    lines = [f"- {part}: {key}: {why}" for part, key, why in result["not_run"]]
    if result.get("running"):
        lines.append("- %s: %s: was running" % tuple(result["running"]))
    if not of(result, "pytorch"):
        lines.append("- PyTorch: the interpreter had none, or its rows were not asked for")
    return "## Not run\n\n" + ("\n".join(lines) or "Nothing was left out.")


def failures(result):
    parts = [f"### {r['part']}: {r['key']}: {what_failed(r)}\n\n```\n{r['tail'].strip()}\n```"
             for r in result["rows"] if r["status"] != OK and r.get("tail")]
    return "## What failed, and its last words\n\n" + ("\n\n".join(parts) or "Nothing failed.")


def written(part, result):
    """A row that no table was made for may spoil its own table, and no other."""
    try:
        return part(result)
    except Exception as broken:
        why = f"{type(broken).__name__}: {broken}"
        return f"## {part.__name__}\n\nNo table: {why}; see RESULTS.json."


def report(result):
    gpu = result["gpu"]
    calls = "\n".join(f"- {c['date']}: `{c['command']}`" for c in result["calls"])
    head = f"""# What was measured on a GPU

{gpu['name']}, {gpu['memory']}, {gpu['power']}, {gpu['clock']}, driver {gpu['driver']}.

{calls}
"""
    parts = [suites, memory, samples, speed, ranks, attention, streaming, steps, products, profiles,
             not_run, failures]
    return "\n\n".join([head.rstrip(), *(written(part, result) for part in parts)]) + "\n"
