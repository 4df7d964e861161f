"""A small file in Criteo's format and what becomes of it: ctr_criteo.safetensors, by NumPy and plain Python.

file: 40 rows as bytes, with negative numbers, missing fields, upper-case and short hexadecimal. dlrm and torchrec [40, 13]: the
numbers as DLRM's data_utils.py (negative and missing -> 0, log(x + 1) in float32) and TorchRec's criteo.py (missing -> 0,
log(x - min + 2) in float32, min over all columns of the file) normalise them. hash [40, 26]: 0 = missing, 1 + value mod (rows - 1).
vocabulary [40, 26]: 0 = missing, 1 = not among the first 35 rows or beyond the table, then by first appearance there. rows:
of the tables; vocabulary_rows: used ones.
"""

import numpy

import record

ROWS = [9, 1, 2, 3, 1000, 2147483647, 12, 40]
TRAIN = 35  # seven days: 6 6 6 6 6 5 5


def main():
    generator = numpy.random.default_rng(3)
    rows = [ROWS[t % len(ROWS)] for t in range(26)]
    lines, labels, numbers, categories = [], [], [], []
    for line in range(40):
        label = int(generator.random() < 0.4)
        row = [None if generator.random() < 0.2 else int(generator.integers(-3, 4) * 10 ** generator.integers(0, 7)) for _ in range(13)]
        values = [None if generator.random() < 0.1 else int(generator.integers(0, 12) * (0x14159265 + t)) % 2**32 for t in range(26)]
        texts = ["" if v is None else f"{v:08x}" if line % 3 else f"{v:X}" for v in values]
        lines.append("\t".join([str(label), *("" if x is None else str(x) for x in row), *texts]))
        labels.append(label)
        numbers.append([0 if x is None else x for x in row])
        categories.append(values)
    x = numpy.array(numbers, numpy.int32)
    dlrm = numpy.log(numpy.array(numpy.maximum(x, 0), dtype=numpy.float32) + 1)
    torchrec = numpy.log(x - (x.min() - 2), dtype=numpy.float32)
    hashed = [[0 if v is None or rows[t] == 1 else 1 + v % (rows[t] - 1) for t, v in enumerate(row)] for row in categories]
    seen = [{} for _ in range(26)]
    for row in categories[:TRAIN]:
        for t, value in enumerate(row):
            if value is not None and value not in seen[t] and len(seen[t]) < rows[t] - 2:
                seen[t][value] = len(seen[t]) + 2
    ids = [[0 if v is None or rows[t] == 1 else seen[t].get(v, 1) for t, v in enumerate(row)] for row in categories]
    found = {"file": numpy.frombuffer(("\n".join(lines) + "\n").encode(), numpy.uint8), "labels": numpy.array(labels),
             "dlrm": dlrm, "torchrec": torchrec, "hash": numpy.array(hashed), "vocabulary": numpy.array(ids),
             "rows": numpy.array(rows), "vocabulary_rows": numpy.array([min(n, len(s) + 2) for n, s in zip(rows, seen)])}
    record.finish("ctr_criteo", found, {"smallest": int(x.min())})


if __name__ == "__main__":
    main()
