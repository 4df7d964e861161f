"""One run: an attempt's folder, read once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from .errors import UnreadableError
from .json_lines import Point, number_at, number_of, parse_metrics, read_object, text_at
from .long_table import Row, frame, long_rows
from .toml_lines import Line, parse_lines

PathLike = Union[str, Path]
_ATTEMPT = re.compile(r"[1-9][0-9]{0,9}$")


@dataclass
class Run:
    """One attempt of a run, as it was on disk when it was read."""

    folder: Path  #: the attempt
    label: str  #: the folder as the column ``run`` of tables shows it
    name: str  #: ``run.name`` of the configuration, or the folder where several runs share it
    attempt: int
    status: str = "unfinished"  #: completed, interrupted, failed; unfinished: it still runs, or was killed
    steps: float = 0
    samples: float = 0
    tokens: float = 0
    wall_s: float = 0
    bytes_sent: float = 0
    error: str = ""  #: why the run failed
    weights_hash: str = ""
    state_hash: str = ""
    final: Dict[str, float] = field(default_factory=dict)  #: last values by metric, from summary.json
    series: Dict[str, List[Point]] = field(default_factory=dict)  #: by metric, in order of steps
    config: Dict[str, Any] = field(default_factory=dict)  #: flat: ``"optimizer.lr"`` -> 0.003
    config_text: Dict[str, str] = field(default_factory=dict)  #: the same values as TOML
    origins: Dict[str, str] = field(default_factory=dict)  #: file and line, or option, that set each value
    manifest: Dict[str, Any] = field(default_factory=dict)  #: program, processor, data with checksums, seeds
    summary: Dict[str, Any] = field(default_factory=dict)  #: summary.json; empty for an unfinished run
    plugins: Dict[str, Dict[str, Any]] = field(default_factory=dict)  #: by id: version, file, sha256
    notes: List[str] = field(default_factory=list)  #: what was odd but readable

    @property
    def seeds(self) -> Dict[str, int]:
        """``seed``, ``seed_init``, ``seed_order`` and ``seed_rounding``."""
        return dict(self.manifest.get("seeds", {}))

    @property
    def hashes(self) -> Dict[str, str]:
        """Digests of weights, state and configuration, and of each data file by its path."""
        out = {"weights": self.weights_hash, "state": self.state_hash}
        out["config"] = str(self.manifest.get("config_sha256", ""))
        for entry in self.manifest.get("data", []):
            out[str(entry.get("path"))] = str(entry.get("sha256"))
        return out

    def value(self, metric: str) -> float:
        """Last value of a metric: the word of summary.json, else of the last line."""
        if metric in self.final:
            return self.final[metric]
        if self.series.get(metric):
            return self.series[metric][-1].value
        known = ", ".join(sorted({*self.final, *self.series})) or "none"
        raise KeyError(f"{self.folder} has no metric {metric!r} (it has: {known})")

    def main_metric(self) -> Optional[str]:
        """``val/loss``, else ``train/loss``, else the first by name; None for a run without lines."""
        for name in ("val/loss", "train/loss"):
            if name in self.series:
                return name
        return next(iter(self.series), None)

    def rows(self, columns: Optional[List[str]] = None) -> List[Row]:
        """A dict for each metric and step; ``columns`` are keys of the configuration."""
        return long_rows([self], columns or [])

    def metrics(self, columns: Optional[List[str]] = None) -> Any:
        """``rows`` as a DataFrame where pandas is installed."""
        return frame(self.rows(columns), columns or [])


def newest_attempt(run: Path) -> Optional[Path]:
    """The folder with the largest number below a run's folder."""
    try:
        numbers = [int(e.name) for e in run.iterdir() if _ATTEMPT.match(e.name) and e.is_dir()]
    except OSError:
        return None
    numbers = [n for n in numbers if n < 2**31]
    return run / str(max(numbers)) if numbers else None


def is_attempt(folder: Path) -> bool:
    return (folder / "metrics.jsonl").exists() and (folder / "config.resolved.toml").exists()


