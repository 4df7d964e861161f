"""What is read from runs, against summary.json, `tenon report --json` and `tenon export-study`."""

import csv
import io
import json
import math
import os
import shutil
import unittest
import warnings

import tenon_runs
from tenon_runs.errors import UnreadableError

from . import tiny_runs
from .tiny_runs import tenon, zoo


def nan_as_none(value):
    return None if isinstance(value, float) and math.isnan(value) else value


class Facts(unittest.TestCase):
    """Every fact of `tenon report --json` about every run."""

    @classmethod
    def setUpClass(cls):
        cls.runs = tenon_runs.runs(zoo())
        cls.report = json.loads(tenon("report", zoo(), "--json"))["runs"]

    def test_the_same_runs_in_the_same_order(self):
        self.assertEqual([str(r.folder) for r in self.runs], [r["folder"] for r in self.report])
        # The report shows names as TOML writes them.
        self.assertEqual([r.name for r in self.runs], [r["name"].replace('\\"', '"') for r in self.report])
        self.assertEqual([r.attempt for r in self.runs], [r["attempt"] for r in self.report])
        self.assertEqual(
            [r.label for r in self.runs], ["deep/er/saved/1", "failed/1", "nan/1", "odd/1", "plain/2", "unfinished/1"]
        )

    def test_status_and_sums(self):
        for run, told in zip(self.runs, self.report):
            for key in ("status", "steps", "samples", "tokens", "wall_s", "bytes_sent", "weights_hash", "state_hash"):
                self.assertEqual(getattr(run, key), told[key], (run.label, key))
        self.assertEqual({r.status for r in self.runs}, {"completed", "failed", "unfinished"})

    def test_series(self):
        for run, told in zip(self.runs, self.report):
            self.assertEqual(list(run.series), sorted(told["metrics"]))
            for name, facts in told["metrics"].items():
                points = run.series[name]
                self.assertEqual(len(points), facts["lines"])
                self.assertEqual(nan_as_none(points[-1].value), facts["last"])
                self.assertEqual(points[-1].step, facts["last_step"])
                values = [p.value for p in points if not math.isnan(p.value)]
                self.assertEqual(min(values, default=None), facts["least"])
                self.assertEqual(max(values, default=None), facts["most"])

    def test_configuration_and_origins(self):
        for run, told in zip(self.runs, self.report):
            self.assertEqual(run.config_text, {k: v["value"] for k, v in told["config"].items()})
            self.assertEqual(run.origins, {k: v["origin"] for k, v in told["config"].items()})

    def test_a_run_without_end_says_that_its_last_line_is_torn(self):
        run = tenon_runs.load(zoo() / "unfinished")
        self.assertEqual(len(run.notes), 1)
        self.assertRegex(run.notes[0], r"metrics\.jsonl:\d+: the last line is cut short and was dropped")
        self.assertEqual(run.summary, {})
        self.assertNotIn(5, [p.step for points in run.series.values() for p in points])


