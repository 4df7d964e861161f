"""Records mixtures of representations (MoR, arXiv 2512.22804) with NumPy, from the rules as published.

MATRIX.x [rows, columns] holds float32 that are bfloat16 numbers. A case is a prefix MATRIX_...: CASE.values (x after MoR),
CASE.choices [blocks] (uint8: 0 kept, 1 E4M3, 2 E5M2, 3 E2M3) and CASE.error (float64: the mean relative error; of E4M3
for level "tensor", of what the blocks became for the others). Options stand in mor.json. 8-bit rounding is ml_dtypes',
after clamping, because its E4M3 does not saturate; E2M3 is written here as multiples of its own last place.
"""

import ml_dtypes
import numpy

import record

F32 = numpy.float32
LARGEST = {"e4m3": F32(448), "e5m2": F32(57344), "e2m3": F32(7.5)}
CODE = {"bf16": 0, "e4m3": 1, "e5m2": 2, "e2m3": 3}
FLOOR = F32(1e-35)


def bits(value):
    return int(numpy.asarray(value, F32).view(numpy.uint32))


def from_bits(value):
    return numpy.asarray(value, numpy.uint32).view(F32)[()]


def to_format(x, name):
    x = numpy.clip(x, -LARGEST[name], LARGEST[name])
    if name == "e4m3":
        return x.astype(ml_dtypes.float8_e4m3fn).astype(F32)
    if name == "e5m2":
        return x.astype(ml_dtypes.float8_e5m2).astype(F32)
    exponent = numpy.maximum(numpy.frexp(x)[1] - 1, 0)
    last_place = numpy.ldexp(F32(1), exponent - 3).astype(F32)
    return (numpy.rint(x / last_place) * last_place).astype(F32)


def scale(strategy, block, tensor, largest):
    own = F32(largest / max(block, FLOOR))
    whole = F32(largest / max(tensor, FLOOR))
    if strategy == "block":
        return own
    if strategy == "current":
        return whole
    if strategy == "e8":
        return from_bits(bits(own) & 0x7F800000)
    mantissa = bits(whole) & 0x7FFFFF
    mixed = from_bits((bits(own) & 0x7F800000) | mantissa)
    return F32(mixed / 2) if mantissa > (bits(own) & 0x7FFFFF) else mixed


def attempt(x, factor, name):
    y = (to_format(x * factor, name) / factor).astype(F32)
    nonzero = x != 0
    return y, float(numpy.sum(numpy.abs(y - x)[nonzero] / numpy.abs(x)[nonzero], dtype=numpy.float64))


def half_up(y):
    """bfloat16, ties away from zero, as float32."""
    return ((y.view(numpy.uint32) + numpy.uint32(0x8000)) & numpy.uint32(0xFFFF0000)).view(F32)


def choose(block, strategy, level, tensor, e2m3):
    """(name, scale) of one block by its span, and by error where the span leaves it open."""
    sizes = numpy.abs(block)
    amax = sizes.max()
    span = F32(amax / sizes[sizes > 0].min()) if amax > 0 else F32(1)
    by = lambda name: scale(strategy, amax, tensor, LARGEST[name])
    if e2m3 and span <= 7.5:
        return "e2m3", by("e2m3")
    if span <= (114688 if level == "sub2" else 28672):
        return "e4m3", by("e4m3")
    if span > 939524096:
        return "bf16", None
    if level == "sub3":
        return "e5m2", by("e5m2")
    better = attempt(block, by("e4m3"), "e4m3")[1] <= attempt(block, by("e5m2"), "e5m2")[1]
    return ("e4m3", by("e4m3")) if better else ("bf16", None)


def mor(x, rows, columns, strategy, level, threshold, e2m3):
    rows, columns = rows or x.shape[0], columns or x.shape[1]
    tensor, values, choices, total = numpy.abs(x).max(), x.copy(), [], 0.0
    for i in range(0, x.shape[0], rows):
        for j in range(0, x.shape[1], columns):
            block = numpy.ascontiguousarray(x[i:i + rows, j:j + columns])
            if level == "tensor":
                name, factor = "e4m3", scale(strategy, numpy.abs(block).max(), tensor, LARGEST["e4m3"])
            else:
                name, factor = choose(block, strategy, level, tensor, e2m3)
            choices.append(CODE[name])
            if name == "bf16":
                continue
            y, error = attempt(block, factor, name)
            values[i:i + rows, j:j + columns] = half_up(y)
            total += error
    error = total / max(1, numpy.count_nonzero(x))
    if level == "tensor" and error > threshold:
        values, choices = x.copy(), [0] * len(choices)
    return values, choices, error


def to_bf16(x):
    return x.astype(F32).astype(ml_dtypes.bfloat16).astype(F32)


def matrices(rng):
    normal = rng.normal(size=(34, 40))
    heavy = normal * numpy.exp(1.5 * rng.normal(size=(34, 40)))
    holes = numpy.where(rng.random((34, 40)) < 0.3, 0.0, normal)
    holes[:16, :16] = 0
    # Spans on both sides of what the formats bear: powers of two that grow along the columns.
    wide = rng.choice([-1, 1], (34, 40)) * numpy.ldexp(1 + rng.random((34, 40)) / 2, (numpy.arange(40) * rng.integers(0, 2, (34, 40))))
    narrow = numpy.sign(normal) * (1 + 5 * rng.random((34, 40)))
    return {"heavy": heavy, "holes": holes, "wide": wide * 1e-6, "narrow": narrow}


def main():
    rng = numpy.random.default_rng(38)
    tensors, cases = {}, {}
    for matrix, x in matrices(rng).items():
        x = to_bf16(x)
        for level in ("tensor", "sub2", "sub3"):
            for strategy in ("gam", "block", "e8", "current"):
                if level != "tensor" and strategy == "current":
                    continue
                for rows, columns in ((16, 16), (1, 0), (0, 1), (0, 0)):
                    if strategy != "gam" and (rows, columns) == (0, 1):
                        continue
                    e2m3 = level != "tensor" and matrix == "narrow"
                    case = f"{matrix}_{level}_{strategy}_{rows}x{columns}"
                    values, choices, error = mor(x, rows, columns, strategy, level, 0.045, e2m3)
                    cases[case] = {"level": level, "strategy": strategy, "rows": rows, "columns": columns, "e2m3": e2m3}
                    tensors[f"{case}.values"] = values
                    tensors[f"{case}.choices"] = numpy.array(choices, numpy.uint8)
                    tensors[f"{case}.error"] = numpy.array([error])
        tensors[f"{matrix}.x"] = x
    about = {"about": __doc__.split("\n")[0], "threshold": 0.045, "ml_dtypes": ml_dtypes.__version__, "cases": cases}
    record.finish("mor", tensors, about)


if __name__ == "__main__":
    main()
