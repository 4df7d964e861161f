"""Exponents by least squares in log-log, what they should be, and when one is a surprise or in doubt. Knows nothing of programs.

A sample is what one point did in one round: `value` (seconds per step), `x`, `expected` (relative cost; seconds of a curve with a
limit), and where known `memory_mb`
and `others_cores`; or `error`.
"""
import math

from comparison import cores, figures

TOLERANCE = 0.1  # of an exponent: 1.26 times as much over a decade
OTHERS_BOUND = figures.OTHERS_BOUND


def exponent(points):
    """Slope of log cost over log size; None with fewer than two sizes."""
    logs = [(math.log(x), math.log(cost)) for x, cost in points]
    if len({x for x, _ in logs}) < 2:
        return None
    mean_x, mean_y = (sum(pair[i] for pair in logs) / len(logs) for i in (0, 1))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def point_of(samples):
    """Results of a point over its rounds; None where no round has a value."""
    good = [sample for sample in samples if sample.get("value")]
    if not good:
        return None
    busy = [sample["others_cores"] for sample in good if sample.get("others_cores") is not None]
    return {"x": good[0]["x"], "seconds": figures.summary([sample["value"] for sample in good]),
            "expected": figures.summary([sample["expected"] for sample in good])["median"],
            "memory_mb": figures.peak(good), "others_cores": sum(busy) / len(busy) if busy else None}


def exponents_of_rounds(samples):
    """One per round in which every point has a value; lists of samples by point."""
    return [exponent([(sample["x"], sample["value"]) for sample in round_]) for round_ in zip(*samples)
            if all(sample.get("value") for sample in round_)]


def result_of(curve, samples, tolerance=TOLERANCE):
    """A curve with its exponents and what is to be said of them. samples: per point a list with an entry per round."""
    points = [point for point in map(point_of, samples) if point]
    if curve.limit and points:
        # What is not the limit's is the same at every point.
        others = points[0]["seconds"]["median"] - points[0]["expected"]
        for point in points:
            point["expected"] += others
    for point in points:
        first = points[0]
        point["over_expected"] = point["seconds"]["median"] / first["seconds"]["median"] / (point["expected"] / first["expected"])
    rounds = figures.summary([value for value in exponents_of_rounds(samples) if value is not None])
    measured = exponent([(point["x"], point["seconds"]["median"]) for point in points])
    expected = exponent([(point["x"], point["expected"]) for point in points])
    result = {
        "name": curve.name, "title": curve.title, "x_label": curve.x_label, "held": curve.held, "why": curve.why, "points": points,
        "exponent": measured, "expected": expected, "rounds": rounds, "tolerance": tolerance,
        "errors": sorted({sample["error"] for all_ in samples for sample in all_ if "error" in sample}), "samples": samples,
    }
    result["surprise"] = measured is not None and measured > expected + tolerance
    result["noise"] = noise(result)
    return result


def noise(result):
    """Why an exponent is doubtful, one phrase each."""
    reasons = []
    rounds, tolerance = result["rounds"], result["tolerance"]
    busy = max((point["others_cores"] for point in result["points"] if point["others_cores"] is not None), default=0)
    if busy > OTHERS_BOUND:
        reasons.append(f"other work took up to {busy:.1f} cores")
    shared = cores.doubt([sample for all_ in result["samples"] for sample in all_])
    if shared:
        reasons.append(shared)
    if rounds is None or rounds["rounds"] < 3:
        reasons.append(f"{rounds['rounds'] if rounds else 0} whole round(s)")
    elif rounds["highest"] - rounds["lowest"] > tolerance:
        reasons.append(f"exponents of rounds lie {rounds['highest'] - rounds['lowest']:.2f} apart")
    if result["surprise"] and rounds and rounds["lowest"] <= result["expected"] + tolerance:
        reasons.append(f"a round without the surprise: {rounds['lowest']:.2f}")
    return reasons
