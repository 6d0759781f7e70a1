"""The rows of a report: what is run, in what order, and how long it may take."""
import shutil

import kernels
import ranks
import runs
from command import ROOT, need_built, run
from machine import number_after
from runs import Shape

FIRST_MEMORY = 12  # rows before any speed
HEADLINE = 3       # speed rows before anything else of their kind


class Task:
    """worth: the lower, the sooner. need: seconds without which it is not begun. facts: of the row,
    whatever comes of it."""

    def __init__(self, worth, part, key, need, limit, action, facts=None):
        self.worth, self.part, self.key = worth, part, key
        self.need, self.limit, self.action, self.facts = need, limit, action, facts or {}
        self.why_not = "no time was left"
        self.times_late = 0  # that it ran out of its limit, or that a call ended while it ran

    def seconds(self):
        return 2 * self.limit if self.times_late else self.limit


class Plan:
    """What a report measures; of the real ones and those of a rehearsal."""
    first = Shape("SmolLM2-135M", "full", 4, 1024, "none")
    memory, speed, llmq = runs.MEMORY, runs.SPEED, runs.LLMQ
    attention, tokens = kernels.ATTENTION, kernels.ATTENTION_TOKENS
    steps, products, profiles = kernels.STEPS, kernels.PRODUCTS, kernels.PROFILES
    ranks = ranks.SHAPES
    only_refused = False  # of the published samples

    def __init__(self, scratch):
        self.tiny = tiny(scratch, "full")


# --- suites ---------------------------------------------------------------------------------------

def suite(program, env, needed, seconds):
    """A test program; 77 is its word for skipped."""
    need_built(program, *needed)
    out = run([program], seconds, env)
    row = out.row(summary=next((x for x in out.text.splitlines() if x.endswith("Errors: 0")
                                or ", Failures: " in x), ""))
    if out.exit == 77:
        row.update(status="skipped")
    return row


def golden_env(machine):
    return {**machine.env, "PLIMSOLL": str(machine.plimsoll), "GOLDEN_DEVICE": "cuda",
            "GOLDEN_CASES": str(ROOT / "tests/golden/cases"), "TINY_DEVICE": "cuda",
            "QUANT_VECTORS": str(ROOT / "tests/kernels/vectors"),
            "NEIGHBOUR": str(machine.at.get("holder", ""))}


def one_golden_job(machine, scratch, seconds):
    """The shortest answer to whether a whole run computes what was recorded."""
    cases = scratch / "one-case"
    shutil.rmtree(cases, ignore_errors=True)
    cases.mkdir()
    (cases / "llama-full").symlink_to(ROOT / "tests/golden/cases/llama-full")
    return suite(machine.at["golden"], {**golden_env(machine), "GOLDEN_CASES": str(cases)},
                 [machine.plimsoll], seconds)


def suites(machine, scratch):
    few = {} if machine.is_gpu else {"KERNEL_ROUNDS": "1"}
    yield Task(0, "suites", "conformance", 20, 180,
               lambda s: suite(machine.kernels, {**machine.env, **few}, [], s))
    yield Task(1, "suites", "golden: llama-full", 10, 60,
               lambda s: one_golden_job(machine, scratch, s))
    env = golden_env(machine)
    for worth, key, limit in ((20, "golden", 120), (21, "generate", 60), (35, "neighbour", 120),
                              (45, "quant", 60), (46, "quant_golden", 60)):
        if machine.is_gpu:
            needed = [machine.plimsoll] + ([machine.at["holder"]] if key == "neighbour" else [])
            yield Task(worth, "suites", key, 20, limit,
                       lambda s, p=machine.at[key], n=needed: suite(p, env, n, s))


def sanitize(machine, tool, command, env, seconds):
    need_built(command[0])  # the sanitizer would say so, and fail
    out = run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--target-processes",
               "all", *command], seconds, {**machine.env, **env})
    return out.row(errors=number_after("SUMMARY:", out.text))


def sanitizers(machine, scratch, plan):
    subset = {"CK_FORK": "no", "KERNEL_ROUNDS": "2"}

    def steps(tool, seconds):
        job = runs.write_job(scratch, plan.tiny.model, {**plan.tiny.keys(), "probe_steps": 2})
        return sanitize(machine, tool, [machine.plimsoll, "train", job, "--probe"], {}, seconds)
    for i, tool in enumerate(("memcheck", "racecheck", "synccheck", "initcheck")):
        yield Task(70 + i, "sanitizers", f"{tool}: steps of a run", 30, 90,
                   lambda s, t=tool: steps(t, s))
        yield Task(80 + i, "sanitizers", f"{tool}: kernels", 40, 110,
                   lambda s, t=tool: sanitize(machine, t, [machine.kernels], subset, s))


# --- training runs --------------------------------------------------------------------------------

def memory(machine, scratch, plan):
    yield Task(2, "memory", f"first prediction: {plan.first.key()}", 20, 60,
               lambda s: runs.first_prediction(machine, scratch, plan.first, s),
               plan.first.facts())
    for i, shape in enumerate(plan.memory):
        yield Task(3 if i < FIRST_MEMORY else 30, "memory", shape.key(), 20, 75,
                   lambda s, x=shape: runs.memory(machine, scratch, x, s), shape.facts())


