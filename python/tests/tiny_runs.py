"""Tiny real runs for the tests, and the program itself, called without the package under test.

The program is the one of the environment variable TENON, else the release build of this tree.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/base/gpt_micro.toml"
TINY = ["run.steps=4", "run.log_every=2", "run.eval_every=2", "run.eval_batches=2"]
PROGRAM = os.environ.get("TENON") or str(ROOT / "build/release/bin/tenon")
if not os.access(PROGRAM, os.X_OK):
    raise FileNotFoundError(f"there is no program {PROGRAM}: build it, or set TENON")


def tenon(*arguments: Any, status: int = 0, cwd: Any = None) -> str:
    """Standard output of ``tenon ARGUMENTS``, which must end with this exit status."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=cwd, capture_output=True, encoding="utf-8", timeout=120)
    if done.returncode != status:
        raise AssertionError(f"tenon {arguments}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def train(folder: Path, *sets: str, config: Path = CONFIG, status: int = 0, tiny: bool = True) -> Path:
    """A run below ``folder``; returns the folder of its attempts."""
    words = [word for one in [*(TINY if tiny else []), *sets] for word in ("--set", one)]
    tenon("train", config, "--quiet", "--run-dir", folder, *words, status=status)
    return folder


@functools.lru_cache(maxsize=None)
def scratch() -> Path:
    """A folder that goes when the tests have ended."""
    folder = tempfile.mkdtemp(prefix="tenon-runs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.lru_cache(maxsize=None)
def zoo() -> Path:
    """Runs of all kinds below one folder: do not change what is in it; ``copy_of`` gives one to break."""
    root = scratch() / "zoo"
    train(root / "plain")
    train(root / "plain", "run.seed=2")  # a second attempt
    train(root / "deep/er/saved", "recovery.type=full", "recovery.every=2", 'run.name="other"')
    train(root / "nan", "optimizer.lr=1e30", "run.on_nan=continue", "run.steps=8")
    train(root / "failed", "optimizer.lr=1e30", status=1)
    train(root / "odd", 'run.name="odd \\"x\\" # é, y"', "optimizer.betas=[0.5, 0.75]")
    unfinished = root / "unfinished/1"
    shutil.copytree(root / "plain/1", unfinished)
    (unfinished / "summary.json").unlink()
    with open(unfinished / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 5, "split": "tr')
    (root / "link").symlink_to("plain")
    (root / "link-to-all").symlink_to(".")
    (root / "empty/folder").mkdir(parents=True)
    return root


def copy_of(run: str, name: str) -> Path:
    """A copy of a run of the zoo, in a folder of its own."""
    target = scratch() / "copies" / name / "run"
    shutil.copytree(zoo() / run, target, symlinks=True)
    return target


QUESTION = f"""
question = "Does a tenth of the rate help?"
base = "{CONFIG}"
seeds = [1, 2, 3]
metric = "val/loss"
margin = 0.02
budget = {{ steps = 4 }}

[[arm]]
name = "plain"
set = ["run.eval_batches=2"]

[[arm]]
name = "slow"
set = ["run.eval_batches=2", "optimizer.lr=3e-4"]

[[arm]]
name = "same"
set = ["run.eval_batches=2"]
"""


def question(name: str, text: str = QUESTION) -> Path:
    path = scratch() / f"{name}.toml"
    path.write_text(text)
    return path


@functools.lru_cache(maxsize=None)
def finished_study() -> Path:
    folder = scratch() / "study"
    tenon("ab", question("rate"), "--out", folder)
    return folder
