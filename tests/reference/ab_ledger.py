#!/usr/bin/env python3
"""Reference values for cli/ab/ledger: the rule as the papers write it, in decimals of 60 digits and in fractions.

Run with any Python; writes ab_ledger.json beside this file. A share is the difference of two inverse square roots as it
is written, where the C++ avoids its cancellation. The reshaped factor is the sum of x nu(x), each term a fraction. The
questions of `plays` go one by one through e-LOND, and through LOND with the reshaped factor (as 1/p, e-values are
p-values); `answered_after` says how many questions begin before a verdict is known, as for questions side by side.
"""
import datetime
import decimal
import fractions
import json
import pathlib
import platform
import random

decimal.getcontext().prec = 60
ALPHA = decimal.Decimal("0.05")


def share(t):
    one = decimal.Decimal(1)
    return one / decimal.Decimal(t).sqrt() - one / decimal.Decimal(t + 1).sqrt()


def reshaped(r):
    total = sum(x * fractions.Fraction(1, x * (x + 1)) for x in range(1, r + 1))
    return decimal.Decimal(total.numerator) / decimal.Decimal(total.denominator)


def play(e_values, rule, answered_after):
    levels, found = [], []
    for t, e in enumerate(e_values, start=1):
        known = sum(found[: max(0, t - 1 - answered_after)])
        factor = decimal.Decimal(known + 1) if rule == "e-LOND" else reshaped(known + 1)
        level = ALPHA * share(t) * factor
        levels.append(float(level))
        found.append(decimal.Decimal(e) >= 1 / level)
    return {"rule": rule, "answered_after": answered_after, "levels": levels, "discoveries": found}


def main():
    draw = random.Random(7)
    e_values = [float(f"{10 ** draw.uniform(-1, 6):.4g}") for _ in range(40)]
    record = {
        "made_with": f"Python {platform.python_version()}",
        "date": datetime.date.today().isoformat(),
        "shares": {str(t): float(share(t)) for t in (1, 2, 3, 10, 50, 1000, 10**6, 10**9)},
        "reshaped": {str(r): float(reshaped(r)) for r in (1, 2, 3, 10, 100)},
        "e_values": e_values,
        "plays": [play(e_values, rule, after) for rule in ("e-LOND", "reshaped") for after in (0, 3)],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(record, indent=1) + "\n")


main()
