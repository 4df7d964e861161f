"""Starts the program ``tenon``: runs, studies, exports. What it says on the way appears on standard error."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, List, Optional, Sequence

from .errors import ProgramError, ProgramMissingError
from .run_record import PathLike, Run, load
from .studies import Study, study


def find_program(program: Optional[PathLike] = None) -> str:
    """The program: the argument, else the environment variable TENON, else ``tenon`` on PATH."""
    named = program or os.environ.get("TENON")
    source = "the argument program" if program else "the environment variable TENON"
    found = shutil.which(str(named or "tenon"))
    if found is None and named:
        raise ProgramMissingError(f"{source} names '{named}', which is no program")
    if found is None:
        raise ProgramMissingError("there is no program tenon on PATH; set TENON=/path/to/tenon, or pass program=")
    return os.path.abspath(found)


def _listen(stream: Any, lines: List[str], show: bool) -> None:
    for raw in stream:
        line = raw.rstrip("\r\n")
        lines.append(line)
        if show:
            try:
                print(line, file=sys.stderr, flush=True)
            except (OSError, ValueError):  # a closed stream; the program must not wait for a reader
                show = False


def _end(process: "subprocess.Popen[str]") -> None:
    """Asks the program to end, which saves first; a second interrupt ends it at once."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    try:
        process.stdout.read()  # the program must not wait for a reader
        process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()


def call(
    arguments: Sequence[str], program: Optional[PathLike] = None, progress: bool = True, cwd: Optional[PathLike] = None
) -> str:
    """Runs ``tenon ARGUMENTS`` and returns what it wrote to standard output; ProgramError where it fails."""
    command = [find_program(program), *arguments]
    words: List[str] = []
    with subprocess.Popen(
        command,
        cwd=None if cwd is None else str(cwd),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        listener = threading.Thread(target=_listen, args=(process.stderr, words, progress), daemon=True)
        listener.start()
        assert process.stdout is not None
        try:
            output = process.stdout.read()
            process.wait()
        except KeyboardInterrupt:
            _end(process)
            raise
        finally:
            listener.join(timeout=10)
    if process.returncode != 0:
        raise _failure(arguments, process.returncode, words, output, cwd)
    return output


def _failure(
    arguments: Sequence[str], status: int, words: List[str], output: str, cwd: Optional[PathLike]
) -> ProgramError:
    said = [line for line in words if line.startswith("tenon") and ": warning: " not in line]
    text = "\n".join(said) or output.strip() or "\n".join(words[-5:])
    return ProgramError("tenon " + " ".join(arguments[:2]), status, text, _folder_in(output, cwd))


def _folder_in(output: str, cwd: Optional[PathLike]) -> Optional[str]:
    """The folder that the last line names: ``...  ->  RUN``, or ``STUDY/report.html``."""
    last = output.rstrip("\n").split("\n")[-1]
    folder = None
    if "  ->  " in last:
        folder = last.rsplit("  ->  ", 1)[1]
    elif last.endswith("/report.html"):
        folder = os.path.dirname(last)
    return None if folder is None else os.path.join(str(cwd or ""), folder)


def _sets(sets: Sequence[str]) -> List[str]:
    if isinstance(sets, str):
        raise TypeError(f'sets is a list, e.g. ["{sets}"]')
    return [word for one in sets for word in ("--set", one)]


def train(
    config: PathLike,
    sets: Sequence[str] = (),
    run_dir: Optional[PathLike] = None,
    options: Sequence[str] = (),
    program: Optional[PathLike] = None,
    progress: bool = True,
    cwd: Optional[PathLike] = None,
) -> Run:
    """``tenon train CONFIG``; returns the run when it has ended.

    ``sets`` are changes such as "optimizer.lr=0.01", ``run_dir`` the folder for attempts (default runs/NAME),
    ``options`` further words such as "--resume". A run that fails raises ProgramError, whose ``folder`` can still be
    loaded.
    """
    arguments = ["train", str(config), *_sets(sets), *options]
    if run_dir is not None:
        arguments += ["--run-dir", str(run_dir)]
    output = call(arguments, program, progress, cwd)
    folder = _folder_in(output, cwd)
    if folder is None:
        raise ProgramError("tenon train", 0, f"it named no folder of a run: {output.strip()!r}")
    return load(folder)


def ab(
    experiment: PathLike,
    out: Optional[PathLike] = None,
    sets: Sequence[str] = (),
    jobs: int = 1,
    options: Sequence[str] = (),
    program: Optional[PathLike] = None,
    progress: bool = True,
    cwd: Optional[PathLike] = None,
) -> Study:
    """``tenon ab EXPERIMENT``; returns the study with its verdict.

    Where runs fail, or must not be compared, it raises ProgramError, whose ``folder`` can be read by ``study``.
    """
    arguments = ["ab", str(experiment), *_sets(sets), "--jobs", str(jobs), *options]
    if out is not None:
        arguments += ["--out", str(out)]
    output = call(arguments, program, progress, cwd)
    folder = _folder_in(output, cwd)
    if folder is None:
        raise ProgramError("tenon ab", 0, f"it named no report: {output.strip()!r}")
    return study(folder)


def export(
    run: PathLike,
    out: PathLike,
    options: Sequence[str] = (),
    program: Optional[PathLike] = None,
    cwd: Optional[PathLike] = None,
) -> Path:
    """``tenon export RUN --out FILE``: the verified weights of a run, for ``tensors``. Returns the file."""
    call(["export", str(run), "--out", str(out), *options], program, False, cwd)
    return Path(cwd or "") / out