def attempt_of(folder: Path) -> Optional[Path]:
    """The attempt that a folder is, or its newest one, or None."""
    if is_attempt(folder):
        return folder
    newest = newest_attempt(folder)
    return newest if newest is not None and is_attempt(newest) else None


def _bytes_of(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"{path.parent}: cannot read {path.name} ({what}): {error.strerror}; the run did not get far enough to "
            f"write it, see {path.parent / 'log.rank0.txt'}"
        ) from None


def _toml(path: Path, what: str) -> List[Line]:
    try:
        return parse_lines(_bytes_of(path, what).decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path}: not UTF-8 ({error.reason})") from None


def _read_summary(run: Run) -> None:
    path = run.folder / "summary.json"
    run.summary = read_object(path)
    try:
        run.status = text_at(run.summary, "status")
        for key in ("steps", "samples", "tokens", "wall_s", "bytes_sent"):
            setattr(run, key, number_at(run.summary, key))
        metrics = run.summary.get("metrics", {})
        if not isinstance(metrics, dict):
            raise ValueError('"metrics" is no object')
        run.final = {name: number_of(value) for name, value in metrics.items()}
    except ValueError as error:
        raise UnreadableError(f"{path}: {error}") from None
    for key in ("weights_hash", "state_hash", "error"):
        value = run.summary.get(key)
        setattr(run, key, value if isinstance(value, str) else "")


def _sum_metrics(run: Run) -> None:
    """Sums of an unfinished run are those of its last lines."""
    for series in run.series.values():
        last = series[-1]
        run.steps = max(run.steps, float(last.step))
        for key in ("samples", "tokens", "wall_s", "bytes_sent"):
            setattr(run, key, max(getattr(run, key), getattr(last, key)))


def _plugins_by_id(lines: List[Line]) -> Dict[str, Dict[str, Any]]:
    """A plugin that came when the run was resumed is ``id@slot``, beside the one that it replaced."""
    entries: Dict[str, Dict[str, Any]] = {}
    for line in lines:
        place, _, key = line.key.rpartition(".")
        entries.setdefault(place, {})[key] = line.value
    out: Dict[str, Dict[str, Any]] = {}
    for place, entry in entries.items():
        name = str(entry.pop("id", place))
        first = entry.get("first_step", 0)
        out[f"{name}@{first}" if first else name] = entry
    return out


def read_attempt(attempt: Path, label: str) -> Run:
    """Reads an attempt's folder; UnreadableError names the file and line that is in the way."""
    run = Run(folder=attempt, label=label, name="", attempt=0)
    number = attempt.resolve().name
    run.attempt = int(number) if _ATTEMPT.match(number) else 0
    finished = (attempt / "summary.json").exists()
    if finished:
        _read_summary(run)
    path = attempt / "metrics.jsonl"
    run.series, run.notes = parse_metrics(_bytes_of(path, "curves"), str(path))
    if not finished:
        _sum_metrics(run)
    _bytes_of(attempt / "manifest.json", "provenance")
    run.manifest = read_object(attempt / "manifest.json")
    for line in _toml(attempt / "config.resolved.toml", "configuration"):
        run.config[line.key] = line.value
        run.config_text[line.key] = line.text
        run.origins[line.key] = line.comment
    if (attempt / "plugins.lock").exists():
        run.plugins = _plugins_by_id(_toml(attempt / "plugins.lock", "plugins"))
    else:
        run.notes.append(f"{attempt}: no plugins.lock; the plugins cannot be verified")
    run.name = str(run.config.get("run.name", "")) or attempt.resolve().parent.name
    return run


def load(folder: PathLike) -> Run:
    """The run in a folder: an attempt (``runs/tiny/2``), or the newest of a run (``runs/tiny``)."""
    root = Path(folder)
    attempt = attempt_of(root)
    if attempt is None:
        what = "is no run (a folder with metrics.jsonl and config.resolved.toml)" if root.is_dir() else "is no folder"
        raise UnreadableError(f"{root} {what}; tenon_runs.runs() finds all runs below a folder")
    return read_attempt(attempt, "." if attempt == root else attempt.name)
