"""python -m tenon_runs, as a user starts it."""

import json
import os
import subprocess
import sys
import unittest

from .tiny_runs import ROOT, copy_of, scratch, tenon, zoo


def call(*arguments, status=0, cwd=None, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-m", "tenon_runs", *map(str, arguments)]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, encoding="utf-8", timeout=60)
    if done.returncode != status:
        raise AssertionError(f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


class Table(unittest.TestCase):
    def test_csv_byte_for_byte_as_the_program_writes_it(self):
        self.assertEqual(call("table", zoo()), tenon("export-study", zoo()))

    def test_columns(self):
        columns = ["--columns", "run.name,recovery.type"]
        self.assertEqual(call("table", zoo(), *columns), tenon("export-study", zoo(), *columns))
        self.assertIn("no run has the key 'run.nam'", call("table", zoo(), "--columns", "run.nam", status=1))

    def test_jsonl(self):
        lines = call("table", zoo(), "--to", "jsonl").split("\n")
        told = tenon("export-study", zoo(), "--to", "jsonl").split("\n")
        self.assertEqual(len(lines), len(told))
        for line, other in zip(lines[:-1], told[:-1]):
            self.assertEqual(json.loads(line), json.loads(other))
        self.assertTrue(any('"nan"' in line for line in lines))

    def test_a_file(self):
        out = scratch() / "table.csv"
        self.assertEqual(call("table", zoo(), "--out", out), f"{out}\n")
        self.assertEqual(out.read_text(encoding="utf-8"), tenon("export-study", zoo()))


class List(unittest.TestCase):
    def test_lines(self):
        lines = call("list", zoo(), "--columns", "run.seed").split("\n")
        self.assertEqual(lines[0].split(), ["run", "status", "steps", "metric", "last", "run.seed"])
        for run in json.loads(tenon("report", zoo(), "--json"))["runs"]:
            label = os.path.relpath(run["folder"], zoo())
            line = next(line.split() for line in lines if line.startswith(label + " "))
            self.assertEqual(line[1:3], [run["status"], str(run["steps"])])
            if run["metrics"]:
                last = run["metrics"]["val/loss"]["last"]
                self.assertEqual(line[3:5], ["val/loss", "nan" if last is None else f"{last:.6g}"])

    def test_json(self):
        rows = json.loads(call("list", zoo(), "--json"), parse_constant=self.fail)
        self.assertEqual(len(rows), 6)
        by_run = {row["run"]: row for row in rows}
        self.assertEqual(by_run["nan/1"]["val/loss"], "nan")
        self.assertEqual(by_run["plain/2"]["run.seed"], 2)


class Errors(unittest.TestCase):
    def test_help_names_the_commands(self):
        text = call("--help")
        for command in ("list", "table", "send"):
            self.assertIn(command, text)
            self.assertIn("DIR", call(command, "--help"))

    def test_usage(self):
        self.assertIn("usage:", call(status=2))
        self.assertIn("invalid choice", call("send", zoo() / "plain", "--to", "paper", status=2))

    def test_no_runs(self):
        self.assertIn("tenon_runs: there is no run below", call("list", zoo() / "empty", status=1))

    def test_a_warning_is_one_line(self):
        run = copy_of("plain", "warned")
        (run / "2/plugins.lock").write_text("x")
        error = call("list", run, status=1)
        self.assertRegex(
            error, r"^tenon_runs: warning: left out: .*plugins\.lock:1: .*\ntenon_runs: there is no run below .*\n$"
        )
