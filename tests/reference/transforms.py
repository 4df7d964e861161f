"""Records what the transforms of plugins/transform/basic must give: values rounded to other types, and mixes of models.

Rounding to bf16, f16 and f32 is by exact fractions (round half to even of the value over the step of its binade), and agrees
with PyTorch and NumPy where those round once: NumPy from float32 and float64 to float16, PyTorch from float32 to bfloat16.
Mixes are sums in float64 in the order of the sources, as NumPy adds them, rounded once. Bit patterns are int64.
"""

import fractions
import math

import numpy
import torch

import record

TYPES = {"f32": (24, -126, 127), "bf16": (8, -126, 127), "f16": (11, -14, 15)}


def nearest(value, name):
    """The number of this type that is nearest to a finite float64, ties to even; infinite beyond the largest one."""
    digits, lowest, highest = TYPES[name]
    if value == 0:
        return value
    exponent = max(math.frexp(value)[1] - 1, lowest)
    step = fractions.Fraction(2) ** (exponent - digits + 1)
    result = round(fractions.Fraction(value) / step) * step
    if abs(result) >= fractions.Fraction(2) ** (highest + 1):
        return math.copysign(math.inf, value)
    return math.copysign(float(result), value)


def rounded(values, name):
    return numpy.array([nearest(float(v), name) for v in values.ravel()]).reshape(values.shape)


def bits_of(values, name):
    """Of values that the type has."""
    if name == "f16":
        return values.astype(numpy.float16).view(numpy.uint16).astype(numpy.int64)
    bits = values.astype(numpy.float32).view(numpy.uint32)
    return (bits >> 16 if name == "bf16" else bits).astype(numpy.int64)


def traps():
    """Values beside ties of each type, and beside the ends of its range, which two roundings get wrong."""
    found = []
    for name, (digits, lowest, highest) in TYPES.items():
        for exponent in (lowest - 3, lowest - 1, lowest, -1, 0, 1, highest):
            step = 2.0 ** (max(exponent, lowest) - digits + 1)
            for n in (2 ** (digits - 1), 2 ** (digits - 1) + 1, 2**digits - 1):
                tie = 2.0**exponent * (n / 2 ** (digits - 1)) + step / 2
                for shift in (-(2.0**-20), -(2.0**-40), 0, 2.0**-40, 2.0**-20):
                    found += [tie + step * shift, -(tie + step * shift)]
    return found


def main():
    rng = numpy.random.default_rng(56)
    tensors = {}

    patterns = rng.integers(0, 2**32, 3000, dtype=numpy.uint64).astype(numpy.uint32)
    singles = patterns.view(numpy.float32)
    singles = singles[numpy.isfinite(singles)].astype(numpy.float64)
    doubles = rng.normal(0, 1, 1000) * 2.0 ** rng.integers(-30, 30, 1000)
    values = numpy.concatenate([singles, doubles, numpy.array(traps()), [0.0, -0.0, 65504.0, 65519.99, 65520.0, 3.4e38]])
    tensors["values"] = values
    exact = {name: rounded(values, name) for name in TYPES}
    with numpy.errstate(over="ignore"):
        assert numpy.array_equal(exact["f16"], values.astype(numpy.float16).astype(numpy.float64))
        assert numpy.array_equal(exact["f32"], values.astype(numpy.float32).astype(numpy.float64))
        once = torch.from_numpy(singles.astype(numpy.float32)).to(torch.bfloat16).to(torch.float64).numpy()
        twice = torch.from_numpy(values.astype(numpy.float32)).to(torch.bfloat16).to(torch.float64).numpy()
        tensors.update({f"values.{name}": bits_of(exact[name], name) for name in TYPES})
    assert numpy.array_equal(exact["bf16"][: len(singles)], once)
    differing = int((twice != exact["bf16"]).sum())
    assert differing > 20, differing  # two roundings would be noticed

    weights = numpy.array([3.0, 1.0, 0.5])
    shares = weights / weights.sum()
    for name in ("f32", "bf16", "f16"):
        sources = [rounded(rng.normal(0, 1, (7, 11)), name) for _ in weights]
        for mix, parts in (("weighted", shares), ("equal", numpy.full(3, 1.0) / 3)):
            total = numpy.zeros((7, 11))
            for part, source in zip(parts, sources):
                total = total + part * source
            tensors[f"merge.{name}.{mix}"] = bits_of(rounded(total, name), name)
        for i, source in enumerate(sources):
            tensors[f"merge.{name}.{i}"] = source
    tensors["merge.weights"] = weights

    record.finish("transforms", tensors,
                  {"about": __doc__.split("\n")[0], "bf16_values_that_two_roundings_change": differing})


if __name__ == "__main__":
    main()
