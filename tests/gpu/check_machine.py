#!/usr/bin/env python3
"""What a report finds on a machine, and what it decides to measure there: programs that came along,
libraries of Python's packages, a driver held open, and rows in order of worth, each one a job."""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True  # the modules lie in the source tree
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import kernels
import machine
import parts
import prebuilt
import report
import runs
from command import FAILED, OK, run

BUILD = pathlib.Path(os.environ["BUILD_ROOT"])
PROGRAM = {"golden": "tests/golden/check_golden"}


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.at = pathlib.Path(scratch.name)

    def patch(self, *where):
        patched = mock.patch.object(*where)
        patched.start()
        self.addCleanup(patched.stop)

    def setenv(self, name, value):
        patched = mock.patch.dict(os.environ, {name: str(value)})
        patched.start()
        self.addCleanup(patched.stop)


class Prebuilt(Case):
    def setUp(self):
        super().setUp()
        self.patch(prebuilt, "PROGRAMS", {"emulated": PROGRAM})
        self.patch(prebuilt, "PRESET", 0)
        self.archive = prebuilt.pack(self.at, BUILD, "emulated")

    def take(self, driver="580.65.06"):
        return prebuilt.take(self.archive, self.at / "place", PROGRAM, driver, {})

    def expect_refusal(self, words, *driver):
        with self.assertRaisesRegex(prebuilt.Unusable, words):
            self.take(*driver)

    def test_programs_that_start_are_used(self):
        self.assertEqual(self.take()["made"], "emulated")
        program = self.at / "place" / PROGRAM["golden"]
        self.assertIsNone(prebuilt.why_not_started(program, {}))
        self.assertEqual(self.take()["made"], "emulated", "a second call on the same machine")

    def test_programs_of_other_sources_are_not(self):
        self.patch(prebuilt, "digest_of_sources", lambda: "of a tree that was changed since")
        self.expect_refusal("other sources")

    def test_programs_of_a_newer_toolkit_than_the_driver_takes_are_not(self):
        self.patch(prebuilt, "PROGRAMS", {})
        self.patch(prebuilt, "ON_GPU", PROGRAM)
        self.patch(prebuilt, "cuda_version", lambda: (13, 0))
        self.archive = prebuilt.pack(self.at, BUILD, "90")
        self.expect_refusal("needs driver 580, this machine has 570.1", "570.1")
        self.assertEqual(self.take("580.1")["made"], "CUDA 13.0, sm_90")

    def test_programs_whose_libraries_are_missing_are_not(self):
        build, name = self.at / "build", b"libjansson.so.4"
        program = build / PROGRAM["golden"]
        program.parent.mkdir(parents=True)
        text = (BUILD / PROGRAM["golden"]).read_bytes()
        self.assertIn(name, text)
        program.write_bytes(text.replace(name, b"libnonesuch.so4"))
        program.chmod(0o755)
        self.archive = prebuilt.pack(self.at, build, "emulated")
        self.expect_refusal("does not start here: .*libnonesuch.*not found")

    def test_an_archive_that_is_cut_short_or_missing_is_not_used(self):
        whole = self.archive.read_bytes()
        for size in (0, 40, len(whole) // 2):
            self.archive.write_bytes(whole[:size])
            self.expect_refusal("programs-emulated")
        self.archive.unlink()
        self.expect_refusal("there is no programs-emulated")


class Turing(Case):
    """The row `compute_75`."""

    def setUp(self):
        super().setUp()
        self.patch(prebuilt, "ON_GPU", PROGRAM)
        self.patch(prebuilt, "PRESET", 0)
        self.patch(prebuilt, "cuda_version", lambda: (13, 0))
        self.setenv("GPU_BUNDLE", self.at)

    def row(self, driver="580.65"):
        found = machine.Machine(self.at / "build", None)
        return found.find_turing({"driver": driver})

    def expect_absent(self, words, *driver):
        row = self.row(*driver)
        self.assertEqual(row["status"], "skipped")
        self.assertRegex(row["how"], f"^absent: .*{words}")

    def test_programs_that_came_along_are_present(self):
        prebuilt.pack(self.at, BUILD, "75")
        row = self.row()
        self.assertEqual((row["status"], row["how"]), (OK, "present: CUDA 13.0, sm_75"))

    def test_programs_of_another_gpu_are_not_those(self):
        prebuilt.pack(self.at, BUILD, "90")
        self.expect_absent("no programs-75.tar.xz in the bundle")

    def test_without_a_bundle_there_are_none(self):
        self.setenv("GPU_BUNDLE", "")
        self.expect_absent("no bundle")

    def test_programs_that_cannot_run_here_are_absent(self):
        archive = prebuilt.pack(self.at, BUILD, "75")
        self.expect_absent("needs driver 580, this machine has 570.1", "570.1")
        self.patch(prebuilt, "digest_of_sources", lambda: "of a tree that was changed since")
        self.expect_absent("other sources")
        archive.write_bytes(archive.read_bytes()[:40])
        self.expect_absent("programs-75")


class Found(Case):
    """Beside the GPU."""

    def machine(self):
        found = machine.Machine(self.at / "build", None)
        found.interpreter = {"lacks": [], "paths": [str(self.at / "site")]}
        return found

    def package(self, name, text=""):
        (self.at / "site" / name).mkdir(parents=True)
        (self.at / "site" / name / "__init__.py").write_text(text)

    def test_packages_are_found_without_importing_them(self):
        for name in ("torch", "transformers"):
            self.package(name, "raise SystemExit('imported')\n")
        self.setenv("PYTHONPATH", self.at / "site")
        found = machine.Machine(self.at / "build", sys.executable)
        self.assertLessEqual(set(found.ask_interpreter()), {"peft"})
        found.interpreter["lacks"] = ["peft"]
        self.assertTrue(found.has_torch("full"))
        self.assertFalse(found.has_torch("lora"))

    def test_no_interpreter_has_no_packages(self):
        for python in (None, "/nonexistent/python"):
            found = machine.Machine(self.at / "build", python)
            found.ask_interpreter()
            self.assertFalse(found.has_torch())

    def no_cublas(self):
        self.patch(machine, "CUBLASLT", ("libnone-of-these.so.13",))
        self.patch(machine, "TOOLKIT_LIBRARIES", self.at)
        self.setenv("PLIMSOLL_CUBLASLT", "")

    def test_cublas_of_pythons_packages_is_found(self):
        self.no_cublas()
        library = self.at / "site/nvidia/cu13/lib/libnone-of-these.so.13"
        library.parent.mkdir(parents=True)
        shutil.copy(os.environ["FAKE_NVML"], library)
        found = self.machine()
        self.assertEqual(found.find_cublas()["status"], OK)
        self.assertEqual(found.env["PLIMSOLL_CUBLASLT"], str(library))

    def test_no_cublas_is_a_row_that_says_where_it_was_looked_for(self):
        self.no_cublas()
        row = self.machine().find_cublas()
        self.assertEqual(row["status"], FAILED)
        self.assertIn("nvidia/cu13/lib", row["tail"])

    def no_nccl(self):
        self.patch(machine, "NCCL", ("libnone-of-these.so.2",))
        self.patch(machine, "TOOLKIT_LIBRARIES", self.at)
        self.setenv("PLIMSOLL_NCCL", "")

    def test_without_nccl_there_are_no_ranks_and_all_else(self):
        self.no_nccl()
        found = self.machine()
        row = found.find_nccl()
        self.assertEqual(row["status"], "skipped")
        self.assertIn("nvidia/nccl/lib", row["tail"])
        report.allow_ranks(found, {"gpus": 8}, None, row)
        self.assertEqual(list(parts.several(found, self.at, parts.Plan.ranks)), [])

    def test_nccl_of_pythons_packages_is_found_and_runs_as_many_ranks_as_gpus(self):
        self.no_nccl()
        library = self.at / "site/nvidia/nccl/lib/libnone-of-these.so.2"
        library.parent.mkdir(parents=True)
        shutil.copy(os.environ["FAKE_NVML"], library)
        found = self.machine()
        row = found.find_nccl()
        self.assertEqual(found.env["PLIMSOLL_NCCL"], str(library))
        for asked, most in ((None, 8), (2, 2), (16, 8)):
            report.allow_ranks(found, {"gpus": 8}, asked, row)
            tasks = list(parts.several(found, self.at, parts.Plan.ranks[:1]))
            self.assertEqual(max(t.facts["ranks"] for t in tasks), most)

    def test_of_pythons_headers_only_those_of_cublas_are_used(self):
        self.assertEqual(self.machine().cublas_headers(), {})
        headers = self.at / "site/nvidia/cu13/include"
        headers.mkdir(parents=True)
        for name in ("cublasLt.h", "cublas_api.h", "cuda_runtime.h"):
            (headers / name).write_text("")
        self.setenv("CPATH", "/given")
        given, links = self.machine().cublas_headers()["CPATH"].split(":")
        self.assertEqual(given, "/given")
        self.assertEqual(sorted(os.listdir(links)), ["cublasLt.h", "cublas_api.h"])

    def test_the_driver_is_held_open(self):
        found = self.machine()
        self.setenv("PLIMSOLL_NVML", os.environ["FAKE_NVML"])
        self.assertTrue(found.hold_driver())
        self.setenv("FAKE_NVML_FAIL", "1")
        self.assertFalse(self.machine().hold_driver())
        self.setenv("PLIMSOLL_NVML", "/nonexistent.so")
        self.assertFalse(self.machine().hold_driver())


class Planned(Case):
    """What a report of a GPU would run."""

    def tasks(self, lacks=()):
        on = machine.Machine(BUILD, sys.executable)
        on.interpreter = {"lacks": list(lacks), "paths": ["somewhere"]}
        return sorted(parts.tasks(on, self.at, {"name": "H100", "sm": "90"}),
                      key=lambda t: t.worth)

    def test_rows_go_by_their_worth(self):
        rows = [f"{t.part}: {t.key}" for t in self.tasks()]
        self.assertEqual(len(set(rows)), len(rows))
        self.assertEqual(rows[:2], ["suites: conformance", "suites: golden: llama-full"])
        self.assertTrue(rows[2].startswith("memory: first prediction"))
        self.assertTrue(all(r.startswith("memory: ") for r in rows[3:15]))
        self.assertEqual(rows[15:21], [
            "speed: Qwen2.5-7B full 2x2048 auto optimizer=adamw_8bit",
            "pytorch: Qwen2.5-7B full 2x2048 auto optimizer=adamw_8bit",
            "speed: Llama-3.1-8B lora 4x2048 auto", "pytorch: Llama-3.1-8B lora 4x2048 auto",
            "speed: Llama-3.1-8B qlora 4x2048 auto",
            "speed: Qwen2.5-7B full 4x1024 none gradient_dtype=bf16 optimizer=adamw_8bit "
            "accumulation=128"])
        after = [r.split(":")[0] for r in rows[21:]]
        self.assertEqual(list(dict.fromkeys(after))[:4],
                         ["attention", "kernels", "products", "profiles"])
        self.assertTrue(all(p == "sanitizers" for p in after[-8:]))

    def test_without_a_package_only_its_rows_are_missing(self):
        rows = [f"{t.part}: {t.key}" for t in self.tasks(["peft"])]
        self.assertIn("pytorch: Qwen2.5-7B full 2x2048 auto optimizer=adamw_8bit", rows)
        self.assertNotIn("pytorch: Llama-3.1-8B lora 4x2048 auto", rows)

    def test_every_shape_is_a_job_that_fits_an_h100(self):
        for shape in [parts.Plan.first, *runs.MEMORY, *runs.SPEED, runs.LLMQ]:
            job = runs.write_job(self.at, shape.model,
                                 {"full_ft_ceiling_billions": 100, **shape.keys()})
            out = run([BUILD / "tools/plimsoll", "estimate-vram", job, "--gpu", "H100", "--json"],
                      60)
            self.assertEqual(out.exit, 0, f"{shape.key()}: {out.text}")
            self.assertEqual(out.lines()[-1]["verdict"], "fits", shape.key())

    def samples(self, host):
        self.patch(runs, "host_bytes", lambda: host)
        on = machine.Machine(BUILD, None)
        return [r["id"] for r in runs.samples(on) if runs.is_offloaded(r)]

    def test_a_sample_that_takes_the_hosts_memory_is_run_where_the_host_has_it(self):
        small = self.samples(128 * runs.GIB)
        self.assertTrue(small)
        self.assertTrue(all(name.endswith(", 8-bit states") for name in small), small)
        self.assertEqual(len(self.samples(1024 * runs.GIB)), 2 * len(small))

    def test_offloaded_samples_take_few_steps(self):
        seen = []
        self.patch(runs, "train", lambda m, s, model, keys, t: seen.append(keys) or
                   {"exit": 0, "tail": ""})
        for published in ({"estimate_vram": "Qwen2.5-7B --mode full --full-ft-offload"},
                          {"estimate_vram": "Qwen2.5-7B --mode lora"}):
            runs.sample(None, self.at, {"id": "", "document_says": "", "document_total_gb": 0,
                                        **published}, 1)
        self.assertEqual([k.get("probe_steps") for k in seen], [runs.FEW_STEPS, None])


class Judged(Case):
    def test_attention_that_every_back_end_refuses_is_no_measurement(self):
        refused = {"flash": {"refused": "no kernel"}, "cudnn": {"refused": "no engine"}}
        taken = {"flash": {"ms": 1.0}, "cudnn": {"refused": "no engine"}}
        row = kernels.judge_attention([refused, refused], 2)
        self.assertEqual(row["status"], FAILED)
        self.assertIn("no engine; no kernel", row["tail"])
        self.assertEqual(kernels.judge_attention([], 2)["status"], FAILED)
        self.assertEqual(kernels.judge_attention([refused, taken], 2),
                         {"checks": ["1 of 2 shapes were refused"]})
        self.assertEqual(kernels.judge_attention([taken, taken], 2), {})

    def test_a_prediction_counts_where_a_run_has_measured_the_context(self):
        row = {"first_loss": 2.0, "last_loss": 1.0, "grad_norm": 1.0, "planned_bytes": 5,
               "allocated_bytes": 5, "measured_bytes": 100, "predicted_process_bytes": 102,
               "longest_sample_tokens": 7}
        keys = {"max_seq_length": 7}
        self.assertEqual(runs.checks({**row, "context_from": "profiled"}, keys), [])
        self.assertEqual(runs.checks({**row, "context_from": "measured"}, keys),
                         ["prediction is off by over 1 %"])
        self.assertEqual(runs.checks({**row, "context_from": "measured", "measured_bytes": 0},
                                     keys), ["the driver does not tell what the process holds"])

    def test_utilisation_has_two_definitions(self):
        on = machine.Machine(BUILD, None)
        flops = runs.flops_per_token(on, runs.LLMQ)
        row = runs.utilisation({"name": "NVIDIA H100"}, flops, {"tokens_per_second": 13900})
        # The figure that LLMQ publishes for this shape counts attention: 60.3 %.
        self.assertAlmostEqual(row["mfu_attention"], 0.603, delta=0.002)
        self.assertLess(row["mfu"], row["mfu_attention"])

    def test_counters_are_read_by_launch(self):
        text = "==PROF== Connected\n" + "\n".join(
            ",".join(json.dumps(c) for c in line) for line in (
                ["ID", "Kernel Name", "Grid Size", "Metric Name", "Metric Unit", "Metric Value"],
                ["0", "f<1, 2>", "(8, 1, 1)", "Duration", "us", "1,234.5"],
                ["0", "f<1, 2>", "(8, 1, 1)", "Registers Per Thread", "", "96"],
                ["1", "g", "(9, 1, 1)", "Duration", "us", "2"]))
        self.assertEqual(kernels.counters(text), [
            {"kernel": "f<1, 2>", "grid": "(8, 1, 1)", "Duration": "1,234.5 us",
             "Registers Per Thread": "96"},
            {"kernel": "g", "grid": "(9, 1, 1)", "Duration": "2 us"}])
        self.assertEqual(kernels.counters("nothing"), [])

    def test_a_program_that_another_needs_is_not_built_rather_than_failed(self):
        with self.assertRaises(FileNotFoundError) as missing:
            parts.suite(pathlib.Path("/bin/true"), {}, [self.at / "plimsoll"], 5)
        self.assertEqual(missing.exception.filename, str(self.at / "plimsoll"))



if __name__ == "__main__":
    unittest.main()
