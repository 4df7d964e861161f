"""Shared by the PyTorch peers of the step benchmarks: the timed loop and its output.

A first line with units per second, which the C++ programs read; then a line of JSON for bench/compare: when the first step began
and when it had finished, on the clock that all processes of the machine share, and the seconds of a step.
"""
import json
import time


def run_steps(step, steps, units, finish=None):
    """Calls step(t) for t in 0 ... steps - 1; a quarter of them warms up and is not timed. A step handles `units`.

    finish() waits for what steps only started, as on a GPU. Without steps it prints when the first one would begin.
    """
    finish = finish or (lambda: None)
    warm = max(1, steps // 4)
    finish()
    begun = time.monotonic()
    if steps == 0:
        print(json.dumps({"first_slot_at": begun}))
        return
    step(0)
    finish()
    first = time.monotonic()
    for t in range(1, warm):
        step(t)
    counted = max(1, steps - warm)
    finish()
    begin = time.perf_counter()
    for t in range(warm, warm + counted):
        step(t)
    finish()
    seconds = (time.perf_counter() - begin) / counted
    print(units / seconds)
    print(json.dumps({"first_slot_at": begun, "first_step_at": first, "seconds_per_step": seconds}))
