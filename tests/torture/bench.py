"""Tiny runs to be tortured: jobs, what an undisturbed run of each leaves, and how another is compared
with it."""
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import time

STEPS = 12
LIMIT = 60  # seconds for a run that takes a hundredth of one
OF_THE_RUN = ("run_id", "run_number", "job", "state_xxh64")  # what two runs of a job do not share
OF_A_STEP = ("loss", "grad_norm", "learning_rate", "tokens", "epoch")
OF_PREFERENCES = ("rewards/margins", "logps/chosen", "kl")  # of a step of some stages

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "hidden_act": "silu", "initializer_range": 0.1, "torch_dtype": "float32"}
COMMON = """datasets:
  - path: train.jsonl
    format: tokens
max_seq_length: 16
save_total_limit: 2
device: cpu
threads: 2
output_dir: out
"""
FULL = "mode: full\ninit: random\nmodel_config: config.json\n"
LORA = "model: base\nmodel_config: ~\ninit: pretrained\nlora_r: 4\nlora_dropout: 0.1\n"
JOBS = {
    "full": FULL + "dtype: fp32\nbatch_size: 2\nsave_steps: 2\n",
    "small": FULL + "dtype: bf16\nbatch_size: 1\noptimizer: adamw_8bit\nsave_steps: 3\n",
    "lora": LORA + "mode: lora\ndtype: fp32\nbatch_size: 2\nsave_steps: 2\n",
    "merged": LORA + "mode: lora\ndtype: bf16\nbatch_size: 1\npacking: true\nsave_steps: 1\n"
                     "save_merged: true\n",
    "qlora": LORA + "mode: qlora\ndtype: bf16\nbatch_size: 2\nsave_steps: 4\n",
    # A resumed run refers to weights that it no longer has, or to the base.
    "dpo": FULL + "stage: dpo\ndtype: fp32\nbatch_size: 2\nsave_steps: 2\n",
    "kto": LORA.replace("lora_dropout: 0.1\n", "") +
           "mode: lora\nstage: kto\ndtype: bf16\nbatch_size: 2\nsave_steps: 3\n",
}


class Loss(Exception):
    """What must not happen: something lost, a silent difference, a hang, words without a code."""


def require(holds, what, *values):
    if not holds:
        raise Loss(what % values)


class Ended:
    """How a run ended. status: as of a shell, 128 + N after signal N."""

    def __init__(self, status, said):
        self.status, self.said = status, said


def draw_ids(draw, shortest, longest):
    return [draw.randrange(61) for _ in range(draw.randrange(shortest, longest + 1))]


def draw_row(draw):
    ids = draw_ids(draw, 5, 16)
    return {"input_ids": ids, "labels": ids}


def draw_pair(draw):
    return {"prompt_ids": draw_ids(draw, 1, 8), "chosen_ids": draw_ids(draw, 1, 8),
            "rejected_ids": draw_ids(draw, 1, 8)}


def draw_labelled(draw):
    return {"prompt_ids": draw_ids(draw, 1, 8), "completion_ids": draw_ids(draw, 1, 8),
            "label": draw.random() < 0.5}


def write_data(path, yaml):
    row = draw_pair if "stage: dpo" in yaml else draw_labelled if "stage: kto" in yaml else draw_row
    draw = random.Random(1)
    with open(path, "w") as rows:
        for _ in range(24):
            rows.write(json.dumps(row(draw)) + "\n")


