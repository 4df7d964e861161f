"""UCI Adult as numbers and ids: ctr_adult.safetensors, read with Python's csv and computed with NumPy in float64.

test.* is evaluate = "test": statistics of all of adult.data, applied to its first rows and to those of adult.test. ids count
from 1 in the order of adult.names, 0 = "?". buckets: place among the distinct quantiles sorted[k n // 16], k = 1 ... 15, that
are above the smallest number. counts: rows, labels of 1 and missing values per category of both files.
"""

import csv

import numpy

import record

FOLDER = record.FOLDER.parent.parent / "data" / "adult"
NUMBERS = [0, 2, 4, 10, 11, 12]
CATEGORIES = [1, 3, 5, 6, 7, 8, 9, 13]
LOGARITHMIC = [3, 4]
ROWS = 8


def vocabularies():
    lines = [line.rstrip(".\n") for line in open(FOLDER / "adult.names") if not line.startswith("|") and ":" in line]
    return [[v.strip() for v in lines[column].split(":")[1].split(",")] for column in CATEGORIES]


def rows_of(name):
    found = []
    for row in csv.reader(open(FOLDER / name), skipinitialspace=True):
        if row and not row[0].startswith("|"):
            found.append(row)
    return found


def numbers_of(rows):
    return numpy.array([[float(row[c]) for c in NUMBERS] for row in rows])


def transformed(numbers):
    numbers = numbers.copy()
    numbers[:, LOGARITHMIC] = numpy.log1p(numbers[:, LOGARITHMIC])
    return numbers


def ids_of(rows, words):
    return numpy.array([[0 if row[c] == "?" else words[t].index(row[c]) + 1 for t, c in enumerate(CATEGORIES)] for row in rows])


def labels_of(rows):
    return numpy.array([int(row[14].rstrip(".") == ">50K") for row in rows])


def main():
    words, train, test = vocabularies(), rows_of("adult.data"), rows_of("adult.test")
    plain = transformed(numbers_of(train))
    mean, deviation = plain.mean(axis=0), plain.std(axis=0)
    ordered = numpy.sort(numbers_of(train), axis=0)
    bounds = []
    for column in ordered.T:
        quantiles = [column[k * len(column) // 16] for k in range(1, 16)]
        bounds.append(sorted({q for q in quantiles if q > column[0]}))
    found = {"rows": numpy.array([len(w) + 1 for w in words] + [len(b) + 1 for b in bounds])}
    for name, rows in [("train", train), ("test", test)]:
        first, ids = rows[:ROWS], ids_of(rows, words)
        numbers = numbers_of(first)
        found[f"{name}.dense"] = (transformed(numbers) - mean) / deviation
        found[f"{name}.ids"] = ids[:ROWS]
        found[f"{name}.buckets"] = numpy.stack(
            [numpy.searchsorted(b, numbers[:, i], side="right") for i, b in enumerate(bounds)], axis=1)
        found[f"{name}.labels"] = labels_of(first)
        found[f"{name}.counts"] = numpy.array([len(rows), labels_of(rows).sum(), *(ids == 0).sum(axis=0)])
    record.finish("ctr_adult", found, {"mean": mean.tolist(), "deviation": deviation.tolist()})


if __name__ == "__main__":
    main()
