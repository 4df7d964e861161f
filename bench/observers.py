#!/usr/bin/env python3
"""Cost of each observer: processor time of whole runs with it over runs without, interleaved.

Usage: bench/observers.py TENON [--rounds N] [--steps N]
Processor time (user and system) instead of wall time, so that other work on the machine hardly matters. Prints the
ratio of medians and the smallest and largest ratio within a round.
"""
import argparse
import os
import resource
import statistics
import subprocess
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
CONFIG = """
[run]
name = "cost"
steps = {steps}
log_every = 1
[device]
type = "cpu"
threads = 1
[data]
type = "text"
path = "{root}/data/text/tinyshakespeare.txt"
context = 64
batch = 8
[model]
type = "gpt_neo"
layers = 2
width = 64
heads = 2
[optimizer]
type = "adamw"
lr = 1e-3
"""
VARIANTS = {
    "none": "",
    "csv": "[[observe]]\ntype = 'csv'\n",
    "tensorboard": "[[observe]]\ntype = 'tensorboard'\n",
    "tensorboard, histograms every 50": "[[observe]]\ntype = 'tensorboard'\nhistograms_every = 50\n",
    "trace": "[[observe]]\ntype = 'trace'\n",
    "health, every 50": "[[observe]]\ntype = 'health'\nevery = 50\n",
    "health, every slot": "[[observe]]\ntype = 'health'\nevery = 1\n",
    "sqlite": "[[observe]]\ntype = 'sqlite'\n",
}


def processor_seconds(program, config, folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, "train", config, "--quiet", "--run-dir", folder], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, default=200)
    options = arguments.parse_args()
    times = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for name, table in VARIANTS.items():
            with open(f"{folder}/{name}.toml", "w") as file:
                # An empty list of observers: no progress line either.
                file.write(("observe = []\n" if not table else "") + CONFIG.format(steps=options.steps, root=ROOT) + table)
        for _ in range(options.rounds):
            for name in VARIANTS:
                times[name].append(processor_seconds(options.program, f"{folder}/{name}.toml",
                                                     f"{folder}/{name.replace(' ', '_')}"))
    base = statistics.median(times["none"])
    print(f"{options.rounds} rounds of {options.steps} slots; without observers {base:.2f} s of processor time")
    print("| observer | ratio of medians | in a round |")
    print("|---|---|---|")
    for name, seconds in times.items():
        ratios = [s / n for s, n in zip(seconds, times["none"])]
        print(f"| {name} | {statistics.median(seconds) / base:.3f} | {min(ratios):.3f} to {max(ratios):.3f} |")


if __name__ == "__main__":
    main()
