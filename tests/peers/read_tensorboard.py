#!/usr/bin/env python3
"""Reads a run folder's event files with TensorBoard's own reader and compares them with metrics.jsonl.

Usage: read_tensorboard.py RUN_FOLDER [--histograms]
Prints what TensorBoard saw. Exit 0: every line of metrics.jsonl is there with its step and its value as a 32-bit
float, and nothing else is. Exit 1: they differ. Exit 77: this Python has no TensorBoard.
"""
import json
import math
import struct
import sys

try:
    import tensorboard
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"skipped: {error}; install tensorboard for this Python")
    sys.exit(77)


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def main():
    folder = sys.argv[1]
    seen = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0}, purge_orphaned_data=True)
    seen.Reload()
    expected = {}
    with open(folder + "/metrics.jsonl") as lines:
        for line in lines:
            m = json.loads(line)
            value = float("nan") if m["value"] is None else float32(m["value"])
            expected.setdefault(f"{m['split']}/{m['name']}", []).append((m["step"], value))
    tags = seen.Tags()
    wrong = []
    if sorted(tags["scalars"]) != sorted(expected):
        wrong.append(f"tags: expected {sorted(expected)}, found {sorted(tags['scalars'])}")
    for tag in tags["scalars"]:
        found = [(e.step, e.value) for e in seen.Scalars(tag)]
        wanted = expected.get(tag, [])
        if len(found) != len(wanted) or not all(f[0] == w[0] and same(f[1], w[1]) for f, w in zip(found, wanted)):
            wrong.append(f"{tag}: expected {wanted[-3:]} ({len(wanted)}), found {found[-3:]} ({len(found)})")
    points = sum(len(seen.Scalars(tag)) for tag in tags["scalars"])
    print(f"tensorboard {tensorboard.__version__}: {points} scalars of {len(tags['scalars'])} tags, "
          f"{len(tags['histograms'])} histogram tags")
    for tag in sorted(tags["scalars"])[:4]:
        last = seen.Scalars(tag)[-1]
        print(f"  {tag}: step {last.step} value {last.value:.6g}")
    if "--histograms" in sys.argv:
        if not tags["histograms"]:
            wrong.append("no histograms")
        for tag in tags["histograms"]:
            for event in seen.Histograms(tag):
                h = event.histogram_value
                limits, counts = list(h.bucket_limit), list(h.bucket)
                fine = (len(limits) == len(counts) and sum(counts) == h.num and limits == sorted(limits)
                        and h.min <= h.max <= limits[-1] and h.sum_squares >= 0)
                if not fine:
                    wrong.append(f"{tag}: step {event.step}: an inconsistent histogram")
        first = sorted(tags["histograms"])[0] if tags["histograms"] else None
        if first:
            h = seen.Histograms(first)[-1].histogram_value
            print(f"  {first}: {int(h.num)} values in [{h.min:.4g}, {h.max:.4g}], {len(h.bucket)} buckets")
    for line in wrong:
        print("differs: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
