"""The command line: python -m tenon_runs list | table | send."""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any, List, Optional, Sequence, Type

from . import __version__
from .errors import TenonError
from .long_table import as_csv, as_jsonl, number_text
from .run_folders import Runs, runs
from .run_record import load
from .trackers import TRACKERS, send


def _columns(found: Runs, text: Optional[str]) -> List[str]:
    if text is None:
        return found.columns()
    keys = [key for key in text.split(",") if key]
    for key in keys:
        if not any(key in run.config for run in found):
            raise TenonError(f"--columns: no run has the key '{key}'")
    return keys


def _list(options: argparse.Namespace) -> None:
    found = runs(options.folder)
    if options.json:
        rows = found.summary_rows(_columns(found, options.columns))
        print(json.dumps([{k: _plain(v) for k, v in row.items()} for row in rows], indent=1))
        return
    keys = _columns(found, options.columns)
    table = [["run", "status", "steps", "metric", "last", *keys]]
    for run in found:
        metric = run.main_metric()
        last = "" if metric is None else f"{run.value(metric):.6g}"
        config = [run.config_text.get(key, "") for key in keys]
        table.append([run.label, run.status, number_text(run.steps), metric or "", last, *config])
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def _plain(value: Any) -> Any:
    """JSON has no NaN and infinity: they are texts, as in `table --to jsonl`."""
    return number_text(value) if isinstance(value, float) and not math.isfinite(value) else value


def _table(options: argparse.Namespace) -> None:
    found = runs(options.folder)
    keys = _columns(found, options.columns)
    text = as_csv(found, keys) if options.to == "csv" else as_jsonl(found, keys)
    if options.out:
        Path(options.out).write_text(text, encoding="utf-8")
        print(options.out)
    else:
        sys.stdout.write(text)


def _send(options: argparse.Namespace) -> None:
    offline = True if options.offline else None
    print(send(load(options.run), options.to, options.project, options.folder, offline))


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m tenon_runs", description="Looks at runs of Tenon, and sends them to trackers."
    )
    out.add_argument("--version", action="version", version=f"tenon_runs {__version__}")
    commands = out.add_subparsers(metavar="COMMAND", required=True)

    one = commands.add_parser("list", help="a line for each run below a folder")
    one.add_argument("folder", metavar="DIR")
    one.add_argument("--columns", metavar="KEY,KEY...", help="keys of the configuration; else those that differ")
    one.add_argument("--json", action="store_true", help="all of it as JSON")
    one.set_defaults(act=_list)

    one = commands.add_parser("table", help="all metrics of all runs, as `tenon export-study` writes them")
    one.add_argument("folder", metavar="DIR")
    one.add_argument("--to", choices=("csv", "jsonl"), default="csv")
    one.add_argument("--columns", metavar="KEY,KEY...", help="keys of the configuration; else those that differ")
    one.add_argument("--out", metavar="FILE", help="write there instead of standard output")
    one.set_defaults(act=_table)

    one = commands.add_parser("send", help="send a run that has ended to a tracker")
    one.add_argument("run", metavar="RUN", help="an attempt, or its parent for the newest")
    one.add_argument("--to", choices=TRACKERS, required=True)
    one.add_argument("--project", default="tenon", help="project or experiment there (default: tenon)")
    one.add_argument("--folder", metavar="DIR", help="the local store (default: the tracker's own)")
    one.add_argument("--offline", action="store_true", help="use no network, even if there is one")
    one.set_defaults(act=_send)
    return out


def _show(message: Any, category: Type[Warning], *_: Any, **__: Any) -> None:
    print(f"tenon_runs: warning: {message}", file=sys.stderr)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Exit status: 0 ok, 1 error, 2 usage."""
    options = parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _show
        try:
            options.act(options)
            sys.stdout.flush()
        except (TenonError, OSError) as error:
            print(f"tenon_runs: {error}", file=sys.stderr)
            return 1
    return 0
