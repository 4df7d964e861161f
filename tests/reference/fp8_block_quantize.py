"""Matrices put through FP8 with a scale per block by NumPy, in the order of operations of docs/formats.md: E4M3 codes, decode scales as
powers of two (the smallest with which nothing saturates) or as float32, and what they stand for, each to the bit.

Every operation is one float32 operation of NumPy; exponents come from integers. E4M3 is compared with ml_dtypes.
"""

import ml_dtypes
import numpy as np

import nvfp4_quantize
import record

F = np.float32
FLT_MAX = np.finfo(F).max
E4M3 = nvfp4_quantize.E4M3
MATRICES = ("one", "row", "ragged", "heavy", "zeros", "signed_zeros", "denormal", "denormal_beside_one", "tiny", "huge")


def signed_e4m3(values):
    codes = nvfp4_quantize.nearest_even(np.abs(values), E4M3) | np.where(np.signbit(values), 128, 0).astype(np.uint8)
    theirs = np.clip(values, F(-448), F(448)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (codes == theirs).all()
    return codes


def power_scale(amax):
    """b of 2^(b - 127) = 2^ceil(log2(amax / 448)), by comparing exact numbers."""
    if amax == 0:
        return 0
    b = 0
    while b < 254 and float(amax) > 448 * 2.0 ** (b - 127):
        b += 1
    return b


def fp8_block(x, height, width, scale):
    amax, spread = nvfp4_quantize.blocks_of(x, height, width)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        if scale == "power":
            scales = np.array([[power_scale(a) for a in line] for line in amax], np.uint8)
            decode = np.ldexp(F(1), scales.astype(np.int32) - 127).astype(F)
            encode = np.ldexp(F(1), 127 - scales.astype(np.int32)).astype(F)
        else:
            encode = np.where(amax > 0, np.minimum(F(448) / amax, FLT_MAX), F(1)).astype(F)
            scales = decode = F(1) / encode
        codes = signed_e4m3(x * spread(encode))
        values = np.where(codes & 128, F(-1), F(1)) * E4M3[codes & 127].astype(F)
        dequantized = values * spread(decode)
    assert dequantized.dtype == F and scales.dtype == (np.uint8 if scale == "power" else F)
    return {"codes": codes, "block_scales": scales, "tensor_scale": np.array([1], F), "dequantized": dequantized}


def main():
    tensors, inputs = {}, nvfp4_quantize.inputs()
    wide = np.random.default_rng(21)
    matrices = {name: inputs[name] for name in MATRICES}
    matrices["wide"] = (wide.standard_normal((5, 300)) * np.exp(2 * wide.standard_normal((1, 300)))).astype(F)
    for name, x in matrices.items():
        tensors[f"{name}.x"] = x
        for block, extents in {"1x128": (1, 128), "128x128": (128, 128)}.items():
            for scale in ("float", "power"):
                for part, value in fp8_block(x, *extents, scale).items():
                    tensors[f"{name}.{block}.{scale}.{part}"] = value
    record.finish(
        "fp8_block_quantize",
        tensors,
        {
            "what": "matrices through FP8 with a scale per block, as powers of two and as float32; compared bit for bit",
            "by": f"NumPy float32 arithmetic; ml_dtypes {ml_dtypes.__version__} agrees on every E4M3 code",
        },
    )


if __name__ == "__main__":
    main()