def speed(machine, scratch, gpu, plan):
    for i, shape in enumerate(plan.speed):
        worth = 4 + i / 10 if i < HEADLINE else 40 + i / 10
        yield Task(worth, "speed", shape.key(), 25, 90,
                   lambda s, x=shape: runs.speed(machine, scratch, gpu, x, s), shape.facts())
        if machine.has_torch(shape.mode) and shape.mode != "qlora":
            yield Task(worth + 0.01, "pytorch", shape.key(), 45, 120,
                       lambda s, x=shape: runs.speed_pytorch(machine, gpu, x, s),
                       shape.facts())
    yield Task(5, "speed", plan.llmq.key(), 60, 150,
               lambda s: runs.speed_beside(machine, scratch, gpu, plan.llmq, runs.LLMQ_SAYS, s),
               plan.llmq.facts())


def samples(machine, scratch, only_refused):
    try:
        table = runs.samples(machine)
    except Exception as broken:  # a row that says so, and the others are still to come
        def fail(seconds, why=broken):
            raise why
        yield Task(22, "samples", "the table of samples", 1, 1, fail)
        return
    for published in table:
        if not only_refused or "refused" in published["document_says"]:
            yield Task(22, "samples", published["id"], 30, 90,
                       lambda s, p=published: runs.sample(machine, scratch, p, s),
                       runs.sample_facts(published))


# --- ranks ----------------------------------------------------------------------------------------

def crews(most, shape):
    """One through NCCL, then twice as many each time."""
    yield ranks.Crew(shape, 1, comm="nccl")
    number = 2
    while number <= most:
        for sharding in ranks.SHARDINGS:
            yield ranks.Crew(shape, number, sharding)
        number *= 2


def several(machine, scratch, shapes):
    if not machine.ranks:
        return
    references = ranks.Reference()
    for i, shape in enumerate(shapes):
        for crew in crews(machine.ranks, shape):
            yield Task(23 + i / 10 if crew.ranks > 1 or i == 0 else 58, "ranks", crew.key(), 40, 150,
                       lambda s, c=crew: ranks.measure(machine, scratch, c, references, s),
                       crew.facts())
    crew = ranks.Crew(shapes[0], 2, device="cuda:0")
    yield Task(59, "ranks", crew.key(), 20, 60,
               lambda s, c=crew: ranks.on_one_gpu(machine, scratch, c, s), crew.facts())


# --- op by op -------------------------------------------------------------------------------------

def attention(machine, scratch, shapes, tokens):
    for shape in shapes:
        yield Task(6, "attention", "%d tokens, %d/%d heads of %d" % shape, 15, 45,
                   lambda s, x=shape: kernels.attention(machine, scratch, x, tokens, s),
                   kernels.attention_facts(shape, tokens))
    if machine.has_torch():
        yield Task(7, "attention", "PyTorch", 40, 100,
                   lambda s: kernels.attention_pytorch(machine, shapes, tokens, s))


def steps(machine, scratch, plan):
    yield Task(8, "kernels", "copy", 10, 30, lambda s: kernels.copy(machine, s))
    yield Task(8, "kernels", "faults that others report", 15, 60,
               lambda s: kernels.reported(machine, s))
    for i, (shape, layers) in enumerate(plan.products):
        yield Task(9 if i < 1 else 56, "products", kernels.key(shape, layers), 25, 80,
                   lambda s, x=shape, n=layers: kernels.products(machine, scratch, x, n, s))
    for i, what in enumerate(plan.profiles):
        yield Task(10 + i / 10, "profiles", what[0], 30, 90,
                   lambda s, w=what: kernels.profile(machine, scratch, w, plan.tokens, s))
    for i, (shape, layers) in enumerate(plan.steps):
        yield Task(11 if i < 2 else 55, "kernels", kernels.key(shape, layers), 25, 80,
                   lambda s, x=shape, n=layers: kernels.step(machine, scratch, x, n, s))


# --- what a rehearsal measures instead ------------------------------------------------------------

TINY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "hidden_act": "silu", "initializer_range": 0.02,
        "torch_dtype": "bfloat16"}


def tiny(scratch, mode, level="full", **more):
    config = kernels.write_config(scratch, "tiny", TINY)
    return Shape(str(config.parent), mode, 1, 16, level, **more)


class TinyPlan(Plan):
    only_refused = True
    attention, tokens = [(16, 2, 1, 16), (16, 2, 2, 64)], 32

    def __init__(self, scratch):
        super().__init__(scratch)
        full, lora, qlora = (tiny(scratch, mode) for mode in ("full", "lora", "qlora"))
        self.first, self.memory = tiny(scratch, "full", "none"), [full, lora, qlora]
        self.speed = [tiny(scratch, "full", "auto", optimizer="adamw_8bit"),
                      tiny(scratch, "lora", "auto"), tiny(scratch, "qlora", "auto")]
        self.llmq = tiny(scratch, "full", "none", accumulation=4, steps=runs.FEW_STEPS,
                         optimizer="adamw_8bit", gradient_dtype="bf16")
        self.steps, self.products = [(full, None), (qlora, None)], [(lora, None)]
        self.ranks = [tiny(scratch, "full", "none")]
        self.profiles = [("attention", "forward_tensor", 1, self.attention[0]),
                         ("norms", "forward_norms", 1, (full, None))]


def tasks(machine, scratch, gpu):
    plan = (Plan if machine.is_gpu else TinyPlan)(scratch)
    machine.warm_up_shape = plan.first
    found = list(sanitizers(machine, scratch, plan))
    return [*suites(machine, scratch), *memory(machine, scratch, plan),
            *(found if machine.is_gpu else found[:1]), *speed(machine, scratch, gpu, plan),
            *samples(machine, scratch, plan.only_refused),
            *several(machine, scratch, plan.ranks),
            *attention(machine, scratch, plan.attention, plan.tokens),
            *steps(machine, scratch, plan)]
