"""The Python module against the library and the program of this build.

PLIMSOLL names the program, PLIMSOLL_LIBRARY the library, SOURCE_ROOT the source tree. With the
argument `page` the blocks of docs/python.md are run instead.
"""

import dataclasses
import json
import math
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(os.environ["SOURCE_ROOT"])
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools/python"))

import plimsoll  # noqa: E402

MODEL = "Qwen/Qwen2.5-7B-Instruct"
PAGE = {"mode": "lora", "lora_r": 256, "batch_size": 2, "max_seq_length": 2048}
PAGE_FIELDS = ("total_gb", "model_weights_gb", "lora_adapter_gb", "optimizer_state_gb",
               "activations_gb", "kv_cache_gb", "overhead_gb", "param_count_billions", "mode",
               "batch_size", "gradient_accumulation", "max_seq_length", "lora_r", "notes")


def program(*arguments):
    return subprocess.run([plimsoll.find_program(), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False).stdout.decode()


def write_job(folder):
    """A job that takes a second, as job.yaml in `folder`."""
    (folder / "rows.jsonl").write_text("".join(
        json.dumps({"text": f"row {i} of a short text"}) + "\n" for i in range(64)))
    (folder / "job.yaml").write_text(f"""\
init: random
model_config: {ROOT}/configs/quickstart-model/config.json
mode: full
dtype: fp32
tokenizer: byte
datasets: [{{path: rows.jsonl, format: text}}]
max_seq_length: 32
batch_size: 2
max_steps: 3
output_dir: output
""")


class Tracker(types.ModuleType):
    """A tracker in place of mlflow and of wandb, which keeps what it is given."""

    def __init__(self, name):
        super().__init__(name)
        self.parameters, self.logged, self.names, self.id, self.run_id = {}, [], [], "7", "7"
        self.info = self

    def set_experiment(self, name):
        self.names.append(name)

    def start_run(self, run_name):
        self.names.append(run_name)
        return self

    def init(self, project, name, config):
        self.names += [project, name]
        self.parameters = config
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def log_params(self, values):
        self.parameters = values

    def log(self, values, step):
        self.logged.append((step, values))

    log_metrics = log

    def finish(self):
        self.names.append("finished")


LOG = """\
{"event":"preflight","verdict":"fits"}
{"event":"step","step":1,"loss":2.5,"skipped":false,"grad_norm":1,"batch_size":4}
{"event":"step","step":2,"loss":"NaN","grad_norm":NaN,"batch_size":4}
{"event":"eval","step":2,"loss":2.25,"accuracy":0.5}
{"event":"step","step":3,"loss":2.0"""


class Exports(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.run = pathlib.Path(self.folder.name) / "chat"
        self.run.mkdir()
        (self.run / "train_log.jsonl").write_text(LOG)
        (self.run / "config.resolved.yaml").write_text(
            'mode: lora  # said\nlora_r: 8\ndatasets:\n  - path: a.jsonl\nrun_name: "x"\n')

    def tearDown(self):
        self.folder.cleanup()

    def export(self, to, project):
        tracker = sys.modules[to] = Tracker(to)
        try:
            from plimsoll import export
            self.assertEqual(getattr(export, f"to_{to}")(self.run, project), "7")
        finally:
            del sys.modules[to]
        return tracker

    def test_steps_and_evaluations_are_logged_with_their_numbers(self):
        for to in ("mlflow", "wandb"):
            tracker = self.export(to, "mine")
            self.assertEqual(tracker.logged, [
                (1, {"train/loss": 2.5, "train/grad_norm": 1.0, "train/batch_size": 4.0}),
                (2, {"train/batch_size": 4.0}),
                (2, {"eval/loss": 2.25, "eval/accuracy": 0.5})])
            self.assertEqual(tracker.parameters, {"mode": "lora", "lora_r": "8", "run_name": "x"})
            self.assertEqual(tracker.names[:2], ["mine", "chat"])

    def test_what_is_missing_is_named(self):
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "tools/python"))
        for words, says in ((["nowhere", "--to", "mlflow"], "train_log.jsonl is not there"),
                            ([str(self.run), "--to", "mlflow"], "pip install mlflow")):
            shadow = pathlib.Path(self.folder.name) / "shadow"
            shadow.mkdir(exist_ok=True)
            body = "raise ModuleNotFoundError('x', name='mlflow')" if "pip" in says else ""
            (shadow / "mlflow.py").write_text(
                body or "import contextlib\nlog_params = log_metrics = lambda *a, **k: None\n"
                        "start_run = lambda run_name: contextlib.nullcontext()\n")
            environment["PYTHONPATH"] = f"{shadow}:{ROOT / 'tools/python'}"
            ended = subprocess.run([sys.executable, "-B", "-m", "plimsoll.export", *words],
                                   stderr=subprocess.PIPE, env=environment, check=False,
                                   encoding="utf-8")
            self.assertEqual(ended.returncode, 2)
            self.assertIn(says, ended.stderr)


