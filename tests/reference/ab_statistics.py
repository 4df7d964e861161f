#!/usr/bin/env python3
"""Reference values for cli/ab/statistics and cli/ab/survival, from SciPy and from plain enumeration.

Run with any Python that has SciPy >= 1.11; writes ab_statistics.json beside this file, with versions and date.
The formulas here share no code with the C++: SciPy's own tests where it has one, brute force where it has not.
"""
import datetime
import itertools
import json
import pathlib

import numpy as np
import scipy
from scipy import integrate, optimize, stats

ALPHA = 0.05


def sign_flip(d):
    """Every one of the 2^n sign patterns, one by one."""
    d = np.asarray(d)
    observed = abs(d.sum()) - 1e-12 * np.abs(d).sum()
    hits = sum(abs(np.dot(s, d)) >= observed for s in itertools.product((1.0, -1.0), repeat=len(d)))
    return hits / 2.0 ** len(d)


def paired_case(name, d, margin):
    d = np.asarray(d, dtype=float)
    n = len(d)
    walsh = [(d[i] + d[j]) / 2 for i in range(n) for j in range(i, n)]
    test = stats.ttest_1samp(d, 0.0)
    ci = test.confidence_interval(1 - ALPHA)
    ci90 = test.confidence_interval(1 - 2 * ALPHA)
    above = stats.ttest_1samp(d, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(d, margin, alternative="less").pvalue
    permutation = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf)
    brute = sign_flip(d)
    assert abs(permutation.pvalue - brute) < 1e-12, (name, permutation.pvalue, brute)
    return {
        "name": name, "differences": d.tolist(), "margin": margin, "mean": d.mean(), "sd": d.std(ddof=1),
        "low": ci.low, "high": ci.high, "t": test.statistic, "p_t": test.pvalue,
        "hodges_lehmann": float(np.median(walsh)), "p_sign_flip": brute,
        "p_above_low": above, "p_below_high": below, "tost_low": ci90.low, "tost_high": ci90.high,
    }


def power(n, effect, alpha=ALPHA):
    """The normal mean given the sample variance, integrated over the chi distribution of the sample spread.

    SciPy's own noncentral t is built on the library that the C++ uses, so it is only cross-checked here.
    """
    critical = stats.t.isf(alpha / 2, n - 1)
    ncp = effect * np.sqrt(n)
    df = n - 1
    spread = stats.chi(df, scale=1 / np.sqrt(df))

    def rejected(s):
        return (stats.norm.cdf(ncp - critical * s) + stats.norm.cdf(-critical * s - ncp)) * spread.pdf(s)

    value = integrate.quad(rejected, 0, 12, epsabs=1e-13, epsrel=1e-12, limit=400, points=[ncp / critical])[0]
    known = stats.nct.sf(critical, df, ncp) + stats.nct.cdf(-critical, df, ncp)
    assert np.isnan(known) or abs(value - known) < 1e-8, (n, effect, value, known)
    return value


def mde(n, target=0.8):
    return optimize.brentq(lambda e: power(n, e) - target, 0.05, 6.0, xtol=1e-12)


def holm(p):
    """Definition: reject in order while p_(i) <= alpha / (m - i); adjusted p is the smallest alpha that rejects."""
    p = np.asarray(p)
    order = np.argsort(p)
    m = len(p)
    out = np.empty(m)
    for rank, index in enumerate(order):
        out[index] = max(min(1.0, (m - r) * p[order[r]]) for r in range(rank + 1))
    return out.tolist()


