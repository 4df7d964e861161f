"""Makes what a comparison needs: our programs, an interpreter that has PyTorch, and on AMD a library that lets MKL use the
processor as it is."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from . import machine, processes

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
FLAGS = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", "-DTENON_BUILD_TESTS=OFF", "-DTENON_BUILD_CONFORMANCE=OFF",
         "-DTENON_BUILD_BENCH=ON"]
# MKL asks this before it takes its kernels for AVX2 and AVX-512, and says no on processors of other makers.
VENDOR_CHECK = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def say(text):
    print(text, file=sys.stderr, flush=True)


def progress(text):
    """Prints the current activity; on a terminal it replaces the previous line."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
    else:
        say(text)


def end_progress():
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def run_and_show(command, log):
    """The command's exit status; its output goes to `log`, and the percents of a build are shown as they pass."""
    shown = -1
    environment = {**os.environ, "NINJA_STATUS": "[%p] "}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as child:
        for line in child.stdout:
            log.write(line)
            percent = re.match(r"\[ *(\d+)%\]", line)
            if percent and int(percent[1]) // 10 > shown:
                shown = int(percent[1]) // 10
                progress(f"  built {10 * shown} %")
    end_progress()
    return child.returncode


def build(folder, target="compare_programs", program="bench/compare"):
    """Configures where that was never done, and builds what is missing; ends the program when it cannot."""
    begin = time.monotonic()
    say(f"building the programs of {program} in {folder}")
    steps = [["cmake", "--build", str(folder), "--target", target]]
    if not (folder / "CMakeCache.txt").exists():
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        steps.insert(0, ["cmake", *generator, "-S", str(SOURCE), "-B", str(folder), *FLAGS])
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{pathlib.Path(program).name}.log"
    for command in steps:
        with open(log, "w") as out:
            try:
                status = run_and_show(command, out)
            except FileNotFoundError:
                raise SystemExit(f"{program}: there is no cmake; scripts/deps installs what building needs") from None
        if status != 0:
            raise SystemExit(f"{program}: '{' '.join(command)}' failed; its last lines:\n" +
                             "\n".join(log.read_text().splitlines()[-15:]))
    say(f"built in {time.monotonic() - begin:.0f} s")


def torch_of(python):
    """(version, "") of the interpreter's PyTorch, or (None, reason)."""
    try:
        found = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    except OSError as error:
        return None, f"{python}: {error.strerror}"
    if found.returncode != 0:
        return None, f"{python}: {processes.last_line(found.stderr)}"
    return found.stdout.strip(), ""


# PyTorch carries libraries of its own, which decide as much as its own version does.
CARRIED = r"""
import json, re, torch
shown = torch.__config__.show()
found = {"torch": torch.__version__}
for name, pattern in (("oneDNN", r"(?:MKL-DNN|oneDNN)\)? v([\d.]+)"), ("MKL", r"Math Kernel Library Version ([\w.-]+(?: \w+ \d+)?)"), ("compiler", r"(GCC [\d.]+|clang [\d.]+)")):
    match = re.search(pattern, shown)
    if match:
        found[name] = match[1]
try:
    import numpy
    found["numpy"] = numpy.__version__
except ImportError:
    pass
print(json.dumps(found))
"""


def versions_of_peers(python):
    """{name: version} of PyTorch and of what it carries; {} where it cannot tell."""
    done = subprocess.run([python, "-c", CARRIED], capture_output=True, text=True)
    return processes.figures_in(done.stdout) if done.returncode == 0 else {}


def own_version():
    """"COMMIT", "COMMIT, changed", or "unknown" outside a repository."""
    try:
        done = subprocess.run(["git", "-C", str(SOURCE), "describe", "--always", "--dirty=, changed"], capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def environment_with_torch(folder, pip_words):
    """The interpreter of a virtual environment in `folder`, made anew unless one is there; (path, reason why not)."""
    python = str(folder / "bin" / "python")
    if torch_of(python)[0]:
        return python, ""
    begin = time.monotonic()
    say(f"installing PyTorch into {folder}")
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "torch", "numpy", *pip_words]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return None, f"'{' '.join(command)}' failed: {processes.last_line(done.stderr or done.stdout)}"
    version, reason = torch_of(python)
    say(f"PyTorch {version} installed in {time.monotonic() - begin:.0f} s")
    return (python, "") if version else (None, reason)


def vendor_check(folder, amd=None):
    """(library to preload, what was done): on AMD only, where a C compiler is."""
    if not (machine.is_amd() if amd is None else amd):
        return None, "no preloaded library: MKL takes all of this processor by itself"
    compiler = next((path for path in map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")) if path), None)
    if compiler is None:
        return None, "no preloaded library: there is no C compiler to make it with"
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "vendor_check.c", folder / "vendor_check.so"
    source.write_text(VENDOR_CHECK)
    done = subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], capture_output=True, text=True)
    if done.returncode != 0:
        return None, f"no preloaded library: {processes.last_line(done.stderr)}"
    return str(library), "a preloaded library answers MKL's question for the maker of the processor"
