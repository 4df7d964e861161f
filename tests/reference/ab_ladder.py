#!/usr/bin/env python3
"""Reference values for cli/ab/ladder: the weighted fit over sizes, its intervals and the test of the fit.

Run with any Python that has SciPy >= 1.11; writes ab_ladder.json beside this file, with versions and date.
Everything is in general matrices: Phi = (X' W X)^-1, Kenward and Roger's (1997) covariance with the derivatives of
V = diag(v_1, ..., v_K) written out, Satterthwaite's degrees of freedom by numeric differentiation of the variance of a
contrast, and Johansen's (1980) test of "all residual contrasts are zero" from an orthonormal basis of them. The C++
has closed forms about the weighted mean of log2(size), and no matrix.
"""
import datetime
import json
import pathlib

import numpy as np
import scipy
from scipy import linalg, stats

ALPHA = 0.05


def covariance(x, v):
    return np.linalg.inv(x.T @ np.diag(1 / v) @ x)


def kenward_roger(x, v, nu):
    phi = covariance(x, v)
    inverse = np.diag(1 / v)
    total = np.zeros((2, 2))
    for i in range(len(v)):
        for j in range(len(v)):
            di, dj = np.zeros((len(v), len(v))), np.zeros((len(v), len(v)))
            di[i, i] = dj[j, j] = 1
            w = 2 * v[i] ** 2 / nu[i] if i == j else 0.0  # covariance of the estimates v_i and v_j
            p_i = -x.T @ inverse @ di @ inverse @ x
            p_j = -x.T @ inverse @ dj @ inverse @ x
            q = x.T @ inverse @ di @ inverse @ dj @ inverse @ x
            total += w * (q - p_i @ phi @ p_j)
    return phi + 2 * phi @ total @ phi


def degrees(contrast, x, v, nu, more=0.0, more_nu=1.0):
    """2 E^2 / Var of the variance of a contrast, plus an independent one."""

    def variance(v):
        return contrast @ covariance(x, v) @ contrast

    spread = 0.0
    for i in range(len(v)):
        step = 1e-5 * v[i]
        up, down = v.copy(), v.copy()
        up[i] += step
        down[i] -= step
        slope = (variance(up) - variance(down)) / (2 * step)
        spread += slope**2 * 2 * v[i] ** 2 / nu[i]
    spread += 2 * more**2 / more_nu
    return 2 * (variance(v) + more) ** 2 / spread


def johansen(x, d, v, nu):
    rest = linalg.null_space(x.T).T  # its rows are contrasts without level and slope
    s = np.diag(v)
    middle = np.linalg.inv(rest @ s @ rest.T)
    t = (rest @ d) @ middle @ (rest @ d)
    m = s @ rest.T @ middle @ rest
    r = rest.shape[0]
    a = 0.0
    for j in range(len(v)):
        q = np.zeros((len(v), len(v)))
        q[j, j] = 1
        a += (np.trace(m @ q @ m @ q) + np.trace(m @ q) ** 2) / nu[j] / 2
    c = r + 2 * a - 6 * a / (r + 2)
    return t, float(stats.f.sf(t / c, r, r * (r + 2) / (3 * a)))


def case(name, sizes, pairs, held_out):
    """`pairs`: differences by point."""
    pairs = [np.asarray(p, dtype=float) for p in pairs]
    d = np.array([p.mean() for p in pairs])
    v = np.array([p.var(ddof=1) / len(p) for p in pairs])
    nu = np.array([len(p) - 1.0 for p in pairs])
    u = np.log2(np.asarray(sizes, dtype=float))
    x = np.column_stack([np.ones_like(u), u])
    phi = covariance(x, v)
    beta = phi @ x.T @ (d / v)
    adjusted = kenward_roger(x, v, nu)

    def interval(contrast, more=0.0, more_nu=1.0):
        half = stats.t.isf(ALPHA / 2, degrees(contrast, x, v, nu, more, more_nu))
        half *= np.sqrt(contrast @ adjusted @ contrast + more)
        return [float(contrast @ beta - half), float(contrast @ beta + half)]

    chi_square, p = johansen(x, d, v, nu)
    size, differences = held_out
    differences = np.asarray(differences, dtype=float)
    at = np.array([1.0, np.log2(size)])
    more = differences.var(ddof=1) / len(differences)
    return {"name": name, "sizes": list(map(float, sizes)), "pairs": [list(p) for p in pairs],
            "held_out": {"size": float(size), "pairs": list(differences)},
            "slope": float(beta[1]), "slope_interval": interval(np.array([0.0, 1.0])),
            "at_held_out": float(at @ beta), "line_interval": interval(at),
            "prediction": interval(at, more, len(differences) - 1.0), "chi_square": float(chi_square), "p": p}


def drawn(rng, sizes, counts, deviations, line):
    return [rng.normal(line(np.log2(s)), sd, n).round(6) for s, n, sd in zip(sizes, counts, deviations)]


rng = np.random.default_rng(20)
three, five = [35e3, 140e3, 560e3], [1e3, 3e3, 1e4, 5e4, 2e5]
cases = [
    case("three sizes of three pairs", three, drawn(rng, three, [3] * 3, [0.02] * 3, lambda u: -0.9 + 0.04 * u),
         (2.2e6, drawn(rng, [2.2e6], [3], [0.01], lambda u: -0.06)[0])),
    case("five sizes, unequal pairs and deviations", five,
         drawn(rng, five, [3, 4, 6, 10, 20], [0.1, 0.05, 0.03, 0.02, 0.01], lambda u: 0.3 - 0.02 * u),
         (8e5, drawn(rng, [8e5], [5], [0.004], lambda u: -0.09)[0])),
    case("bent", five, drawn(rng, five, [5] * 5, [0.01] * 5, lambda u: 0.01 * (u - 13) ** 2),
         (8e5, drawn(rng, [8e5], [5], [0.01], lambda u: 0.4)[0])),
    case("held out in the middle", [1, 2, 8, 16], drawn(rng, [1, 2, 8, 16], [8] * 4, [1, 2, 3, 4], lambda u: 5 - u),
         (4, drawn(rng, [4], [8], [2], lambda u: 3)[0])),
]
record = {"written": datetime.date.today().isoformat(), "numpy": np.__version__, "scipy": scipy.__version__,
          "alpha": ALPHA, "cases": cases}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(record, indent=1) + "\n")
print(path, len(cases), "cases")