class OneRun(unittest.TestCase):
    def test_summary_and_manifest(self):
        run = tenon_runs.load(zoo() / "plain")
        summary = json.loads((zoo() / "plain/2/summary.json").read_text())
        manifest = json.loads((zoo() / "plain/2/manifest.json").read_text())
        self.assertEqual(run.attempt, 2)
        self.assertEqual(run.final, summary["metrics"])
        self.assertEqual(run.value("val/loss"), summary["metrics"]["val/loss"])
        self.assertEqual(run.hashes["weights"], summary["weights_hash"])
        self.assertEqual(run.hashes[manifest["data"][0]["path"]], manifest["data"][0]["sha256"])
        self.assertEqual(run.seeds, {"seed": 2, "seed_init": 2, "seed_order": 2, "seed_rounding": 2})
        self.assertEqual(run.plugins["tenon.adamw"]["version"], "0.1.0")
        self.assertEqual(len(run.plugins["tenon.adamw"]["sha256"]), 64)

    def test_typed_values(self):
        config = tenon_runs.load(zoo() / "odd").config
        self.assertEqual(config["run.name"], 'odd "x" # é, y')
        self.assertEqual(config["optimizer.betas"], [0.5, 0.75])
        self.assertEqual((config["run.steps"], type(config["run.steps"])), (4, int))
        self.assertEqual((config["run.clip"], type(config["run.clip"])), (1.0, float))
        self.assertIs(config["model.scale_logits"], False)
        self.assertEqual(config["observe[0].type"], "progress")

    def test_nan_survives(self):
        run = tenon_runs.load(zoo() / "nan")
        self.assertTrue(math.isnan(run.value("val/loss")))
        self.assertTrue(all(math.isnan(p.value) for p in run.series["train/loss"]))

    def test_an_attempt_and_the_link_to_the_newest(self):
        self.assertEqual(tenon_runs.load(zoo() / "plain/1").seeds["seed"], 1)
        newest = tenon_runs.load(zoo() / "plain/latest")
        self.assertEqual((newest.seeds["seed"], newest.attempt), (2, 2))

    def test_the_reason_of_a_failure(self):
        self.assertIn("loss is NaN at step", tenon_runs.load(zoo() / "failed").error)

    def test_an_unknown_metric_lists_those_that_there_are(self):
        with self.assertRaisesRegex(KeyError, "train/loss.*val/loss"):
            tenon_runs.load(zoo() / "plain").value("val/los")

    def test_repeated_steps_after_a_resume_count_once(self):
        run = tiny_runs.copy_of("plain", "repeated")
        line = {
            "step": 2,
            "split": "val",
            "name": "loss",
            "value": "-inf",
            "wall_s": 1,
            "samples": 2,
            "tokens": 3,
            "bytes_sent": 4,
        }
        with open(run / "2/metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n" + json.dumps({**line, "step": 1, "value": 9}) + "\n")
        points = tenon_runs.load(run).series["val/loss"]
        self.assertEqual([p.step for p in points], [1, 2, 4])
        self.assertEqual(points[1], (2, -math.inf, 1, 2, 3, 4))
        told = json.loads(tenon("report", run, "--json"))["metrics"]["val/loss"]
        self.assertEqual((told["lines"], told["last_step"], told["most"]), (3, 4, 9))
        rows = csv.DictReader(io.StringIO(tenon("export-study", run)))
        values = [float(row["value"]) for row in rows if row["metric"] == "val/loss"]
        self.assertEqual([p.value for p in points], values)


