"""Runs what documents show: the code of a page, and the cells of a notebook.

python3 -m tests.documents FILE.ipynb       from the folder python: writes the outputs of the cells anew
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

from .tiny_runs import PROGRAM, ROOT


class Block(NamedTuple):
    language: str
    text: str
    line: int
    file: str  #: the last file.toml that the page names before the block

    def missing(self) -> List[str]:
        """Packages that its first line, ``# needs NAME...``, asks for and that are absent."""
        first = self.text.split("\n", 1)[0]
        names = first[len("# needs ") :].split() if first.startswith("# needs ") else []
        return [name for name in names if importlib.util.find_spec(name) is None]


def blocks(page: str) -> List[Block]:
    found = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S):
        before = page[: match.start()]
        files = re.findall(r"`([\w.-]+\.toml)`", before)
        found.append(Block(match.group(1), match.group(2), before.count("\n") + 1, files[-1] if files else ""))
    return found


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Dict[str, str]]:
    """A folder that looks like the root of the tree, with tenon and python3 on PATH; yields the environment."""
    (folder / ".bin").mkdir(parents=True)
    for name in ("configs", "data", "python"):
        (folder / name).symlink_to(ROOT / name)
    for name, program in (("python3", sys.executable), ("tenon", PROGRAM)):
        script = folder / ".bin" / name
        script.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        script.chmod(0o755)
    here, before = os.getcwd(), dict(os.environ)
    os.environ.pop("TENON", None)
    os.environ.update(
        PATH=f"{folder / '.bin'}:{before['PATH']}",
        PYTHONPATH=str(folder / "python"),
        PYTHONDONTWRITEBYTECODE="1",
        HOME=str(folder),
        WANDB_SILENT="true",
    )
    os.chdir(folder)
    try:
        yield dict(os.environ)
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


def run_python(code: str, names: Dict[str, Any], where: str) -> str:
    """What code prints; the last expression of a cell is shown, too, as notebooks do."""
    tree = ast.parse(code, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
            if value is not None:
                print(repr(value))
    return out.getvalue()


def run_shell(code: str, environment: Dict[str, str]) -> str:
    done = subprocess.run(["bash", "-euc", code], env=environment, capture_output=True, encoding="utf-8", timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}: {code}\n{done.stdout}{done.stderr}")
    return done.stdout


def same(expected: str, found: str) -> bool:
    """Equal, where ``...`` in the expected text stands for anything."""
    return doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS)


class Cell(NamedTuple):
    source: str
    stored: str
    varies: bool  #: its output differs between machines, and is not compared


def cells(notebook: Dict[str, Any]) -> List[Cell]:
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            stored = "".join("".join(output["text"]) for output in cell["outputs"])
            found.append(Cell("".join(cell["source"]), stored, bool(cell["metadata"].get("varies"))))
    return found


def write_outputs(path: Path) -> None:
    """Runs a notebook and stores its outputs."""
    from .tiny_runs import scratch

    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: Dict[str, Any] = {}
    path = path.absolute()
    with workplace(scratch() / "write"):
        count = 0
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            count += 1
            text = run_python("".join(cell["source"]), names, f"cell {count}")
            cell["execution_count"] = count
            cell["outputs"] = []
            if text:
                cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text.splitlines(True)}]
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_outputs(Path(sys.argv[1]))
