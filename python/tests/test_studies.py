"""Studies against report.json, and numbers that are computed again from the runs' summaries."""

import json
import statistics
import unittest

import tenon_runs
from tenon_runs.errors import UnreadableError

from .tiny_runs import finished_study, scratch, tenon


def last(folder, arm, seed):
    summary = json.loads((folder / "runs" / arm / str(seed) / "1/summary.json").read_text())
    return summary["metrics"]["val/loss"]


class Studies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = finished_study()
        cls.study = tenon_runs.study(cls.folder)
        cls.report = json.loads(tenon("report", cls.folder, "--json"))

    def test_question(self):
        self.assertEqual((self.study.name, self.study.arms), ("rate", ["plain", "slow", "same"]))
        self.assertEqual(self.study.experiment["seeds"], [1, 2, 3])
        self.assertTrue(self.study.finished)

    def test_verdict(self):
        self.assertEqual(self.study.verdict.headline, self.report["verdict"]["headline"])
        self.assertEqual(self.study.verdict.sentences, self.report["verdict"]["sentences"])
        self.assertIn(self.study.verdict.headline, str(self.study.verdict))
        self.assertEqual([c.verdict.outcome for c in self.study.comparisons], ["worse", "identical"])
        self.assertEqual(self.study.refusals, [])

    def test_pairs_effect_and_interval(self):
        slow = self.study.comparison("slow")
        pairs = [(seed, last(self.folder, "plain", seed), last(self.folder, "slow", seed)) for seed in (1, 2, 3)]
        self.assertEqual([(p["seed"], p["baseline"], p["other"]) for p in slow.pairs], pairs)
        differences = [b - a for _, a, b in pairs]
        self.assertEqual([p["difference"] for p in slow.pairs], differences)
        self.assertAlmostEqual(slow.effect, statistics.mean(differences), places=12)
        # Student's t with 2 degrees of freedom at 97.5 % is 4.302653.
        half = 4.302653 * statistics.stdev(differences) / 3**0.5
        self.assertAlmostEqual(slow.interval[0], slow.effect - half, places=6)
        self.assertAlmostEqual(slow.interval[1], slow.effect + half, places=6)
        told = next(c for c in self.report["comparisons"] if c["other"] == "slow")["primary"]
        self.assertEqual((slow.p, slow.p_adjusted), (told["p_t"], told["p_adjusted"]))
        self.assertGreater(slow.p_adjusted, slow.p)

    def test_runs(self):
        found = self.study.runs()
        self.assertEqual([r.name for r in found], [f"{a}/{s}" for a in self.study.arms for s in (1, 2, 3)])
        told = {run["folder"]: run["weights_hash"] for arm in self.report["arms"] for run in arm["runs"]}
        self.assertEqual({str(r.folder): r.weights_hash for r in found}, told)
        self.assertEqual([r.seeds["seed"] for r in self.study.runs("slow")], [1, 2, 3])

    def test_names_that_are_none(self):
        with self.assertRaisesRegex(KeyError, "plain, slow, same"):
            self.study.runs("fast")
        with self.assertRaisesRegex(KeyError, "no comparison with an arm 'plain'"):
            self.study.comparison("plain")


class Bad(unittest.TestCase):
    def folder(self, name, **files):
        folder = scratch() / "bad-studies" / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / f"{file}.json").write_text(text)
        return folder

    def test_refusals(self):
        record = (finished_study() / "experiment.json").read_text()
        cases = [
            (self.folder("none"), "holds no study"),
            (self.folder("other", experiment='{"format": "x/1"}'), "format 'x/1' is not tenon.ab.experiment/1"),
            (self.folder("cut", experiment=record, report='{"format": "tenon.ab'), r"report\.json: not valid JSON"),
            (
                self.folder(
                    "ladder",
                    experiment=record,
                    report='{"format": "tenon.ab.ladder/1", "points": [{"name": "w24"}, {"name": "w32"}]}',
                ),
                r"holds a ladder, whose points are the studies: .*/points/w24, .*/points/w32",
            ),
            (self.folder("old", experiment=record, report="{}"), "format None is not tenon.ab.report/1"),
        ]
        for folder, pattern in cases:
            with self.subTest(pattern), self.assertRaisesRegex(UnreadableError, pattern):
                tenon_runs.study(folder)

    def test_a_study_that_has_not_ended(self):
        study = tenon_runs.study(self.folder("begun", experiment=(finished_study() / "experiment.json").read_text()))
        self.assertFalse(study.finished)
        self.assertEqual((study.arms, list(study.runs())), (["plain", "slow", "same"], []))
        with self.assertRaisesRegex(UnreadableError, "has not ended"):
            study.verdict
