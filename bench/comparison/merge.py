"""Comparisons of several machines as one text: a table per class of processors, and a row from the newest comparison that has it."""
import json
import string

from . import machine, tables


def read(path):
    """A comparison.json; a file that is none ends the program."""
    try:
        with open(path) as file:
            comparison = json.load(file)
    except (OSError, ValueError) as error:
        raise SystemExit(f"bench/compare: cannot read {path}: {error}") from None
    missing = [key for key in ("date", "rounds", "torch", "machine", "rows") if not isinstance(comparison, dict) or key not in comparison]
    if missing:
        raise SystemExit(f"bench/compare: {path} is no comparison.json of bench/compare: it has no {', '.join(missing)}")
    return comparison


def class_of(comparison):
    """Files of earlier versions name features alone."""
    found = comparison["machine"]
    features = set(found.get("features", []))
    return found.get("class") or next((name for name in ("AMX", "AVX-512") if name in features), machine.OTHER)


def moment(comparison):
    return comparison.get("at", comparison["date"])


def newest_rows(comparisons):
    """[(result, index of its comparison)] in the order in which rows are first seen."""
    order, newest = [], {}
    for index, comparison in enumerate(comparisons):
        for result in comparison["rows"]:
            name = result["name"]
            if name not in newest:
                order.append(name)
            if name not in newest or moment(comparison) >= moment(comparisons[newest[name][1]]):
                newest[name] = (result, index)
    return [newest[name] for name in order]


def section(name, comparisons):
    rows = newest_rows(comparisons)
    used = sorted({index for _, index in rows})
    letters = dict(zip(used, string.ascii_lowercase)) if len(used) > 1 else {}
    lines = [f"### {name}", ""]
    for index in used:
        comparison = comparisons[index]
        mark = f"({letters[index]}) " if letters else ""
        lines += [f"- {mark}{tables.origin(comparison)}"]
        lines += [f"  - {note}" for note in comparison["machine"].get("notes", []) + comparison.get("notes", [])]
    marks = {result["name"]: f"({letters[index]})" for result, index in rows if letters}
    return lines + [""] + tables.table_lines([result for result, _ in rows], marks) + [""]


def markdown(comparisons):
    lines = []
    for name in [*machine.CLASSES, machine.OTHER]:
        own = [comparison for comparison in comparisons if class_of(comparison) == name]
        if own:
            lines += section(name, own)
    return "\n".join(lines)
