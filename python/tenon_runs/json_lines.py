"""Reader of the JSON that Tenon writes: metrics.jsonl, summary.json, manifest.json, report.json.

JSON has no NaN and no infinity. Where a number belongs, null and the texts nan, inf and -inf stand for them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, NoReturn, Tuple

from .errors import UnreadableError

_TEXTS = {
    "Infinity": math.inf,
    "inf": math.inf,
    "-Infinity": -math.inf,
    "-inf": -math.inf,
    "NaN": math.nan,
    "nan": math.nan,
}


class Point(NamedTuple):
    """One value of a metric, and what the run had consumed by then."""

    step: int
    value: float
    wall_s: float
    samples: float
    tokens: float
    bytes_sent: float


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def parse_json(text: str) -> Any:
    """Strict JSON: a bare NaN or Infinity is refused. ValueError where the text is none."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def number_of(value: Any) -> float:
    """The number that a JSON value stands for; ValueError where it is none."""
    if value is None:
        return math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"the number of {len(str(value))} digits is too large") from None
    if isinstance(value, str) and value in _TEXTS:
        return _TEXTS[value]
    raise ValueError(f"expected a number, found {json.dumps(value)[:60]}")


def number_at(table: Dict[str, Any], key: str) -> float:
    if key not in table:
        raise ValueError(f'"{key}" is missing')
    return number_of(table[key])


def text_at(table: Dict[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise ValueError(f'"{key}" is missing or no text')
    return value


def read_object(path: Path) -> Dict[str, Any]:
    """A file that holds one JSON object."""
    try:
        value = parse_json(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UnreadableError(f"{path}: not valid JSON; the file is damaged or was cut short ({error})") from None
    if not isinstance(value, dict):
        raise UnreadableError(f"{path}: expected an object")
    return value


def _metric_line(line: bytes) -> Tuple[str, Point]:
    value = parse_json(line.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    metric = text_at(value, "split") + "/" + text_at(value, "name")
    step = number_at(value, "step")
    if not abs(step) < 9e15:
        raise ValueError('"step" is not a count')
    rest = [number_at(value, key) for key in ("value", "wall_s", "samples", "tokens", "bytes_sent")]
    return metric, Point(int(step), *rest)


def parse_metrics(text: bytes, where: str) -> Tuple[Dict[str, List[Point]], List[str]]:
    """The series of metrics.jsonl by name, in order of their steps, and notes.

    A last line without newline that is cut short is dropped with a note: the run may be writing it. Any other broken
    line is an error. A run that was resumed may repeat steps; the later line counts.
    """
    series: Dict[str, Dict[int, Point]] = {}
    notes: List[str] = []
    lines = text.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip(b" \t\r"):
            continue
        try:
            metric, point = _metric_line(line)
        except ValueError as error:
            if number == len(lines):
                notes.append(f"{where}:{number}: the last line is cut short and was dropped")
                break
            raise UnreadableError(f"{where}:{number}: not a metric line: {error}") from None
        series.setdefault(metric, {})[point.step] = point
    ordered = {name: [series[name][step] for step in sorted(series[name])] for name in sorted(series)}
    return ordered, notes
