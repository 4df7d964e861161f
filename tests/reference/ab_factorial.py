#!/usr/bin/env python3
"""Reference values for cli/ab/factorial, from NumPy's linear algebra and SciPy's tests.

Run with any Python that has SciPy >= 1.11; writes ab_factorial.json beside this file, with versions and date.
The C++ averages cells; here a contrast is a row of weights over the cells, built from Kronecker products, so that
the two share no code. The sign-flip p-values are counted over all 2^n patterns.
"""
import datetime
import itertools
import json
import pathlib

import numpy as np
import scipy
from scipy import stats

ALPHA = 0.05
MARGIN = 0.05


def sign_flip(d):
    observed = abs(d.sum()) - 1e-12 * np.abs(d).sum()
    hits = sum(abs(np.dot(s, d)) >= observed for s in itertools.product((1.0, -1.0), repeat=len(d)))
    return hits / 2.0 ** len(d)


def holm(p):
    """Definition: adjusted p is the smallest alpha at which the step-down procedure rejects."""
    order = np.argsort(p, kind="stable")
    m = len(p)
    out = np.empty(m)
    for rank, index in enumerate(order):
        out[index] = max(min(1.0, (m - r) * p[order[r]]) for r in range(rank + 1))
    return out


def average(n):
    return np.full(n, 1.0 / n)


def against_first(n, level):
    row = np.zeros(n)
    row[0], row[level] = -1.0, 1.0
    return row


def only_first(n):
    return np.eye(n)[0]


def weights(counts, rows, otherwise):
    """Weights over the cells: a Kronecker product with one row a factor, the last factor fastest."""
    out = np.ones(1)
    for f, n in enumerate(counts):
        out = np.kron(out, rows.get(f, otherwise(n)))
    return out


def tested(row, values):
    d = row @ values
    test = stats.ttest_1samp(d, 0.0)
    ci = test.confidence_interval(1 - ALPHA)
    above = stats.ttest_1samp(d, -MARGIN, alternative="greater").pvalue
    below = stats.ttest_1samp(d, MARGIN, alternative="less").pvalue
    return {"differences": d.tolist(), "mean": d.mean(), "low": ci.low, "high": ci.high, "t": test.statistic,
            "p_t": test.pvalue, "p_sign_flip": sign_flip(d), "p_equivalence": max(above, below)}


def adjusted(entries):
    for key in ("p_t", "p_equivalence"):
        for entry, p in zip(entries, holm(np.array([e[key] for e in entries]))):
            entry[key + "_holm"] = p


def case(name, counts, seeds, rng, planted):
    """`planted`: {(factor, level): effect} and {((f, l), (g, m)): interaction}, in units of the noise."""
    cells = list(itertools.product(*[range(n) for n in counts]))
    values = 2.0 + 0.3 * rng.normal(size=(1, seeds)) + 0.02 * rng.normal(size=(len(cells), seeds))
    for i, cell in enumerate(cells):
        for key, effect in planted.items():
            pairs = key if isinstance(key[0], tuple) else (key,)
            if all(cell[f] == level for f, level in pairs):
                values[i] += 0.02 * effect
    values = values.round(6)
    main, alone, interactions = [], [], []
    for f, n in enumerate(counts):
        for level in range(1, n):
            row = {f: against_first(n, level)}
            main.append({"factor": f, "level": level, **tested(weights(counts, row, average), values)})
            alone.append({"factor": f, "level": level, **tested(weights(counts, row, only_first), values)})
            gap = np.array(alone[-1]["differences"]) - np.array(main[-1]["differences"])
            ci = stats.ttest_1samp(gap, 0.0).confidence_interval(1 - ALPHA)
            alone[-1].update({"gap": gap.mean(), "gap_low": ci.low, "gap_high": ci.high})
    for f, g in itertools.combinations(range(len(counts)), 2):
        for l, m in itertools.product(range(1, counts[f]), range(1, counts[g])):
            rows = {f: against_first(counts[f], l), g: against_first(counts[g], m)}
            interactions.append({"first": f, "first_level": l, "second": g, "second_level": m,
                                 **tested(weights(counts, rows, average), values)})
    adjusted(main + interactions)
    adjusted(alone)
    return {"name": name, "levels": counts, "values": values.tolist(), "main": main, "one_at_a_time": alone,
            "interactions": interactions}


def main():
    rng = np.random.default_rng(20250916)
    record = {
        "made_by": "tests/reference/ab_factorial.py", "date": datetime.date.today().isoformat(),
        "numpy": np.__version__, "scipy": scipy.__version__, "alpha": ALPHA, "margin": MARGIN,
        "cases": [
            case("two by two, nothing", [2, 2], 6, rng, {}),
            case("two by two, opposite effects", [2, 2], 8, rng, {(0, 1): -3.0, ((0, 1), (1, 1)): 6.0}),
            case("three factors", [2, 2, 2], 8, rng, {(0, 1): 2.0, (2, 1): -1.0, ((1, 1), (2, 1)): 2.5}),
            case("three by two", [3, 2], 7, rng, {(0, 1): 1.0, (0, 2): -2.0, ((0, 2), (1, 1)): 1.5}),
            case("two, three and two", [2, 3, 2], 5, rng, {(1, 2): 4.0, ((0, 1), (1, 1)): -3.0}),
        ],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path.name}: " + ", ".join(
        f"{c['name']}: {len(c['main']) + len(c['interactions'])} contrasts" for c in record["cases"]))


if __name__ == "__main__":
    main()