class Table(unittest.TestCase):
    """Rows against `tenon export-study`."""

    def test_every_row(self):
        told = list(csv.DictReader(io.StringIO(tenon("export-study", zoo()))))
        rows = tenon_runs.runs(zoo()).rows()
        self.assertEqual(len(rows), len(told))
        self.assertGreater(len(rows), 30)
        for row, other in zip(rows, told):
            self.assertEqual(list(row), list(other))
            for key in ("run", "status", "metric"):
                self.assertEqual(row[key], other[key])
            for key in ("step", "value", "wall_s", "samples", "tokens", "bytes_sent"):
                self.assertEqual(nan_as_none(float(row[key])), nan_as_none(float(other[key])), (row, key))
            self.assertEqual(row["run.seed"], int(other["run.seed"]))
            self.assertEqual(row["optimizer.lr"], float(other["optimizer.lr"]))

    def test_columns(self):
        rows = tenon_runs.runs(zoo()).rows(["model.width"])
        self.assertEqual(list(rows[0])[9:], ["model.width"])
        self.assertEqual({row["model.width"] for row in rows}, {64})

    def test_a_key_that_a_run_lacks_is_none(self):
        rows = tenon_runs.runs(zoo()).rows(["recovery.type"])
        self.assertEqual({row["recovery.type"] for row in rows if row["run"].startswith("deep")}, {"full"})
        self.assertEqual({row["recovery.type"] for row in rows if not row["run"].startswith("deep")}, {None})

    def test_one_row_for_each_run(self):
        rows = tenon_runs.runs(zoo()).summary_rows(["run.seed"])
        report = {r["folder"]: r for r in json.loads(tenon("report", zoo(), "--json"))["runs"]}
        for row in rows:
            told = report[str(zoo() / row["run"])]
            self.assertEqual((row["status"], row["steps"]), (told["status"], told["steps"]))
            for name, facts in told["metrics"].items():
                self.assertEqual(nan_as_none(row[name]), facts["last"])
        self.assertEqual({row["run.seed"] for row in rows}, {1, 2})

    def test_frame(self):
        try:
            import pandas
        except ImportError:
            self.assertIsInstance(tenon_runs.load(zoo() / "plain").metrics(), list)
            raise unittest.SkipTest("pandas is not installed: metrics() gave a list of dicts, which was tested")
        frame = tenon_runs.runs(zoo()).metrics()
        told = pandas.read_csv(io.StringIO(tenon("export-study", zoo())))
        self.assertEqual(list(frame.columns), list(told.columns))
        self.assertTrue((frame["step"] == told["step"]).all())
        self.assertTrue(((frame["value"] == told["value"]) | (frame["value"].isna() & told["value"].isna())).all())
        self.assertEqual(list(tenon_runs.load(zoo() / "failed").metrics().columns)[:3], ["run", "status", "metric"])


class Finding(unittest.TestCase):
    def test_numbers_of_attempts(self):
        """Folders such as 010 and 3a are no attempts, and 10 is newer than 2."""
        run = tiny_runs.copy_of("plain", "numbers")
        for name in ("010", "3a", "+7", "99999999999"):
            shutil.copytree(run / "1", run / name)
        self.assertEqual(tenon_runs.load(run).label, "2")
        self.assertEqual(json.loads(tenon("report", run, "--json"))["attempt"], 2)
        shutil.copytree(run / "1", run / "10")
        self.assertEqual(tenon_runs.load(run).label, "10")
        self.assertEqual(json.loads(tenon("report", run, "--json"))["attempt"], 10)

    def test_the_order_of_links(self):
        root = tiny_runs.scratch() / "links"
        shutil.copytree(zoo() / "plain", root / "z", symlinks=True)
        (root / "a").symlink_to("z")
        found = [run.label for run in tenon_runs.runs(root)]
        self.assertEqual(found, ["z/2"])
        self.assertEqual(tenon("export-study", root).split("\n")[1].split(",")[0], "z/2")

    def test_a_relative_folder(self):
        here = os.getcwd()
        os.chdir(zoo())
        try:
            self.assertEqual([r.label for r in tenon_runs.runs("plain")], ["2"])
            self.assertEqual([r.label for r in tenon_runs.runs("plain/2")], ["."])
            for folder in ("plain", "plain/2"):
                told = tenon("export-study", folder).split("\n")[1].split(",")[0]
                self.assertEqual(tenon_runs.runs(folder)[0].label, told)
        finally:
            os.chdir(here)

    def test_a_run_that_is_too_deep(self):
        for depth, seen in ((5, True), (6, False)):
            root = tiny_runs.scratch() / f"depth{depth}"
            below = root.joinpath(*"abcdef"[: depth - 1], "run")
            below.parent.mkdir(parents=True)
            shutil.copytree(zoo() / "plain", below, symlinks=True)
            if seen:
                self.assertEqual(len(tenon_runs.runs(root)), 1)
                tenon("export-study", root)
            else:
                with self.assertRaisesRegex(UnreadableError, "there is no run below"):
                    tenon_runs.runs(root)
                tenon("export-study", root, status=2)

    def test_no_warning_for_runs_that_can_be_read(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tenon_runs.runs(zoo())
