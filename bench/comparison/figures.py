"""Medians, ratios within rounds and their spread, and when a row counts as noisy. Knows nothing of programs.

A sample is what one side did in one round: a dictionary with `value` (a rate, or seconds where the row says so) and, where known,
`memory_mb`, or with `error`. A ratio belongs to a round: both sides ran one after the other in it.
"""
import statistics

from . import cores

SPREAD_BOUND = 0.25  # (highest - lowest) / median of a ratio
OTHERS_BOUND = 0.25  # cores that other processes took while the row was measured


def summary(values):
    """Median, lowest, highest of numbers; None without any."""
    if not values:
        return None
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values), "rounds": len(values)}


def ratios(ours, theirs, lower_is_better=False):
    """Ratios by which ours is better, per round in which both have a value."""
    pairs = [(a["value"], b["value"]) for a, b in zip(ours, theirs) if a.get("value") and b.get("value")]
    return [b / a if lower_is_better else a / b for a, b in pairs]


def spread(ratio):
    return (ratio["highest"] - ratio["lowest"]) / ratio["median"]


def noise(result):
    """Why the figures of a row are doubtful, one phrase each."""
    reasons = []
    if result["others_cores"] is not None and result["others_cores"] > OTHERS_BOUND:
        reasons.append(f"other work took {result['others_cores']:.1f} cores (load {result['load']:.1f})")
    shared = cores.doubt([sample for all_ in result["samples"].values() for sample in all_])
    if shared:
        reasons.append(shared)
    for name, ratio in result["ratios"].items():
        if ratio is None:
            continue
        if ratio["rounds"] < 3:
            reasons.append(f"{ratio['rounds']} round(s)")
            break
        if spread(ratio) > SPREAD_BOUND:
            reasons.append(f"{name} spreads over {100 * spread(ratio):.0f} %")
    return reasons


def verdict(row, ratios_of_sides, ours=None):
    """Per side with an aim and a ratio, and for `ours` where its own seconds have one: whether the median meets it."""
    met = {}
    if row.most is not None and ours is not None:
        met["ours"] = ours["median"] <= row.most
    for side, aim in row.aims.items():
        ratio = ratios_of_sides.get(side)
        if ratio is not None:
            met[side] = ratio["median"] <= aim if row.limit_over_ours and side == "limit" else ratio["median"] >= aim
    return met


def result_of(row, samples, others_cores, load, title="", unit=""):
    """Results of a row: samples by side, one list entry per round; missing sides are absent."""
    ours = samples.get("ours", [])
    found = {}
    for side in ("stock", "tuned", "limit"):
        if side not in samples:
            continue
        values = ratios(ours, samples[side], row.lower_is_better)
        if side == "limit" and row.limit_over_ours:
            values = [1 / value for value in values]
        found[side] = summary(values)
    at_least = {side: bound_of(ours, samples[side]) for side in ("stock", "tuned") if side in samples and not found[side]}
    errors = sorted({f"{side}: {sample['error']}" for side, all_ in samples.items() for sample in all_ if "error" in sample})
    result = {
        "name": row.name, "title": row.title or title, "unit": row.unit or unit, "aims": row.aims, "most": row.most, "limit_is": row.limit_is,
        "values": {side: summary([s["value"] for s in all_ if s.get("value")]) for side, all_ in samples.items()},
        "memory_mb": {side: peak(all_) for side, all_ in samples.items() if side != "limit"},
        "ratios": found, "ratios_at_least": at_least, "errors": errors, "others_cores": others_cores, "load": load, "samples": samples,
    }
    result["met"] = verdict(row, found, result["values"].get("ours"))
    result["noise"] = noise(result)
    return result


def bound_of(ours, theirs):
    """Lower bound of the ratio if theirs was stopped before it had a figure; None where it is not known."""
    values = [sample["value"] for sample in ours if sample.get("value")]
    bounds = [sample["at_most"] for sample in theirs if sample.get("at_most")]
    return statistics.median(values) / max(bounds) if values and bounds else None


def peak(samples):
    """Largest memory of a side over the rounds; None where it was not measured."""
    return max((sample["memory_mb"] for sample in samples if sample.get("memory_mb")), default=None)
