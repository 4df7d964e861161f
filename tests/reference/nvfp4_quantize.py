"""Matrices put through NVFP4 by NumPy, in the published order of operations (arXiv 2509.25149, appendix B, with the arithmetic order
of TransformerEngine's kernel): codes, block scales, tensor scale and what they stand for, each to the bit.

Every operation is one float32 operation of NumPy. Rounding to E2M1 and E4M3 is done here by distance over the list of all values,
ties to the even code, and E4M3 is compared with ml_dtypes.
"""

import ml_dtypes
import numpy as np

import record

F = np.float32
FLT_MAX = np.finfo(F).max
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)


def nearest_even(values, grid):
    """Code of the nearest value of an ascending grid; ties to the even code. Exact: float64 holds every midpoint."""
    values = np.minimum(values.astype(np.float64), grid[-1])
    above = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    low, high = values - grid[above - 1], grid[above] - values
    up = (high < low) | ((high == low) & (above % 2 == 0))
    return np.where(up, above, above - 1).astype(np.uint8)


def e4m3(values):
    codes = nearest_even(values, E4M3)
    library = np.minimum(values, F(448)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (codes == library).all()
    return codes


def blocks_of(x, height, width):
    """Largest magnitude per block, and the block's value spread back over the elements."""
    rows, columns = x.shape
    down, across = -(-rows // height), -(-columns // width)
    padded = np.zeros((down * height, across * width), F)
    padded[:rows, :columns] = np.abs(x)
    amax = padded.reshape(down, height, across, width).max(axis=(1, 3))
    spread = lambda b: np.repeat(np.repeat(b, height, 0), width, 1)[:rows, :columns]
    return amax, spread


def nvfp4(x, height, width):
    assert x.dtype == F
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="raise"):
        amax = np.abs(x).max()
        s_enc = min(F(2688) / amax, FLT_MAX) if amax > 0 else F(1)
        s_dec = F(1) / s_enc
        k = s_enc * (F(1) / F(6))
        a_b, spread = blocks_of(x, height, width)
        scales = e4m3(np.minimum(a_b * k, FLT_MAX))
        s_b = E4M3[scales].astype(F)
        e_b = np.minimum(F(1) / (s_b * s_dec), FLT_MAX)
        scaled = np.clip(x * spread(e_b), F(-6), F(6))
        codes = nearest_even(np.abs(scaled), E2M1) | np.where(np.signbit(scaled), 8, 0).astype(np.uint8)
        values = np.where(codes & 8, F(-1), F(1)) * E2M1[codes & 7].astype(F)
        dequantized = (values * spread(s_b)) * s_dec
    for array in (s_enc, s_dec, k, a_b, scaled, dequantized):
        assert np.asarray(array).dtype == F
    return {"codes": codes, "block_scales": scales, "tensor_scale": np.array([s_dec], F), "dequantized": dequantized}


def near_ties(rng):
    """Blocks whose scale lies within a few ulp of a tie of E4M3, under a tensor amax of 4: another order of operations shows."""
    k = (F(2688) / F(4)) * (F(1) / F(6))
    normal = E4M3[(E4M3 >= 2**-6) & (E4M3 < 448)]
    ties = (normal + E4M3[np.searchsorted(E4M3, normal) + 1]) / 2
    rows = []
    for tie in ties:
        start = (F(tie) / k).view(np.int32)
        for ulp in range(-3, 4):
            top = np.array(start + ulp, np.int32).view(F)
            row = (rng.uniform(-1, 1, 16) * top).astype(F)
            row[rng.integers(16)] = top
            rows.append(row)
    rows.append(np.full(16, 4, F))
    return np.array(rows, F)


def inputs():
    rng = np.random.default_rng(20)
    normal = lambda *shape: rng.standard_normal(shape).astype(F)
    cases = {
        "one": np.array([[-3.7]], F),
        "row": normal(1, 50),
        "column": normal(37, 1),
        "even": normal(32, 64),
        "ragged": normal(33, 47),
        "heavy": (rng.standard_normal((40, 70)) * np.exp(1.5 * rng.standard_normal((40, 70)))).astype(F),
        "zeros": np.zeros((5, 20), F),
        "signed_zeros": np.where(normal(4, 33) > 0.5, F(1), F(-0.0)).astype(F),
        "denormal": (rng.standard_normal((18, 40)) * 1e-40).astype(F),
        "denormal_beside_one": np.where(rng.uniform(size=(20, 48)) < 0.1, normal(20, 48), F(3e-41)).astype(F),
        "tiny": (normal(17, 33) / F(4) * F(1e-37)).astype(F),
        "huge": (normal(17, 33) * F(5e37)).astype(F),
        "powers": np.exp2(rng.integers(-30, 10, (24, 32))).astype(F),
        "near_ties": near_ties(rng),
    }
    cases["tiny"][3, 5] = F(1e-37)  # the largest magnitude of the matrix
    assert np.abs(cases["tiny"]).max() == F(1e-37)
    return cases


def main():
    tensors = {}
    for name, x in inputs().items():
        tensors[f"{name}.x"] = x
        for block, extents in {"1x16": (1, 16), "16x16": (16, 16)}.items():
            for part, value in nvfp4(x, *extents).items():
                tensors[f"{name}.{block}.{part}"] = value
    record.finish(
        "nvfp4_quantize",
        tensors,
        {
            "what": "matrices through NVFP4 in the published order of operations; compared bit for bit",
            "by": f"NumPy float32 arithmetic; ml_dtypes {ml_dtypes.__version__} agrees on every E4M3 scale",
        },
    )


if __name__ == "__main__":
    main()
