"""Metrics in long form: a row per run, metric and step. The columns are those of ``tenon export-study``."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence

if TYPE_CHECKING:
    from .run_record import Run

Row = Dict[str, Any]
COLUMNS = ["run", "status", "metric", "step", "value", "wall_s", "samples", "tokens", "bytes_sent"]


def differing_keys(runs: Sequence[Run]) -> List[str]:
    """In the order of their names; an absent key differs from any value."""
    keys = {key for run in runs for key in run.config_text}
    return sorted(key for key in keys if len({run.config_text.get(key) for run in runs}) > 1)


def long_rows(runs: Iterable[Run], keys: Sequence[str], as_text: bool = False) -> List[Row]:
    """Values of the configuration are None where a run lacks the key; with ``as_text`` they are texts as in TOML."""
    rows: List[Row] = []
    for run in runs:
        tail = {key: _text(run, key) if as_text else run.config.get(key) for key in keys}
        for metric, series in run.series.items():
            for point in series:
                rows.append({"run": run.label, "status": run.status, "metric": metric, **point._asdict(), **tail})
    return rows


def _text(run: Run, key: str) -> str:
    text = run.config_text.get(key, "")
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


def frame(rows: List[Row], keys: Optional[Sequence[str]] = None) -> Any:
    """A DataFrame where pandas is installed, else the rows themselves.

    With ``keys`` the rows are of the long form, whose columns an empty table has, too.
    """
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=None if keys is None else COLUMNS + list(keys))


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text


def as_csv(runs: Iterable[Run], keys: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS + list(keys))
    for row in long_rows(runs, keys, as_text=True):
        writer.writerow([v if isinstance(v, str) else number_text(v) for v in row.values()])
    return out.getvalue()


def as_jsonl(runs: Iterable[Run], keys: Sequence[str]) -> str:
    """JSON has no number for NaN and infinity: they are texts."""
    lines = []
    for row in long_rows(runs, keys, as_text=True):
        plain = {k: v if isinstance(v, str) or math.isfinite(v) else number_text(v) for k, v in row.items()}
        lines.append(json.dumps(plain, ensure_ascii=False) + "\n")
    return "".join(lines)
