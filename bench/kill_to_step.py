"""From kill -9 of one of four rank processes to the next finished slot, under tenon launch --restarts.

Usage: kill_to_step.py [--program build/release/bin/tenon] [--rounds N] [--recovery TYPE...]
Prints seconds: median (lowest to highest). Every slot ends in a checkpoint, so that its end can be seen from outside; the next slot is the
second after the last one seen at the kill, since a save may be on its way.
"""
import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def newest_checkpoint(folder):
    """Slots done at the newest complete checkpoint; -1 without any. One is saved after every slot."""
    names = [entry.name for entry in folder.iterdir()] if folder.exists() else []
    return max([int(name[5:]) for name in names if name[5:].isdigit()], default=-1)


def wait_for(condition, seconds=60):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise SystemExit("kill_to_step: nothing happened for %d s" % seconds)
        time.sleep(0.005)
    return time.monotonic() - begin


def process_of(rank, folder):
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder):
                if b"TENON_RANK=%d\0" % rank in (entry / "environ").read_bytes():
                    return int(entry.name)
        except OSError:
            continue
    raise SystemExit("kill_to_step: rank %d has no process" % rank)


def seconds_of_one_round(program, recovery):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "run.toml").write_text(f'''extends = ["{SOURCE}/configs/base/gpt_tiny.toml"]
run = {{name = "killed", steps = 100000, eval_every = 0, log_every = 10, deadline = 20}}
device.threads = 1
data = {{path = "{SOURCE}/data/text/tinyshakespeare.txt", context = 32, batch = 4}}
model = {{layers = 2, width = 32, heads = 2}}
parallel.ranks = 4
transport.type = "socket"
sync = {{type = "ddp"}}
recovery = {{type = "{recovery}", every = 1, async = false}}
''')
        launch = subprocess.Popen([program, "launch", "-n", "4", "--restarts", "1", "--", "train", "run.toml", "--quiet"],
                                  cwd=folder, stderr=subprocess.DEVNULL)
        try:
            checkpoints = folder / "runs/killed/1/checkpoints"
            wait_for(lambda: newest_checkpoint(checkpoints) > 50)
            os.kill(process_of(2, folder), signal.SIGKILL)
            begin = time.monotonic()
            before = newest_checkpoint(checkpoints)
            # The save that was on its way may still come to its end.
            wait_for(lambda: newest_checkpoint(checkpoints) > before + 1)
            return time.monotonic() - begin
        finally:
            launch.kill()
            launch.wait()
            time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(SOURCE / "build/release/bin/tenon"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recovery", nargs="+", default=["full", "replica", "peer_memory"])
    options = parser.parse_args()
    seconds = {recovery: [] for recovery in options.recovery}
    for _ in range(options.rounds):
        for recovery in options.recovery:
            seconds[recovery].append(seconds_of_one_round(options.program, recovery))
    for recovery, taken in seconds.items():
        print("%-12s %.2f s (%.2f to %.2f) from kill -9 of one of four processes to the next finished slot"
              % (recovery, statistics.median(taken), min(taken), max(taken)))


if __name__ == "__main__":
    main()
