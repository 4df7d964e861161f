#!/usr/bin/env python3
"""Records codes and scales of block-scaled number formats, from formulas alone: NumPy and ml_dtypes.

A second implementation beside kernels/include/tenon/kernels/reference/quantize.hpp that shares nothing with it: elements are
the nearest entry of a table of values (ties to the even code), every scale is one NumPy float32 operation after the other, the
rotation is a product with the matrix, and Philox4x32-10 is written out in Python integers. Bit patterns of floats are stored
as int64, so that NaN and -0 survive.
"""

import ml_dtypes
import numpy

import record

F = numpy.float32
FLOAT_MAX = numpy.finfo(F).max
# name -> exponent bits, mantissa bits, bias, largest finite code
LAYOUTS = {"e2m1": (2, 1, 1, 0x07), "e2m3": (2, 3, 1, 0x1F), "e3m2": (3, 2, 3, 0x1F), "e4m3": (4, 3, 7, 0x7E), "e5m2": (5, 2, 15, 0x7B)}
SIGNS = numpy.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1], F)


def table(element):
    """Magnitudes of the codes 0 ... largest, in float64."""
    _, m, bias, largest = LAYOUTS[element]
    codes = numpy.arange(largest + 1)
    field, fraction = codes >> m, (codes & ((1 << m) - 1)) / 2.0**m
    return numpy.where(field == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (field - float(bias)))


def sign_bit(element):
    return 1 << (LAYOUTS[element][0] + LAYOUTS[element][1])


def encode(x, element):
    """Nearest, ties to even, saturating. NaN: largest positive without NaN, else the format's own."""
    x = numpy.asarray(x, F)
    values = table(element)
    magnitude = numpy.minimum(numpy.abs(x.astype(numpy.float64)), values[-1])
    magnitude = numpy.where(numpy.isnan(x), 0.0, magnitude)
    middles = (values[1:] + values[:-1]) / 2
    below, above = numpy.searchsorted(middles, magnitude, "left"), numpy.searchsorted(middles, magnitude, "right")
    codes = numpy.where(below % 2 == 0, below, above)  # they differ at a tie only
    codes = codes + numpy.where(numpy.signbit(x), sign_bit(element), 0)
    if element in ("e4m3", "e5m2"):
        nan = {"e4m3": 0x7F, "e5m2": 0x7E}[element] + numpy.where(numpy.signbit(x), 0x80, 0)
    else:
        nan = len(values) - 1
    return numpy.where(numpy.isnan(x), nan, codes).astype(numpy.uint8)