class Estimates(unittest.TestCase):
    def test_fields_are_those_of_the_page_and_the_answer_of_the_command(self):
        estimate = plimsoll.Trainer(MODEL).estimate_vram(**PAGE)
        names = [f.name for f in dataclasses.fields(estimate)]
        self.assertEqual(tuple(names[:len(PAGE_FIELDS)]), PAGE_FIELDS)
        printed = json.loads(program("estimate-vram", MODEL, "--json", "--mode", "lora", "--lora-r",
                                     "256", "--batch-size", "2", "--max-seq-length", "2048"))
        self.assertEqual(estimate.answer, printed)
        for name in names:
            if name not in ("card_bytes", "answer", "_summary"):
                self.assertEqual(getattr(estimate, name), printed[name], name)

    def test_an_estimate_is_frozen_and_can_be_kept(self):
        estimate = plimsoll.Trainer(MODEL).estimate_vram(**PAGE)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            estimate.total_gb = 1.0
        self.assertEqual(pickle.loads(pickle.dumps(estimate)), estimate)

    def test_the_summary_is_one_line_whose_parts_are_the_total(self):
        estimate = plimsoll.Trainer(MODEL).estimate_vram(gpu="RTX 4090", **PAGE)
        summary = estimate.summary()
        self.assertRegex(summary, r"\AVRAM estimate \(lora, 7\.6B params, batch=2, seq=2048\): "
                                  r"total=[0-9.]+GB \(weights=15\.2 \+ .* \+ overhead=[0-9.]+\)\Z")
        from plimsoll._estimate import _PARTS
        parts = sum(getattr(estimate, field) for _, field in _PARTS)
        self.assertAlmostEqual(parts, estimate.total_gb, places=8)

    def test_fits_on_card_compares_exact_bytes(self):
        estimate = plimsoll.Trainer(MODEL).estimate_vram(**PAGE)
        needed = estimate.card_bytes / 1e9
        self.assertTrue(estimate.fits_on_card(needed))
        self.assertFalse(estimate.fits_on_card(math.nextafter(needed, 0)))
        self.assertFalse(estimate.fits_on_card(math.nan))
        self.assertGreater(estimate.card_bytes, estimate.answer["bytes"]["total"])  # + a context

    def test_settings_of_trainer_and_question(self):
        trainer = plimsoll.Trainer(MODEL, mode="qlora", lora_r=8)
        self.assertEqual(trainer.estimate_vram().mode, "qlora")
        self.assertEqual(trainer.estimate_vram(lora_r=32).lora_r, 32)
        one = trainer.estimate_vram(lora_target_modules=["q_proj"], packing=True)
        self.assertEqual(one.trainable_param_count, 28 * 8 * (3584 + 3584))
        self.assertGreater(trainer.estimate_vram(mode="inference").kv_cache_gb, 0)

    def test_no_answer_is_an_error_with_a_code(self):
        trainer = plimsoll.Trainer(MODEL)
        for settings, code, status in (({"lora_r": -1}, "CONFIG_RANGE", 2),
                                       ({"no_such": 1}, "CONFIG_UNKNOWN_KEY", 2)):
            with self.assertRaises(plimsoll.PlimsollError) as caught:
                trainer.estimate_vram(**settings)
            self.assertEqual((caught.exception.code, caught.exception.exit_status), (code, status))
            self.assertTrue(caught.exception.hint)
            self.assertEqual(pickle.loads(pickle.dumps(caught.exception)).code, code)
        with self.assertRaises(plimsoll.PlimsollError) as caught:
            plimsoll.Trainer(ROOT / "no-such-directory").estimate_vram()
        self.assertEqual(caught.exception.exit_status, 5)

    def test_a_job_that_does_not_fit_is_an_answer(self):
        estimate = plimsoll.Trainer(MODEL).estimate_vram(mode="full", gpu="T4")
        self.assertEqual((estimate.verdict, estimate.fits), ("no", False))
        self.assertEqual(estimate.refusal, "RUNTIME_FULL_FT_MODEL_TOO_LARGE")

    def test_a_model_too_large_for_a_full_fine_tune_is_refused_before_any_estimate(self):
        for budget in ({}, {"vram_budget": "32GB"}, {"vram_budget": "500GB"}):
            with self.assertRaises(plimsoll.PlimsollError) as caught:
                plimsoll.Trainer("Qwen/Qwen2.5-7B-Instruct", mode="full", **budget)
            self.assertEqual((caught.exception.code, caught.exception.exit_status),
                             ("RUNTIME_FULL_FT_MODEL_TOO_LARGE", 3))
            self.assertIn("full_ft_offload", caught.exception.hint)
        for settings in ({"full_ft_offload": True}, {"full_ft_ceiling_billions": 8}):
            plimsoll.Trainer("Qwen/Qwen2.5-7B-Instruct", mode="full", **settings)
        plimsoll.Trainer("HuggingFaceTB/SmolLM3-3B", mode="full", gpu="T4")