def newest(out):
    """The step of the newest whole checkpoint; 0: there is none."""
    steps = [int(path.parent.name.split("-")[1])
             for path in pathlib.Path(out).glob("checkpoint-*/trainer_state.json")
             if re.fullmatch(r"checkpoint-\d+", path.parent.name)]
    return max(steps, default=0)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests(folder):
    """{relative path: digest} of every file below."""
    return {str(path.relative_to(folder)): digest(path)
            for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


def logged_steps(out):
    steps = []
    for line in (out / "train_log.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "step":
            steps.append((event["step"], *(event[key] for key in OF_A_STEP),
                          *(event.get(key) for key in OF_PREFERENCES)))
    return steps


def state_of(path):
    state = json.loads(path.read_text())
    for key in OF_THE_RUN:
        state["plimsoll"].pop(key, None)
    return state


def result(out, log=True):
    """What a finished run is compared by: weights and optimizers to the bit, counters, steps. Of its
    checkpoints the last one alone: a signal leaves one where no undisturbed run has one."""
    last = "checkpoint-%d" % newest(out)
    compared = [path for path in sorted(out.rglob("*")) if path.is_file() and
                str(path.relative_to(out)).split("/")[0] in (path.name, "merged", last)]
    files = {str(path.relative_to(out)): digest(path) for path in compared
             if path.suffix == ".safetensors" or path.name.endswith("config.json")}
    states = {str(path.relative_to(out)): state_of(path) for path in compared
              if path.name == "trainer_state.json"}
    return {"files": files, "states": states, "steps": logged_steps(out) if log else []}


def compare(got, wanted, parts=("files", "states", "steps")):
    for part in parts:
        if got[part] == wanted[part]:
            continue
        if part == "steps":
            names = [str(a) for a, b in zip(got[part], wanted[part]) if a != b][:2]
            names.append("%d steps, not %d" % (len(got[part]), len(wanted[part])))
        else:
            names = sorted(name for name in set(got[part]) | set(wanted[part])
                           if got[part].get(name) != wanted[part].get(name))
        raise Loss("%s differ from the undisturbed run: %s" % (part, ", ".join(names)))


class Bench:
    """build: where the program and its shims were built. folder: where runs are made; a file system
    in memory is fastest, as no kill takes anything from the kernel."""

    def __init__(self, program, build, folder):
        self.program = program
        self.recorder = str(build / "tests/torture/record.so")
        self.shim = str(build / "tests/support/fault_shim.so")
        self.folder = pathlib.Path(folder)
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith(("RECORD_", "FAULT_", "LD_PRELOAD"))}
        self.references, self.seconds, self.calls, self.injects = {}, {}, {}, {}
        for name, yaml in JOBS.items():
            self.make_job(name, yaml)

    def make_job(self, name, yaml, steps=STEPS):
        folder = self.folder / "jobs" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        if "model: base" in yaml:
            self.make_base(folder)
        write_data(folder / "train.jsonl", yaml)
        (folder / "run.yaml").write_text(yaml + COMMON + "max_steps: %d\n" % steps)

    def make_base(self, folder):
        write_data(folder / "train.jsonl", FULL)
        (folder / "run.yaml").write_text(FULL + "dtype: fp32\nbatch_size: 2\nsave_steps: 0\n" +
                                         COMMON + "max_steps: 1\n")
        ended = self.train(folder, "output_dir=base")
        require(ended.status == 0, "no base model: %s", ended.said)

    # --- runs ---------------------------------------------------------------------------------

    def start(self, folder, *words, env=None):
        environment = {**self.environment, "XDG_CACHE_HOME": str(folder / "cache"), **(env or {})}
        with open(folder / "stderr", "w") as said:
            return subprocess.Popen([self.program, *words], cwd=folder, env=environment,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=said)

    def wait(self, process, folder):
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Loss("a run hangs: %s" % (folder / "stderr").read_text()[-300:])
        said = (folder / "stderr").read_text(errors="replace")
        return Ended(status if status >= 0 else 128 - status, said)

    def run(self, folder, *words, env=None):
        return self.wait(self.start(folder, *words, env=env), folder)

    def train(self, folder, *words, env=None):
        return self.run(folder, "train", "run.yaml", *words, env=env)

    def fresh(self, job, name="run"):
        """A directory with the job alone."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "jobs" / job, folder)
        return folder

    def reference(self, job, *words):
        """Of an undisturbed run; made once."""
        key = (job, *words)
        if key not in self.references:
            folder = self.fresh(job, "reference")
            begun = time.monotonic()
            ended = self.train(folder, *words)
            self.seconds[job] = time.monotonic() - begun
            require(ended.status == 0, "the undisturbed run fails: %s", ended.said)
            self.references[key] = result(folder / "out")
        return self.references[key]

    def calls_of(self, job):
        """How many calls on files an undisturbed run makes."""
        if job not in self.calls:
            folder = self.fresh(job, "reference")
            count = self.folder / "count"
            self.train(folder, env={"LD_PRELOAD": self.shim, "FAULT_PATH": "%s/" % folder,
                                    "FAULT_COUNT": str(count)})
            self.calls[job] = int(count.read_text())
        return self.calls[job]

    def fault_at(self, folder, call, error, *words, for_good=False):
        """A run whose N-th call on files fails with errno `error`, or that is killed before it where
        that is 0 (tests/support/fault_shim.h)."""
        return self.start(folder, "train", "run.yaml", *words, env={
            "LD_PRELOAD": self.shim, "FAULT_PATH": "%s/" % folder, "FAULT_DO": str(error or "kill"),
            "FAULT_AT": "%d%s" % (call, "+" if for_good else "")})

    def kill_before(self, folder, call, *words):
        """It may end before that call."""
        return self.wait(self.fault_at(folder, call, 0, *words), folder)

    def half_done(self, job):
        """A directory with a run that was killed after its second checkpoint at the least."""
        made = self.folder / "half" / job
        if not made.exists():
            folder = self.fresh(job, "halved")
            for call in range(20, 4000, 20):
                self.kill_before(folder, call, "resume=never")
                if newest(folder / "out") >= STEPS // 2:
                    break
            require(0 < newest(folder / "out") < STEPS, "no run could be stopped half-way")
            made.parent.mkdir(exist_ok=True)
            folder.rename(made)
        folder = self.folder / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
        return folder

    def knows(self, inject):
        """Whether debug_inject has such a fault in this program."""
        if inject not in self.injects:
            folder = self.fresh("full", "reference")
            ended = self.run(folder, "validate", "run.yaml", "debug_inject=" + inject)
            self.injects[inject] = "error[CONFIG" not in ended.said
        return self.injects[inject]

    # --- judging ------------------------------------------------------------------------------

    def expect_words(self, ended, statuses):
        """A failure is one of the contract, with a code and a sentence."""
        require(ended.status in statuses, "exit %d: %s", ended.status, ended.said[-600:])
        if ended.status:
            require(re.search(r"error\[[A-Z_]+\]: \S", ended.said),
                    "exit %d without a code: %s", ended.status, ended.said[-600:])

    def finish(self, folder, job, *words, least=0, log=True):
        """Resumes until the end. What is left is that of the undisturbed run, of a damaged log all
        but the steps, and it began at the newest checkpoint, not before step `least`."""
        saved = newest(folder / "out")
        require(saved >= least, "checkpoint-%d is lost: the newest is %d", least, saved)
        ended = self.train(folder, *words)
        require(ended.status == 0, "does not resume: exit %d: %s", ended.status, ended.said[-600:])
        found = re.search(r"after step (\d+)", ended.said)
        begun = int(found.group(1)) if found else 0
        require(begun == saved, "resumed after step %d, not %d: %s", begun, saved,
                ended.said[-600:])
        parts = ("files", "states", "steps") if log else ("files", "states")
        compare(result(folder / "out", log), self.reference(job, *words), parts)
        checked = self.run(folder, "verify", "out")
        require(checked.status == 0, "verify finds damage: %s", checked.said[-600:])
        left = [path.name for path in (folder / "out").rglob("*")
                if path.name.endswith((".tmp", ".journal"))]
        require(not left, "left over: %s", ", ".join(left))
