#!/usr/bin/env python3
"""Reference values for `tenon power`: metrics of a trace and two policies, from their formulas in NumPy.

Run with any Python that has NumPy; writes power.json beside this file, with versions and date. The trace is a
square wave with ramps, a slow drift and reproducible noise, rounded to milliwatts, so that the file holds it
exactly. Moving averages, windows and policies are written as plain loops over the definitions; the C++ slides and
filters.
"""
import datetime
import json
import math
import pathlib

import numpy as np

RATE = 50.0
N = 900


def trace():
    out, word = [], 12345
    for i in range(N):
        word = (1103515245 * word + 12345) % 2**31
        level = 700.0 if (i % 37) < 29 else 210.0
        out.append(round(level + 40 * math.sin(0.013 * i) + 15 * (word / 2**31 - 0.5), 3))
    return np.array(out)


def ramp(p, window_s):
    m = round(window_s * RATE)
    mean = [np.mean(p[i : i + m]) for i in range(len(p) - m + 1)]
    rises = [(mean[i + m] - mean[i]) / (m / RATE) for i in range(len(mean) - m)]
    return {"window_s": window_s, "up": float(max(0, max(rises))), "down": float(max(0, -min(rises)))}


def range_of_windows(p, window_s):
    m = round(window_s * RATE)
    return float(max(np.ptp(p[i : i + m]) for i in range(len(p) - m + 1)))


def spectrum(p, window):
    n = len(p)
    w = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n) if window == "hann" else np.ones(n)
    x = w * (p - np.mean(p))
    # A sum over samples for each bin, and no fast transform.
    k = np.arange(n // 2 + 1)
    bins = np.exp(-2j * np.pi * np.outer(k, np.arange(n)) / n) @ x
    s = np.abs(bins) ** 2
    double = np.ones(len(k))
    double[1 : (n + 1) // 2] = 2
    hz = k * RATE / n
    total = float(np.sum((double * s)[1:]))
    band = float(np.sum((double * s)[(hz >= 0.2) & (hz <= 12)]))
    peak = 1 + int(np.argmax(np.abs(bins)[1:]))
    scale = n * float(np.sum(w**2))
    return {"mean_square": total / scale, "band_mean_square": band / scale, "peak_hz": float(hz[peak]),
            "peak_amplitude": float(2 * abs(bins[peak]) / np.sum(w)), "power": [float(v) for v in (double * s)[:60]]}


FLOOR = {"floor": 0.6, "ceiling": 0.98, "ramp_up": 1.5, "ramp_down": 0.8, "hysteresis_s": 0.1, "rated": 720.0}
BESS = {"capacity_s": 0.35, "cutoff_hz": 0.08, "ramp_up": 0.4, "ramp_down": 0.3, "charge": 0.6, "discharge": 0.5,
        "charge_efficiency": 0.9, "discharge_efficiency": 0.8, "soc_gain": 0.02, "soc_target": 0.6, "soc_start": 0.4,
        "rated": 720.0}


def floor_ramp(p):
    o, dt, rated = FLOOR, 1 / RATE, FLOOR["rated"]
    out, below, result, burn, throttle = p[0], 0, [], 0.0, 0.0
    hold = round(o["hysteresis_s"] * RATE)
    for load in p:
        target = max(load, o["floor"] * rated)
        if target >= out:
            out, below = min(target, out + o["ramp_up"] * rated * dt), 0
        else:
            below += 1
            if below >= hold:
                out = max(target, out - o["ramp_down"] * rated * dt)
        out = min(out, o["ceiling"] * rated)
        burn += max(0, out - load) * dt
        throttle += max(0, load - out) * dt
        result.append(float(out))
    return {"options": o, "out": result, "burn_j": float(burn), "throttle_j": float(throttle)}


def bess(p):
    o, dt, rated = BESS, 1 / RATE, BESS["rated"]
    full = o["capacity_s"] * rated
    energy, grid, low = o["soc_start"] * full, p[0], p[0]
    a = 1 - math.exp(-2 * math.pi * o["cutoff_hz"] * dt)
    result, charge, violations = [], [], 0
    for load in p:
        low += a * (load - low)
        want = low + o["soc_gain"] * (o["soc_target"] * full - energy)
        reference = min(max(want, grid - o["ramp_down"] * rated * dt), grid + o["ramp_up"] * rated * dt)
        most = min(o["discharge"] * rated, energy * o["discharge_efficiency"] / dt)
        least = -min(o["charge"] * rated, (full - energy) / (o["charge_efficiency"] * dt))
        battery = min(max(load - reference, least), most)
        violations += battery != load - reference
        grid = load - battery
        energy += -battery * (o["charge_efficiency"] if battery < 0 else 1 / o["discharge_efficiency"]) * dt
        result.append(float(grid))
        charge.append(float(energy))
    return {"options": o, "out": result, "charge_j": charge, "violations": int(violations)}


def main():
    p = trace()
    record = {
        "made_by": "tests/reference/power.py", "date": datetime.date.today().isoformat(), "numpy": np.__version__,
        "rate_hz": RATE, "watts": [float(v) for v in p],
        "ramps": [ramp(p, 0.1), ramp(p, 1.0)], "range_2s": range_of_windows(p, 2.0),
        "hann": spectrum(p, "hann"), "rectangular": spectrum(p, "rectangular"),
        "floor_ramp": floor_ramp(p), "bess": bess(p),
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{path}: floor burns {record['floor_ramp']['burn_j']:.6g} J, {record['bess']['violations']} violations")


main()
