#!/usr/bin/env python3
"""Writes recorded.hpp: what a block quantizer to int8 leaves of awkward numbers, by NumPy's float32 arithmetic and its
own rounding (numpy.rint), written after the formula in quantizer.hpp and not after quantizer.cpp.
Usage: record.py > recorded.hpp    Last run: 2026-11-22, Python 3.11.7, NumPy 2.4.6."""
import sys

import numpy as np


def quantize_block(x):
    if not np.all(np.isfinite(x)):
        return np.full_like(x, np.nan)
    scale = np.max(np.abs(x)) / np.float32(127)
    if scale == 0:
        return np.zeros_like(x)
    codes = np.clip(np.rint(x / scale), -127, 127).astype(np.int8)
    assert codes.min() >= -127
    return codes.astype(np.float32) * scale


def quantize_rows(x, block):
    return np.stack([np.concatenate([quantize_block(row[i:i + block]) for i in range(0, len(row), block)]) for row in x])


def numbers():
    rng = np.random.default_rng(12)
    x = rng.standard_normal((9, 70)).astype(np.float32)
    x *= (10.0 ** rng.integers(-6, 7, size=x.shape)).astype(np.float32) ** (rng.random(x.shape) < 0.3)
    x[0, :16] = np.arange(-8, 8) / np.float32(2)  # ties: with amax 127 / 2 codes lie between two integers
    x[0, 15] = np.float32(63.5)
    x[1, 16:32] = 0
    x[2, 32:48] *= np.float32(1e-42)  # below the smallest normal number; the scale loses bits or vanishes
    x[3, 5] = np.nan
    x[4, 20] = np.inf
    x[5, 64] = -np.inf
    x[6, :] = np.float32(3.4028235e38)
    x[7, ::2] *= -1
    x[8, :] = np.float32(-0.0)
    return x


def array(name, x):
    bits = ", ".join(f"0x{b:08x}" for b in x.astype(np.float32).flatten().view(np.uint32))
    return f"inline constexpr std::uint32_t {name}[] = {{{bits}}};"


def main():
    x = numbers()
    print(f"// Written by record.py with NumPy {np.__version__}, Python {sys.version.split()[0]}: bits of float32. Do not edit.")
    print("#pragma once\n\n#include <cstdint>\n\n// clang-format off\nnamespace recorded {\n")
    print(f"inline constexpr std::int64_t kRows = {x.shape[0]}, kColumns = {x.shape[1]};")
    print(array("kNumbers", x))
    for block in (1, 16, 32, 128):
        print(array(f"kAlongRows{block}", quantize_rows(x, block)))
        print(array(f"kAlongColumns{block}", quantize_rows(np.ascontiguousarray(x.T), block).T))
    print("\n}  // namespace recorded\n// clang-format on")


main()
