#!/usr/bin/env python3
"""From kill -9 of a trainer to its next slot: row tables in shared memory, which the next process attaches, against tables read
from the checkpoint.

Usage: kill_shared.py [--program build/release/bin/tenon] [--rounds N] [--rows ROWS] [--tier TYPE...]
Prints seconds from the kill to the first slot after the checkpoint: median (lowest to highest), and of which the start of a process
takes how much: the same program until the first slot of a fresh run. The killed run goes on to its end, and its hashes must
be those of a run that was not killed.
"""
import argparse
import json
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
SAVED = 40  # slots of the checkpoint before the kill
KILLED = 55
STEPS = 80


def write_run(folder, rows, tier):
    place = f'\n[[tables.place]]\nmatch = "*"\ntier = {{ type = "{tier}" }}\n' if tier else ""
    (folder / "run.toml").write_text(f'''[run]
name = "killed"
steps = {STEPS}
eval_every = 0
eval_batches = 1
log_every = {STEPS}
[device]
type = "cpu"
threads = 2
[data]
type = "synthetic_ctr"
tables = 26
rows = [{rows}]
exponent = 1.05
batch = 2048
val_samples = 2048
[model]
type = "dlrm"
[optimizer]
type = "rowwise_adagrad"
lr = 0.02
[recovery]
type = "full"
every = {SAVED}
async = false
[[observe]]
type = "progress"
every_s = 0.001
{place}''')


class Trainer:
    """A process whose progress is read line by line."""

    def __init__(self, program, folder, resume):
        self.began = time.monotonic()
        words = [program, "train", "run.toml"] + (["--resume"] if resume else [])
        self.process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.said = []

    def until(self, slot):
        """Seconds since the start until `slot` slots are done."""
        for line in self.process.stderr:
            self.said.append(line)
            done = re.search(r"\b(\d+)/%d\b" % STEPS, line)
            if done and int(done[1]) >= slot:
                return time.monotonic() - self.began
        raise SystemExit("kill_shared: the run ended before slot %d:\n%s" % (slot, "".join(self.said[-20:])))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()

    def end(self):
        self.said += self.process.stderr.readlines()
        if self.process.wait() != 0:
            raise SystemExit("kill_shared: the run failed:\n" + "".join(self.said[-20:]))


def hashes(folder):
    summary = json.loads((folder / "runs/killed/latest/summary.json").read_text())
    return summary["weights_hash"], summary["state_hash"]


def one_round(program, rows, tier):
    """Seconds to the first slot of a fresh run, and from the kill to the next slot; the hashes at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        write_run(folder, rows, tier)
        first = Trainer(program, folder, False)
        fresh = first.until(1)
        first.until(KILLED)
        first.kill()
        second = Trainer(program, folder, True)
        seconds = second.until(SAVED + 1)
        second.end()
        return fresh, seconds, hashes(folder)


def undisturbed(program, rows):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        write_run(folder, rows, "")
        Trainer(program, folder, False).end()
        return hashes(folder)


def spread(values):
    return "%.2f s (%.2f to %.2f)" % (statistics.median(values), min(values), max(values))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(SOURCE / "build/release/bin/tenon"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100000, help="of each of 26 tables")
    parser.add_argument("--tier", nargs="+", default=["none", "dram", "shared"])
    options = parser.parse_args()
    expected = undisturbed(options.program, options.rows)
    fresh = {tier: [] for tier in options.tier}
    after = {tier: [] for tier in options.tier}
    for _ in range(options.rounds):
        for tier in options.tier:
            begin, seconds, found = one_round(options.program, options.rows, "" if tier == "none" else tier)
            if found != expected:
                raise SystemExit("kill_shared: %s: hashes %s, expected %s" % (tier, found, expected))
            fresh[tier].append(begin)
            after[tier].append(seconds)
    for tier in options.tier:
        print("%-8s from the start of the killed run's next process to slot %d: %s; a fresh run's first slot: %s"
              % (tier, SAVED + 1, spread(after[tier]), spread(fresh[tier])))


if __name__ == "__main__":
    main()