def decode(codes, element):
    values, sign = table(element), sign_bit(element)
    codes = numpy.asarray(codes, numpy.int64)
    return (values[codes & (sign - 1)] * numpy.where(codes & sign, -1.0, 1.0)).astype(F)


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def draw(how, row, column):
    along, line = (row, column) if how["rows"] > how["columns"] else (column, row)
    e = along % 16
    part = 0 if how["bits"] == 8 else e // 4
    words = philox((along // 16, line, how["step"], how["micro"] * 4 + part), (how["key"] & 0xFFFFFFFF, how["key"] >> 32))
    return words[e // 4] >> (8 * (e % 4)) & 0xFF if how["bits"] == 8 else words[e % 4] & 0xFFFFFF


def encode_stochastic(x, random, bits, element="e2m1"):
    values = table(element)
    magnitude = numpy.abs(F(x))
    if magnitude >= values[-1]:
        code = len(values) - 1
    elif bits == 8:
        step = lambda a: F(0.5) if a < 2 else F(1) if a < 4 else F(2)
        t = magnitude + F(random) / F(256) * step(magnitude)
        code = int(numpy.searchsorted(values, min(numpy.floor(t / step(t)) * step(t), F(6)), "right")) - 1
    else:  # exact: f + random / 2^24 >= 1
        code = int(numpy.searchsorted(values, magnitude, "right")) - 1
        f = (float(magnitude) - values[code]) / (values[code + 1] - values[code])
        code += int(f >= (2**24 - random) / 2**24)
    return code + (8 if numpy.signbit(F(x)) else 0)


def tensor_numbers(amax, top=448):
    s_enc = min(F(6 * top) / amax, FLOAT_MAX) if amax > 0 else F(1)
    return s_enc, F(1) / s_enc, s_enc * (F(1) / F(6))


def two_level(x, s_enc, s_dec, scale):
    """Multiplied, clamped elements of a block whose stored scale is `scale`."""
    with numpy.errstate(divide="ignore"):
        e = min(F(1) / (decode(scale, "e4m3") * s_dec), FLOAT_MAX)
    return numpy.clip(x * e, F(-6), F(6))


def squared_error(x, codes, scale, s_enc):
    difference = x * s_enc - decode(codes, "e2m1") * decode(scale, "e4m3")
    lanes = numpy.zeros(16, F)
    for row in difference * difference:
        lanes[: len(row)] += row
    for width in (8, 4, 2, 1):
        lanes[:width] += lanes[width : 2 * width]
    return lanes[0]


def power_code(amax, element, rule):
    """Exponent by exact arithmetic on the float's mantissa and exponent."""
    if amax == 0:
        return 0
    fraction, exponent = numpy.frexp(numpy.float64(amax))
    fraction, exponent = fraction * 2, int(exponent) - 1  # in [1, 2)
    _, m, _, _ = LAYOUTS[element]
    largest = table(element)[-1]
    emax = int(numpy.floor(numpy.log2(largest)))
    if rule == "floor":
        power = exponent - emax
    elif rule == "ceil":
        power = exponent + (fraction > 1) - emax
    elif rule == "even":
        power = exponent + (numpy.floor(fraction * 2**m + 0.5) / 2**m >= 2) - emax
    else:
        power = exponent - emax + (fraction > largest / 2.0**emax)
    return int(numpy.clip(power + 127, 0, 254))


def rotate_down(x):
    """16 rows at a time, x bfloat16; zeros fill the last tile; the result is rounded to bfloat16."""
    h = numpy.array([[1.0]], F)
    while len(h) < 16:
        h = numpy.block([[h, h], [h, -h]])
    h = SIGNS[:, None] * h / F(4)
    padded = numpy.zeros((-(-len(x) // 16) * 16, x.shape[1]), F)
    padded[: len(x)] = to_bf16(x)
    return padded, h


def to_bf16(x):
    return numpy.asarray(x, F).astype(ml_dtypes.bfloat16).astype(F)


def butterflies(padded):
    """The pinned order: signs, distances 1, 2, 4, 8 in float32, times 1/4. Held against the matrix product in float64."""
    v = padded.reshape(-1, 16, padded.shape[1]) * SIGNS[None, :, None]
    for distance in (1, 2, 4, 8):
        w = v.reshape(len(v), 16 // (2 * distance), 2, distance, -1)
        v = numpy.stack([w[:, :, 0] + w[:, :, 1], w[:, :, 0] - w[:, :, 1]], 2).reshape(v.shape)
    return to_bf16((v * F(0.25)).reshape(padded.shape))


def quantize(x, how):
    """Codes, block scales (bits) and the tensor's numbers. how: element, scaling, rows, columns, options."""
    how = {"bits": 0, "rotate": False, "four_over_six": False, "rule": "rceil", **how}
    if how["rotate"]:
        padded, h = rotate_down(x)
        exact = numpy.einsum("tec,ej->tjc", padded.reshape(-1, 16, padded.shape[1]).astype(numpy.float64), h.astype(numpy.float64))
        x = butterflies(padded)
        assert numpy.abs(exact.reshape(x.shape) - x).max() <= 2.0**-8 * numpy.abs(exact).max()
    element, amax = how["element"], numpy.abs(x).max()
    numbers = (F(1), F(1), F(1))
    if how["scaling"] == "two_level":
        numbers = tensor_numbers(amax, 256 if how["four_over_six"] else 448)
    if how["scaling"] == "tensor":
        s_enc = min(F(table(element)[-1]) / amax, FLOAT_MAX)
        return encode(x * s_enc, element), numpy.zeros(0, numpy.uint8), numpy.array([s_enc, F(1) / s_enc], F)
    s_enc, s_dec, k = numbers
    codes, scales = numpy.zeros(x.shape, numpy.uint8), []
    for row in range(0, x.shape[0], how["rows"]):
        for column in range(0, x.shape[1], how["columns"]):
            place = (slice(row, row + how["rows"]), slice(column, column + how["columns"]))
            block = x[place]
            largest = numpy.abs(block).max()
            if how["scaling"] == "power":
                code = power_code(largest, element, how["rule"])
                scales.append(code)
                scaled = block * F(numpy.ldexp(1.0, 127 - code))
            elif how["scaling"] == "float":
                s = F(table(element)[-1]) / largest if largest > 0 else F(1)
                scales.append(F(1) / s)
                scaled = block * s
            else:
                scale = encode(min(largest * k, FLOAT_MAX), "e4m3")
                if how["four_over_six"]:
                    base = largest / F(6) * s_enc
                    pair = [encode(min(b, F(448)), "e4m3") for b in (base, F(1.5) * base)]
                    errors = [squared_error(block, encode(two_level(block, s_enc, s_dec, s), "e2m1"), s, s_enc) for s in pair]
                    scale = pair[int(errors[1] < errors[0])]
                scales.append(int(scale))
                scaled = two_level(block, s_enc, s_dec, scale)
            if how["bits"]:
                codes[place] = [[encode_stochastic(v, draw(how, how["origin"][0] + row + i, how["origin"][1] + column + j), how["bits"])
                                 for j, v in enumerate(line)] for i, line in enumerate(scaled)]
            else:
                codes[place] = encode(scaled, element)
    dtype = F if how["scaling"] == "float" else numpy.uint8
    return codes, numpy.array(scales, dtype), numpy.array([s_enc, s_dec], F)


NVFP4 = {"element": "e2m1", "scaling": "two_level", "rows": 1, "columns": 16}
DRAWS = {"key": 0x0123456789ABCDEF, "step": 7, "micro": 2, "origin": (160, 32)}
CASES = {
    "nvfp4": NVFP4,
    "nvfp4_2d": {**NVFP4, "rows": 16},
    "nvfp4_down": {**NVFP4, "rows": 16, "columns": 1},
    "nvfp4_rotated": {**NVFP4, "rows": 16, "columns": 1, "rotate": True},
    "nvfp4_four_over_six": {**NVFP4, "four_over_six": True},
    "nvfp4_2d_four_over_six": {**NVFP4, "rows": 16, "four_over_six": True},
    "nvfp4_stochastic8": {**NVFP4, "bits": 8, **DRAWS},
    "nvfp4_rotated_stochastic8": {**NVFP4, "rows": 16, "columns": 1, "rotate": True, "bits": 8, **DRAWS},
    "nvfp4_down_stochastic24": {**NVFP4, "rows": 16, "columns": 1, "bits": 24, **DRAWS},
    "fp8_e4m3": {"element": "e4m3", "scaling": "tensor", "rows": 1, "columns": 16},
    "fp8_e5m2": {"element": "e5m2", "scaling": "tensor", "rows": 1, "columns": 16},
    "fp8_block": {"element": "e4m3", "scaling": "float", "rows": 1, "columns": 32},
    "fp8_block_2d": {"element": "e4m3", "scaling": "float", "rows": 32, "columns": 32},
}
for name in LAYOUTS:
    for rule in ("floor", "ceil", "even", "rceil"):
        CASES[f"mx_{name}_{rule}"] = {"element": name, "scaling": "power", "rows": 1, "columns": 32, "rule": rule}


def bits(x):
    return numpy.asarray(x, F).view(numpy.uint32).astype(numpy.int64)


def elements(generator):
    """Random patterns, all values and midpoints of all formats with their neighbours, specials."""
    points = [numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, 1e-45, -1e-45, FLOAT_MAX, -1e-9], F)]
    for name in LAYOUTS:
        values = table(name).astype(F)
        for centre in (values, ((table(name)[1:] + table(name)[:-1]) / 2).astype(F)):
            points += [centre, numpy.nextafter(centre, F(numpy.inf)), -numpy.nextafter(centre, F(-numpy.inf))]
    points.append(generator.integers(0, 2**32, 1024, numpy.uint32).view(F))
    x = numpy.concatenate(points)
    return x[~numpy.isnan(x)]


def check_with_ml_dtypes(x):
    for name, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2), ("e2m1", ml_dtypes.float4_e2m1fn),
                        ("e2m3", ml_dtypes.float6_e2m3fn), ("e3m2", ml_dtypes.float6_e3m2fn)):
        largest = F(table(name)[-1])
        theirs = numpy.clip(x, -largest, largest).astype(dtype).view(numpy.uint8)
        assert (theirs == encode(x, name)).all(), name


def main():
    generator = numpy.random.Generator(numpy.random.PCG64(20261122))
    tensors, x = {}, elements(generator)
    check_with_ml_dtypes(x)
    tensors["elements.x"] = bits(x)
    for name in LAYOUTS:
        tensors[f"elements.{name}"] = encode(x, name)
    # Ends that are no multiple of any block; columns of very different size; a row of zeros; a negative zero.
    matrix = generator.standard_normal((37, 72)) * numpy.exp(2 * generator.standard_normal((1, 72)))
    matrix[5] = 0
    matrix[6, 7] = -0.0
    matrices = {"f32": matrix.astype(F), "bf16": to_bf16(matrix)}
    for kind, values in matrices.items():
        tensors[f"{kind}.x"] = bits(values)
        for name, how in CASES.items():
            codes, scales, numbers = quantize(values, how)
            tensors[f"{kind}.{name}.codes"] = codes
            tensors[f"{kind}.{name}.numbers"] = bits(numbers)
            if len(scales):
                tensors[f"{kind}.{name}.scales"] = scales if scales.dtype == numpy.uint8 else bits(scales)
    record.finish("quantize", tensors, {"about": __doc__.split("\n")[0], "ml_dtypes": ml_dtypes.__version__, "cases": CASES})


if __name__ == "__main__":
    main()
