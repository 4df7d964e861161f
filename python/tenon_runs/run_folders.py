"""All runs below a folder."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from .errors import RunWarning, UnreadableError
from .long_table import Row, differing_keys, frame, long_rows
from .run_record import PathLike, Run, attempt_of, read_attempt

_DEEPEST = 5  # folders below the first one, as `tenon report` looks


class Runs(List[Run]):
    """A list of runs with tables over them."""

    def columns(self) -> List[str]:
        """The keys of the configuration whose values differ between the runs."""
        return differing_keys(self)

    def _columns(self, columns: Optional[Iterable[str]]) -> List[str]:
        return self.columns() if columns is None else list(columns)

    def rows(self, columns: Optional[Iterable[str]] = None) -> List[Row]:
        """A dict for each run, metric and step, with the columns of ``tenon export-study``."""
        return long_rows(self, self._columns(columns))

    def metrics(self, columns: Optional[Iterable[str]] = None) -> Any:
        """``rows`` as a DataFrame where pandas is installed, else the list."""
        return frame(self.rows(columns), self._columns(columns))

    def summary_rows(self, columns: Optional[Iterable[str]] = None) -> List[Row]:
        """A dict for each run: status, sums, hash of the weights, last value of each metric, configuration."""
        keys = self._columns(columns)
        metrics = sorted({name for run in self for name in run.series})
        rows: List[Row] = []
        for run in self:
            row: Row = {"run": run.label, "name": run.name, "status": run.status, "steps": run.steps}
            row.update(samples=run.samples, tokens=run.tokens, wall_s=run.wall_s, bytes_sent=run.bytes_sent)
            row["weights_hash"] = run.weights_hash
            row.update({name: run.value(name) if name in run.series else None for name in metrics})
            row.update({key: run.config.get(key) for key in keys})
            rows.append(row)
        return rows

    def summaries(self, columns: Optional[Iterable[str]] = None) -> Any:
        """``summary_rows`` as a DataFrame where pandas is installed, else the list."""
        return frame(self.summary_rows(columns))


def _find(folder: Path, depth: int, seen: Set[str], attempts: List[Path]) -> None:
    """Links are followed after the folders beside them, so that a run reached by both has the folder's name."""
    real = os.path.realpath(folder)
    if depth > _DEEPEST or real in seen:
        return
    seen.add(real)
    attempt = attempt_of(folder)
    if attempt is not None:
        attempts.append(attempt)
        return
    children: List[Tuple[bool, str]] = []
    try:
        with os.scandir(folder) as entries:
            children = [(e.is_symlink(), e.name) for e in entries if e.is_dir()]
    except OSError:
        return
    for _, name in sorted(children):
        _find(folder / name, depth + 1, seen, attempts)


def runs(folder: PathLike) -> Runs:
    """Every run below a folder, in the order of their folders: of each its newest attempt.

    A run that cannot be read is left out with a RunWarning. A folder without runs is an error.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UnreadableError(f"{root} is no folder")
    attempts: List[Path] = []
    _find(root, 0, set(), attempts)
    found = Runs()
    for attempt in sorted(attempts, key=str):
        try:
            found.append(read_attempt(attempt, os.path.relpath(attempt, root)))
        except UnreadableError as error:
            warnings.warn(f"left out: {error}", RunWarning, stacklevel=2)
    if not found:
        raise UnreadableError(f"there is no run below '{root}' (a folder with metrics.jsonl and config.resolved.toml)")
    bearers: Dict[str, int] = Counter(run.name for run in found)
    for run in found:
        if bearers[run.name] > 1:
            run.name = os.path.relpath(run.folder.parent, root)
    return found
