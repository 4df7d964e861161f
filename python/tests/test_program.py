"""Starting the program: what comes back, what is shown, and what errors say."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

import tenon_runs
from tenon_runs.errors import ProgramError, ProgramMissingError

from .tiny_runs import CONFIG, PROGRAM, QUESTION, ROOT, TINY, question, scratch


class Finding(unittest.TestCase):
    def test_the_order(self):
        folder = os.path.dirname(PROGRAM)
        with mock.patch.dict(os.environ, {"TENON": "/nowhere/tenon", "PATH": folder}):
            self.assertEqual(tenon_runs.find_program(PROGRAM), PROGRAM)
            with self.assertRaisesRegex(ProgramMissingError, "TENON names '/nowhere/tenon', which is no program"):
                tenon_runs.find_program()
            del os.environ["TENON"]
            self.assertEqual(tenon_runs.find_program(), PROGRAM)

    def test_a_program_that_is_not_there(self):
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            os.environ.pop("TENON", None)
            with self.assertRaisesRegex(ProgramMissingError, "no program tenon on PATH; set TENON="):
                tenon_runs.train(CONFIG)
            with self.assertRaisesRegex(ProgramMissingError, "the argument program names 'x'"):
                tenon_runs.ab("y.toml", program="x")

    def test_a_folder_is_no_program(self):
        with self.assertRaisesRegex(ProgramMissingError, "is no program"):
            tenon_runs.find_program(scratch())


class Train(unittest.TestCase):
    def test_a_run(self):
        folder = scratch() / "started/one"
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            run = tenon_runs.train(CONFIG, sets=TINY, run_dir=folder, program=PROGRAM)
        self.assertEqual((run.status, run.steps, run.folder), ("completed", 4, folder / "1"))
        self.assertEqual(run.final, json.loads((folder / "1/summary.json").read_text())["metrics"])
        self.assertRegex(shown.getvalue(), r"completed: 4/4 steps")

    def test_another_working_directory_and_silence(self):
        folder = scratch() / "elsewhere"
        folder.mkdir()
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            run = tenon_runs.train(CONFIG, sets=TINY, program=PROGRAM, cwd=folder, progress=False)
        self.assertEqual(run.folder, folder / "runs/gpt-micro/1")
        self.assertEqual(shown.getvalue(), "")

    def test_options(self):
        folder = scratch() / "resumed"
        sets = [*TINY, "recovery.type=full"]
        tenon_runs.train(CONFIG, sets, folder, program=PROGRAM, progress=False)
        sets[0] = "run.steps=6"
        run = tenon_runs.train(CONFIG, sets, folder, ["--resume", "--extend"], program=PROGRAM, progress=False)
        self.assertEqual((run.attempt, run.steps, len(run.manifest["segments"])), (1, 6, 2))

    def test_a_wrong_key(self):
        with self.assertRaises(ProgramError) as caught:
            tenon_runs.train(CONFIG, ["optimizer.lrr=1"], scratch() / "x", program=PROGRAM, progress=False)
        self.assertEqual(caught.exception.status, 2)
        self.assertIn("optimizer.adamw has no option 'lrr'; did you mean 'lr'?", caught.exception.words)
        self.assertIn("exit status 2", str(caught.exception))
        self.assertIsNone(caught.exception.folder)

    def test_a_run_that_fails(self):
        with self.assertRaises(ProgramError) as caught:
            sets = [*TINY, "optimizer.lr=1e30"]
            tenon_runs.train(CONFIG, sets, scratch() / "diverged", program=PROGRAM, progress=False)
        self.assertEqual(caught.exception.status, 1)
        self.assertRegex(caught.exception.words, r"loss is NaN at step \d.*Lower optimizer.lr")
        self.assertEqual(tenon_runs.load(caught.exception.folder).status, "failed")

    def test_one_text_is_no_list_of_changes(self):
        with self.assertRaisesRegex(TypeError, r'sets is a list, e.g. \["run.steps=3"\]'):
            tenon_runs.train(CONFIG, "run.steps=3", program=PROGRAM)

    def test_another_program(self):
        fake = scratch() / "fake"
        fake.write_text("#!/bin/sh\necho hello\nexit $STATUS\n")
        fake.chmod(0o755)
        for status, pattern in (("0", "it named no folder of a run: 'hello'"), ("7", "exit status 7: hello")):
            with mock.patch.dict(os.environ, {"STATUS": status}), self.assertRaisesRegex(ProgramError, pattern):
                tenon_runs.train(CONFIG, program=fake)

    def test_an_interrupt_saves_the_run_first(self):
        folder = scratch() / "interrupted"
        script = (
            "import sys, tenon_runs\n"
            f"tenon_runs.train({str(CONFIG)!r}, ['run.steps=1000000', 'recovery.type=full', 'run.log_every=1'],"
            f" {str(folder)!r}, program={PROGRAM!r})\n"
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", script], env=env, stderr=subprocess.PIPE, encoding="utf-8"
        )
        metrics = folder / "1/metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size > 0) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertTrue(metrics.exists(), "the run did not begin")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", said)
        run = tenon_runs.load(folder)
        self.assertEqual(run.status, "interrupted")
        self.assertEqual(tenon_runs.checkpoint_steps(run)[-1], run.steps)


class Ab(unittest.TestCase):
    def test_a_study(self):
        out = scratch() / "asked"
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            study = tenon_runs.ab(question("asked"), out, ["seeds=[1, 2]"], program=PROGRAM)
        report = json.loads((out / "report.json").read_text())
        self.assertEqual(study.verdict.headline, report["verdict"]["headline"])
        self.assertEqual(study.folder, out)
        self.assertEqual(len(re.findall(r"ab \d/6 runs", shown.getvalue())), 6)

    def test_runs_that_must_not_be_compared(self):
        text = QUESTION.replace('"run.eval_batches=2", "optimizer.lr=3e-4"', '"run.eval_batches=3"')
        with self.assertRaises(ProgramError) as caught:
            tenon_runs.ab(
                question("unequal", text), scratch() / "unequal", ["seeds=[1]"], program=PROGRAM, progress=False
            )
        self.assertEqual(caught.exception.status, 1)
        study = tenon_runs.study(caught.exception.folder)
        self.assertEqual(study.verdict.outcome, "none")
        self.assertTrue(study.refusals)
        self.assertIn(study.refusals[0], caught.exception.words)

    def test_a_file_that_is_not_there(self):
        with self.assertRaisesRegex(ProgramError, "exit status 2.*nothing.toml"):
            tenon_runs.ab("nothing.toml", program=PROGRAM, progress=False)