class Plans(unittest.TestCase):
    def test_a_plan_is_what_the_command_prints(self):
        plan = plimsoll.plan(MODEL, mode="qlora", gpu="RTX 4090", longest=True, packing=False)
        self.assertEqual(plan, json.loads(program(
            "plan", MODEL, "--mode=qlora", "--gpu=RTX 4090", "--longest", "--packing=false",
            "--json")))

    def test_what_does_not_fit_is_an_answer_and_a_wrong_key_an_error(self):
        self.assertEqual(plimsoll.plan(MODEL, mode="full", gpu="T4")["fits"], False)
        with self.assertRaises(plimsoll.PlimsollError) as caught:
            plimsoll.plan(MODEL, no_such=1)
        self.assertEqual(caught.exception.exit_status, 2)


class Runs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.folder = pathlib.Path(scratch.name)
        write_job(self.folder)
        os.chdir(self.folder)

    def test_events_are_those_of_the_log(self):
        run = plimsoll.train("job.yaml", warmup_steps=0)
        events = list(run)
        log = pathlib.Path("output/train_log.jsonl").read_text().splitlines()
        self.assertEqual(events, [json.loads(line) for line in log])
        self.assertEqual((run.summary, run.returncode), (events[-1], 0))

    def test_a_refused_run_is_an_error(self):
        with self.assertRaises(plimsoll.PlimsollError) as caught:
            plimsoll.train("job.yaml", vram_budget="1MiB").wait()
        error = caught.exception
        self.assertEqual((error.code, error.exit_status), ("RUNTIME_DOES_NOT_FIT", 3))

    def test_a_killed_run_is_an_error(self):
        run = plimsoll.train("job.yaml", max_steps=1000000)
        with self.assertRaises(RuntimeError):
            for event in run:
                if event["event"] == "step":
                    run.process.kill()

    def test_a_stopped_run_saves_and_resumes(self):
        run = plimsoll.train("job.yaml", max_steps=1000000)
        first = next(event["step"] for event in run if event["event"] == "step")
        self.assertEqual(run.stop(), 130)
        saved = [int(p.name[11:]) for p in pathlib.Path("output").glob("checkpoint-*")]
        self.assertGreaterEqual(max(saved), first)
        with plimsoll.train("job.yaml", max_steps=1000000) as again:
            step = next(event["step"] for event in again if event["event"] == "step")
        self.assertEqual(step, max(saved) + 1)
        self.assertIsNotNone(again.returncode)

    def test_a_bar_follows_the_steps(self):
        bars = []

        class Bar:
            def __init__(self, total, unit):
                self.total, self.n, self.closed = total, 0, False
                bars.append(self)

            def update(self, by):
                self.n += by

            def set_postfix(self, **values):
                self.values = values

            def close(self):
                self.closed = True

        package, auto = types.ModuleType("tqdm"), types.ModuleType("tqdm.auto")
        auto.tqdm = Bar
        sys.modules.update({"tqdm": package, "tqdm.auto": auto})
        self.addCleanup(sys.modules.pop, "tqdm")
        self.addCleanup(sys.modules.pop, "tqdm.auto")
        plimsoll.train("job.yaml", progress=True, max_steps=3).wait()
        plimsoll.train("job.yaml", output_dir="other", progress=False).wait()
        plimsoll.train("job.yaml", output_dir="third").wait()  # not in a notebook
        self.assertEqual([(b.n, b.total, b.closed) for b in bars], [(3, 3, True)])
        self.assertIn("loss", bars[0].values)


class Found(unittest.TestCase):
    def test_version_is_the_projects(self):
        said = re.search(r"version: '([0-9.]+)'", (ROOT / "meson.build").read_text()).group(1)
        self.assertEqual(plimsoll.__version__, said)

    def test_the_module_is_the_program(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools/python")}
        done = subprocess.run([sys.executable, "-B", "-m", "plimsoll", "version"],
                              stdout=subprocess.PIPE, env=environment, check=True)
        self.assertEqual(done.stdout.decode(), program("version"))


def run_page():
    """Runs the blocks of the page in one namespace, where job.yaml is a small job."""
    page = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5, len(blocks)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        write_job(pathlib.Path(scratch))
        names = {}
        for block in blocks:
            exec(compile(block, "docs/python.md", "exec"), names)
        os.chdir("/")
    assert names["run"].summary["steps"] == 4


if __name__ == "__main__":
    if sys.argv[1:] == ["page"]:
        run_page()
    else:
        unittest.main()
