#!/usr/bin/env python3
"""Reference values for cli/ab/sequential, from products written out and from integrals.

Run with any Python that has SciPy >= 1.11; writes ab_sequential.json beside this file, with versions and date.
The sign process is multiplied pair by pair with NumPy's cosh and median. The normal one is integrated: the density of
Student's noncentral t, averaged over a normal prior of the standardized effect, against that of the central t; its
interval is found by root search. The C++ has neither an integral nor a search.
"""
import datetime
import json
import pathlib

import numpy as np
import scipy
from scipy import integrate, optimize, stats

ALPHA = 0.05
LAMBDAS = [0.0625 * 2.0**k for k in range(7)]


def sign_process(d):
    """log of the mixtures for "greater" and for "less"."""
    out = []
    for direction in (1.0, -1.0):
        total = 0.0
        for lam in LAMBDAS:
            product = 1.0
            for i, x in enumerate(d):
                scale = np.median(np.abs(d[:i])) if i else 0.0
                if scale > 0:
                    product *= np.exp(direction * lam * x / scale) / np.cosh(lam * x / scale)
            total += product / len(LAMBDAS)
        out.append(float(np.log(total)))
    return out


def bayes_factor(d, low=-np.inf, weight=1.0):
    n = len(d)
    t = np.mean(d) / (np.std(d, ddof=1) / np.sqrt(n))
    centre = t / np.sqrt(n)

    def weighted(effect):
        return stats.nct.pdf(t, n - 1, effect * np.sqrt(n)) * stats.norm.pdf(effect) * weight

    edges = [e for e in (-9.0, centre - 3, centre, centre + 3, 9.0) if e > low]
    edges = sorted(set([max(low, -9.0)] + edges))
    value = sum(integrate.quad(weighted, a, b, epsabs=1e-14, epsrel=1e-11, limit=300)[0] for a, b in zip(edges, edges[1:]))
    return value / stats.t.pdf(t, n - 1)


def case(name, d, margin):
    d = np.asarray(d, dtype=float)
    greater, less = sign_process(d)
    record = {"name": name, "differences": d.tolist(), "margin": margin, "sign_greater": greater, "sign_less": less,
              "sign_above": sign_process(d + margin)[0], "sign_below": sign_process(d - margin)[1],
              "normal": float(np.log(bayes_factor(d))),
              "normal_above": float(np.log(bayes_factor(d + margin, 0.0, 2.0))),
              "normal_below": float(np.log(bayes_factor(margin - d, 0.0, 2.0)))}
    spread = np.std(d, ddof=1)

    def over(m):
        return np.log(bayes_factor(d - m)) + np.log(ALPHA)

    if len(d) >= 6:
        record["low"] = optimize.brentq(over, np.mean(d) - 6 * spread, np.mean(d), xtol=1e-10)
        record["high"] = optimize.brentq(over, np.mean(d), np.mean(d) + 6 * spread, xtol=1e-10)
    return record


def main():
    rng = np.random.default_rng(20)
    record = {
        "made_by": f"NumPy {np.__version__}, SciPy {scipy.__version__}, {datetime.date.today()}",
        "cases": [
            case("three", [0.3, -0.1, 0.8], 0.5),
            case("six_shifted", rng.normal(1.5, 1.0, 6).round(6), 1.0),
            case("ten_null", rng.normal(0.0, 0.02, 10).round(6), 0.03),
            case("twelve_heavy_tail", rng.standard_t(3, 12).round(6), 2.0),
            case("twenty_negative", rng.normal(-0.7, 1.0, 20).round(6), 1.5),
        ],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path.name}: {len(record['cases'])} cases")


if __name__ == "__main__":
    main()
