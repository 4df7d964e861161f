"""Runs the benchmarks of GPUs, checks that every row is there with numbers, and writes results.json and results.md.

With --tests FILE, which ctest --output-junit wrote, the tests stand above them. Ends with 1 when a program fails, a row is
missing, or a value is no number; a missed aim is no failure. Nothing but the standard library.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

QUANTIZERS = ["nvfp4 1x16", "nvfp4 1x16, codes too", "nvfp4 1x16 stochastic", "nvfp4 1x16 stochastic, 24 bits", "nvfp4 16x16",
              "nvfp4 16x1 rotated, codes too", "nvfp4 16x1 rotated stochastic", "nvfp4 1x16 decode", "mxfp4 1x32", "mxfp8 1x32",
              "mxfp8 32x1", "fp8 per tensor", "fp8 1x128", "fp8 128x1", "fp8 128x128", "nvfp4 1x16, measured"]
CONVOLUTIONS = ["convolution f32, forward", "convolution f32, backward to x", "convolution f32, backward to w"]
# The rows of each program. Those of OPTIONAL may give a reason in place of numbers.
ROWS = {
    "gpu_families": ["copy", "product f32", "product bf16", "product bf16 into f32",
                     "product bf16, odd columns", "product bf16, odd depth", "product bf16, bias and GELU",
                     "product bf16, added to bf16", "product f16", "product fp8 e4m3 into bf16",
                     *(f"quantize {name}" for name in QUANTIZERS), "mixture of formats, per tensor",
                     "mixture of formats, per block by error", "mixture of formats, per block by range", "AdamW", "SGD",
                     "SGD with momentum", "sum of squares", "signs, encoded", "signs of 8 members, decoded",
                     "embedding, rows read", "embedding, sums of gradients",
                     "sums of rows, bf16", "layer norm bf16", "layer norm bf16, backward", "softmax cross-entropy bf16",
                     "softmax cross-entropy bf16, backward", "interpolation of rows", "interpolation of rows, adjoint",
                     "interpolation along rows", "interpolation along rows, adjoint", "attention bf16, forward", "attention bf16, backward",
                     "attention bf16, window, forward", "attention bf16, window, backward",
                     *CONVOLUTIONS, "convolution f32 by windows, forward"],
    "gpu_step": ["GPT-Neo-125M bf16, FLOP utilisation", "GPT-Neo-125M bf16, against PyTorch",
                 "linear stack, policy fp8, products = auto"],
    "gpu_nccl": [f"all-reduce of {size}, {where}" for where in ("one rank", "every GPU") for size in ("4 KiB", "4 MiB", "256 MiB")],
}
OPTIONAL = {"product f16", "product fp8 e4m3 into bf16", "GPT-Neo-125M bf16, against PyTorch", *CONVOLUTIONS}
# A rehearsal has a stand-in for NCCL (tests of the transport), so these have no reason there.
OPTIONAL_ON_GPUS = set(ROWS["gpu_nccl"])
STAND_IN = "tests/libtransport_nccl_fake.so"
AIMS = {"quantize nvfp4 1x16": 0.6, "quantize nvfp4 16x1 rotated stochastic": 0.4, "GPT-Neo-125M bf16, against PyTorch": 0.9,
        "linear stack, policy fp8, products = auto": 1}


def complaints(name, found, device):
    """Errors in the output of the program `name`."""
    optional = OPTIONAL | OPTIONAL_ON_GPUS if device == "cuda" else OPTIONAL
    rows = {row["name"]: row for row in found["rows"]}
    wrong = [f"{name}: there is no row '{row}'" for row in ROWS[name] if row not in rows]
    wrong += [f"{name}: the row '{row}' is not known here" for row in rows if row not in ROWS[name]]
    for row in rows.values():
        if "skipped" in row:
            if row["name"] not in optional:
                wrong.append(f"{name}: '{row['name']}' was skipped: {row['skipped']}")
            continue
        for key in ("seconds", "rate", "limit_rate", "ratio"):
            values = row.get(key, [1])
            if not values or not all(isinstance(v, (int, float)) and math.isfinite(v) and v > 0 for v in values):
                wrong.append(f"{name}: '{row['name']}' has {key} {values}, expected numbers above 0")
        if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in row.get("overhead", [])):
            wrong.append(f"{name}: '{row['name']}' has the overhead {row['overhead']}, expected numbers")
        if row.get("aim") != AIMS.get(row["name"]):
            wrong.append(f"{name}: '{row['name']}' has the aim {row.get('aim')}, expected {AIMS.get(row['name'])}")
    return wrong


def run(program, options):
    """Its output, or the reason why that cannot be read."""
    environment = dict(os.environ)
    environment.setdefault("TENON_PLUGIN_PATH", str(options.build / "lib/tenon/plugins"))
    command = [options.build / "bench" / program, "--device", options.device, "--scale", options.scale, "--json", "true"]
    if program == "gpu_nccl" and options.device != "cuda":
        command += ["--library", options.build / STAND_IN]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{program}: {error}"
    if done.returncode != 0:
        return None, f"{program} ended with {done.returncode}: {done.stderr.strip()[-2000:]}"
    try:
        return json.loads(done.stdout), ""
    except ValueError as error:
        return None, f"{program}: what it printed cannot be read: {error}"


def tests_of(path):
    """JUnit as ctest writes it."""
    states = {"run": "passed", "fail": "failed", "notrun": "skipped"}
    return [{"name": case.get("name"), "state": states.get(case.get("status"), case.get("status")),
             "seconds": round(float(case.get("time", 0)), 2)} for case in xml.parse(path).getroot().iter("testcase")]


def three(values):
    low, middle, high = (f"{value:.4g}" for value in values)
    return f"{middle} ({low} to {high})"


def table(found):
    lines = ["", f"`{found['program']}` on {found['device']} ({found['features']}), scale {found['scale']}"]
    if found["note"]:
        lines.append(f"**{found['note']}**")
    lines += ["", "| | microseconds | rate | of its limit | limit | aim |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        if "skipped" in row:
            lines.append(f"| {row['name']} | skipped: {row['skipped']} | | | | |")
            continue
        cells = [row["name"], f"{1e6 * row['seconds'][1]:.4g}", f"{three(row['rate'])} {row['unit']}",
                 (three(row["ratio"]) if "ratio" in row else "")
                 + (f"; {three(row['overhead'])} {row['overhead_unit']} more" if "overhead" in row else ""), row.get("limit", ""), str(row.get("aim", ""))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", default="full")
    parser.add_argument("--tests", help="JUnit file of ctest")
    parser.add_argument("--machine", default="", help="names of the GPUs, a line each")
    parser.add_argument("--date", default="")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that one program may take")
    options = parser.parse_args()
    options.build = options.build.resolve()  # plugins are searched for in absolute paths alone

    tests = tests_of(options.tests) if options.tests else []
    programs, wrong = [], []
    for name in ROWS:
        found, reason = run(name, options)
        wrong += [reason] if found is None else complaints(name, found, options.device)
        programs += [] if found is None else [found]
    machine = options.machine.splitlines() or ["no GPU: the device is emulated"]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(
        {"gpus": machine, "date": options.date, "commit": options.commit, "tests": tests, "benchmarks": programs,
         "wrong": wrong}, indent=2) + "\n")
    lines = [f"{'; '.join(machine)}, {options.date}, commit {options.commit}"]
    if tests:
        lines += ["", "| test | result | seconds |", "|---|---|---|"]
        lines += [f"| `{test['name']}` | {test['state']} | {test['seconds']} |" for test in tests]
    for found in programs:
        lines += table(found)
    if wrong:
        lines += ["", "Wrong:", ""] + [f"- {what}" for what in wrong]
    (options.out / "results.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
