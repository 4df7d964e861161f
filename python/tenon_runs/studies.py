"""Studies of ``tenon ab``: a folder with experiment.json, runs, and report.json once there is a verdict."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .errors import UnreadableError
from .json_lines import read_object
from .long_table import Row
from .run_folders import Runs
from .run_record import PathLike, attempt_of, read_attempt

Interval = Tuple[Optional[float], Optional[float]]


@dataclass(frozen=True)
class Verdict:
    """``outcome`` is identical, equivalent, better, worse, inconclusive or none (docs/ab.md says what they mean)."""

    outcome: str
    headline: str
    sentences: List[str]

    def __str__(self) -> str:
        return "\n".join([self.headline, *("  " + sentence for sentence in self.sentences)])


@dataclass(frozen=True)
class Comparison:
    """An arm against the first one. A number is None where the pairs do not define it: one pair has no interval."""

    baseline: str
    other: str
    metric: str
    verdict: Verdict
    effect: Optional[float]  #: mean of the differences, other minus baseline
    interval: Interval  #: of the effect, at the level 1 - alpha
    p: Optional[float]  #: of the deciding test, before the adjustment for several arms
    p_adjusted: Optional[float]
    pairs: List[Row]  #: seed, baseline, other, difference
    facts: Dict[str, Any]  #: the whole entry of report.json


@dataclass(frozen=True)
class Study:
    """A study as it was on disk when it was read."""

    folder: Path
    experiment: Dict[str, Any]  #: question, seeds, budget, metric, margin, alpha, arms, ...
    report: Dict[str, Any]  #: report.json; empty before the study has ended

    @property
    def name(self) -> str:
        return str(self.experiment["name"])

    @property
    def arms(self) -> List[str]:
        """Names, the baseline first."""
        return [str(arm["name"]) for arm in self.experiment["arms"]]

    @property
    def finished(self) -> bool:
        return bool(self.report)

    def _reported(self) -> Dict[str, Any]:
        if not self.report:
            raise UnreadableError(
                f"{self.folder} has no report.json: the study has not ended; `tenon ab` makes its runs"
            )
        return self.report

    @property
    def verdict(self) -> Verdict:
        """Of the whole study; for two arms that of their comparison."""
        return _verdict(self._reported()["verdict"])

    @property
    def refusals(self) -> List[str]:
        """Why the runs must not be compared; then the outcome is none."""
        return list(self._reported()["refusals"])

    @property
    def comparisons(self) -> List[Comparison]:
        """One for each arm but the first."""
        test = "p_sign_flip" if self.experiment["test"] == "sign_flip" else "p_t"
        return [_comparison(entry, test) for entry in self._reported()["comparisons"]]

    def comparison(self, other: str) -> Comparison:
        """Of the arm with this name."""
        for one in self.comparisons:
            if one.other == other:
                return one
        raise KeyError(f"{self.folder}: no comparison with an arm {other!r} (arms: {', '.join(self.arms)})")

    def runs(self, arm: Optional[str] = None) -> Runs:
        """The newest attempt for each arm and seed that has one, in the order of arms and seeds."""
        if arm is not None and arm not in self.arms:
            raise KeyError(f"{self.folder} has no arm {arm!r} (arms: {', '.join(self.arms)})")
        found = Runs()
        for name in self.arms if arm is None else [arm]:
            for seed in self.experiment["seeds"]:
                parent = self.folder / "runs" / name / str(seed)
                attempt = attempt_of(parent)
                if attempt is not None:
                    run = read_attempt(attempt, os.path.relpath(attempt, self.folder))
                    run.name = f"{name}/{seed}"
                    found.append(run)
        return found


def _verdict(entry: Dict[str, Any]) -> Verdict:
    return Verdict(entry["outcome"], entry["headline"], list(entry["sentences"]))


def _comparison(entry: Dict[str, Any], test: str) -> Comparison:
    primary = entry["primary"]
    difference = primary["difference"] or {}
    low, high = difference.get("interval") or (None, None)
    pairs = [
        {"seed": seed, "baseline": a, "other": b, "difference": d}
        for seed, a, b, d in zip(entry["seeds"], primary["baseline"], primary["other"], primary["differences"])
    ]
    return Comparison(
        baseline=entry["baseline"],
        other=entry["other"],
        metric=primary["metric"],
        verdict=_verdict(entry["verdict"]),
        effect=difference.get("mean"),
        interval=(low, high),
        p=primary[test],
        p_adjusted=primary["p_adjusted"],
        pairs=pairs,
        facts=entry,
    )


def study(folder: PathLike) -> Study:
    """The study in a folder, whether it has ended or not."""
    root = Path(folder)
    if not (root / "experiment.json").exists():
        raise UnreadableError(f"{root} holds no study of `tenon ab` (there is no experiment.json)")
    record = read_object(root / "experiment.json")
    if record.get("format") != "tenon.ab.experiment/1":
        raise UnreadableError(
            f"{root / 'experiment.json'}: format {record.get('format')!r} is not tenon.ab.experiment/1"
        )
    report: Dict[str, Any] = {}
    if (root / "report.json").exists():
        report = read_object(root / "report.json")
        if report.get("format") == "tenon.ab.ladder/1":
            points = ", ".join(str(root / "points" / point["name"]) for point in report["points"])
            raise UnreadableError(f"{root} holds a ladder, whose points are the studies: {points}")
        if report.get("format") != "tenon.ab.report/1":
            raise UnreadableError(f"{root / 'report.json'}: format {report.get('format')!r} is not tenon.ab.report/1")
    return Study(root, record["experiment"], report)