def survival_case(name, a, b, horizon):
    """Each run is (time, reached)."""

    def censored(runs):
        return stats.CensoredData.right_censored([t for t, _ in runs], [not r for _, r in runs])

    def one(runs):
        sf = stats.ecdf(censored(runs)).sf
        ci = sf.confidence_interval(1 - ALPHA, method="log-log")
        event = np.array([any(t == q and r for t, r in runs) for q in sf.quantiles])

        def crossing(probabilities):
            hit = [q for q, p, e in zip(sf.quantiles, probabilities, event)
                   if e and np.isfinite(p) and p <= 0.5 + 1e-12]
            return float(hit[0]) if hit else None

        grid = np.concatenate([[0.0], sf.quantiles[sf.quantiles < horizon], [horizon]])
        rmst = sum((grid[i + 1] - grid[i]) * sf.evaluate(grid[i]) for i in range(len(grid) - 1))
        variance = 0.0
        for q in sf.quantiles[event]:
            at_risk = sum(t >= q for t, _ in runs)
            d = sum(t == q and r for t, r in runs)
            if at_risk > d:
                tail = np.concatenate([[q], sf.quantiles[(sf.quantiles > q) & (sf.quantiles < horizon)], [horizon]])
                area = sum((tail[i + 1] - tail[i]) * sf.evaluate(tail[i]) for i in range(len(tail) - 1))
                variance += area**2 * d / (at_risk * (at_risk - d))
        return {
            "times": sf.quantiles[event].tolist(), "survival": sf.probabilities[event].tolist(),
            "median": crossing(sf.probabilities), "median_low": crossing(ci.low.probabilities),
            "median_high": crossing(ci.high.probabilities), "restricted_mean": rmst,
            "restricted_mean_se": float(np.sqrt(variance)),
        }

    test = stats.logrank(censored(a), censored(b))
    return {"name": name, "a": a, "b": b, "horizon": horizon, "estimate_a": one(a), "estimate_b": one(b),
            "chi_square": float(test.statistic) ** 2, "p": float(test.pvalue)}


def main():
    rng = np.random.default_rng(20240607)
    record = {
        "made_by": "tests/reference/ab_statistics.py",
        "date": datetime.date.today().isoformat(),
        "numpy": np.__version__, "scipy": scipy.__version__,
        "paired": [
            paired_case("three", [-0.021, -0.013, -0.034], 0.02),
            paired_case("four_with_zero", [0.0, 0.5, -0.25, 1.0], 1.0),
            paired_case("five_ties", [1.0, 1.0, -1.0, 2.0, 2.0], 3.0),
            paired_case("eight_normal", rng.normal(-0.4, 1.0, 8).round(6), 1.5),
            paired_case("ten_heavy_tail", rng.standard_t(3, 10).round(6), 1.0),
            paired_case("sixteen_shifted", rng.normal(0.6, 1.0, 16).round(6), 1.2),
            paired_case("large_offset", (1e6 + rng.normal(0.0, 1.0, 7)).round(6), 1e7),
        ],
        "power": [{"n": n, "effect": e, "power": power(n, e)}
                  for n, e in [(2, 3.0), (3, 0.5), (3, 3.3), (5, 1.7), (8, 0.0), (8, 1.2), (20, 0.66), (40, 0.3)]],
        "minimum_detectable_effect": [{"n": n, "effect": mde(n)} for n in (3, 4, 5, 6, 8, 10, 12, 16, 20, 30)],
        "holm": [{"p": p, "adjusted": holm(p)}
                 for p in ([0.01, 0.04, 0.03], [0.5], [0.2, 0.2, 0.9, 0.001], [0.05, 0.01, 0.01, 0.8, 0.02])],
        "survival": [
            survival_case("all_reached", [[t, True] for t in (100, 120, 140, 160, 180)],
                          [[t, True] for t in (90, 95, 110, 130, 150)], 180.0),
            survival_case("some_censored", [[100, True], [150, True], [200, False], [200, False], [130, True]],
                          [[80, True], [90, True], [200, False], [110, True], [120, True]], 200.0),
            survival_case("mostly_censored", [[300, False], [300, False], [260, True], [300, False]],
                          [[300, False], [240, True], [250, True], [300, False]], 300.0),
            survival_case("ties", [[10, True], [10, True], [20, True], [30, False], [30, True], [20, False]],
                          [[10, True], [20, True], [20, True], [20, True], [30, True], [30, False]], 30.0),
        ],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path.name}: " + ", ".join(f"n={m['n']}: {m['effect']:.3g}"
                                              for m in record["minimum_detectable_effect"]))


if __name__ == "__main__":
    main()
