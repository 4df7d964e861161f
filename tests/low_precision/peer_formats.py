#!/usr/bin/env python3
"""What ml_dtypes and torchao make of inputs that our quantizers saw: PART FILE, where FILE is what peer_formats_test wrote.

PART elements: casts of ml_dtypes. PART torchao: NVFP4 with torchao's training quantizer (the arithmetic of its Triton kernel,
run by Triton's interpreter) and MX with torchao's `to_mx`. Prints what was compared, ends with 1 on a difference and with 77
where a package is missing.
"""

import importlib.util
import os
import sys


def skipped(error):
    print(f"skipped: {error}")
    sys.exit(77)


try:
    import numpy
except ImportError as missing:
    skipped(missing)


def read(path):
    """Sections: a line `name dtype count`, then the bytes."""
    sections = {}
    with open(path, "rb") as file:
        while header := file.readline():
            name, dtype, count = header.decode().split()
            sections[name] = numpy.frombuffer(file.read(int(count) * numpy.dtype(dtype).itemsize), dtype)
    return sections


def agree(what, ours, theirs, where=None):
    where = numpy.ones(ours.shape, bool) if where is None else where
    different = (ours != theirs) & where
    print(f"{what}: {int(where.sum())} compared, {int(different.sum())} different")
    return not different.any() and where.any()


def elements(data):
    try:
        import ml_dtypes
    except ImportError as error:
        skipped(error)
    print(f"ml_dtypes {ml_dtypes.__version__}, numpy {numpy.__version__}")
    x, equal = data["x"].view(numpy.float32), True
    for name, dtype, largest in (("e2m1", ml_dtypes.float4_e2m1fn, 6), ("e2m3", ml_dtypes.float6_e2m3fn, 7.5),
                                 ("e3m2", ml_dtypes.float6_e3m2fn, 28), ("e4m3", ml_dtypes.float8_e4m3fn, 448),
                                 ("e5m2", ml_dtypes.float8_e5m2, 57344)):
        # These casts do not saturate, and their NaN differs.
        number = ~numpy.isnan(x)
        theirs = numpy.clip(numpy.where(number, x, 0), -largest, largest).astype(numpy.float32).astype(dtype)
        equal &= agree(name, data[name], theirs.view(numpy.uint8), number)
    powers = numpy.ldexp(numpy.float32(1), numpy.arange(-127, 128)).astype(numpy.float32)
    equal &= agree("e8m0, powers of two", data["e8m0"], powers.astype(ml_dtypes.float8_e8m0fnu).view(numpy.uint8))
    return equal


def repair_interpreter(torch):
    """Triton 3.9's interpreter loses the carry into the exponent in casts to E4M3 (127.6 becomes 64); GPUs do not. The cast
    is PyTorch's instead."""
    import triton.language as tl
    from triton.runtime import interpreter

    theirs = interpreter._convert_float

    def convert(data, source, target, rounding):
        if source == tl.float32 and target == tl.float8e4nv:
            return torch.from_numpy(data.view(numpy.float32).copy()).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        return theirs(data, source, target, rounding)

    interpreter._convert_float = convert


def interpreted_nvfp4(torch):
    """torchao's _nvfp4_quantize (block scales and scaled values) behind Triton's interpreter; torchao defines its kernels
    only where Triton finds a GPU, so it is told that there is one; the file is loaded alone, because its neighbours would
    compile theirs."""
    import torch.utils._triton
    import torchao
    import triton
    import triton.language as tl

    repair_interpreter(torch)
    path = os.path.join(os.path.dirname(torchao.__file__), "prototype/moe_training/nvfp4_training/hadamard_utils.py")
    spec = importlib.util.spec_from_file_location("hadamard_utils", path)
    hadamard_utils = importlib.util.module_from_spec(spec)
    found, torch.utils._triton.has_triton = torch.utils._triton.has_triton, lambda: True
    spec.loader.exec_module(hadamard_utils)
    torch.utils._triton.has_triton = found
    global _nvfp4_quantize  # Triton looks names up in the module
    _nvfp4_quantize = hadamard_utils._nvfp4_quantize

    @triton.jit
    def kernel(x_ptr, amax_ptr, scale_ptr, scaled_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        scale, scaled = _nvfp4_quantize(tl.load(x_ptr + at), tl.load(amax_ptr), ROWS, COLUMNS)
        tl.store(scaled_ptr + at, scaled)
        blocks = tl.arange(0, ROWS)[:, None] * (COLUMNS // 16) + tl.arange(0, COLUMNS // 16)[None, :]
        tl.store(scale_ptr + blocks, scale.to(tl.float32))

    def run(x):
        rows, columns = x.shape
        scale, scaled = torch.empty(rows, columns // 16), torch.empty(rows, columns)
        kernel[(1,)](x, x.abs().max().reshape(1), scale, scaled, ROWS=rows, COLUMNS=columns)
        return scale.to(torch.float8_e4m3fn).view(torch.uint8).numpy(), scaled

    return run


def torchao(data):
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        import torch
        import torchao
        import triton
        from torchao.prototype.mx_formats.kernels import f32_to_f4_unpacked
        from torchao.prototype.mx_formats.config import ScaleCalculationMode
        from torchao.prototype.mx_formats.mx_tensor import to_mx

        nvfp4 = interpreted_nvfp4(torch)
    except ImportError as error:
        skipped(error)
    print(f"torch {torch.__version__}, torchao {torchao.__version__}, triton {triton.__version__}")
    rows, columns = (int(n) for n in data["shape"])
    x = torch.from_numpy(data["x"].view(numpy.float32).reshape(rows, columns).copy())
    scale, scaled = nvfp4(x)
    codes = f32_to_f4_unpacked(scaled).numpy()
    # torchao floors the block scale at 2^-6 (code 8); the published order does not.
    floored = data["nvfp4.scales"].reshape(scale.shape) < 8
    print(f"nvfp4: {int(floored.sum())} of {floored.size} block scales under torchao's floor of 2^-6, left out")
    equal = bool((scale[floored] == 8).all())
    equal &= agree("nvfp4 block scales", data["nvfp4.scales"].reshape(scale.shape), scale, ~floored)
    equal &= agree("nvfp4 codes", data["nvfp4.codes"].reshape(rows, columns), codes, ~numpy.repeat(floored, 16, 1))
    for element, dtype in (("e2m1", torch.float4_e2m1fn_x2), ("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        for rule in ("FLOOR", "CEIL", "EVEN", "RCEIL"):
            theirs_scale, theirs = to_mx(x, dtype, 32, ScaleCalculationMode[rule])
            theirs = theirs.view(torch.uint8).numpy().reshape(rows, -1)
            if element == "e2m1":
                theirs = numpy.stack([theirs & 15, theirs >> 4], -1).reshape(rows, columns)
            name = f"mx_{element}_{rule.lower()}"
            ours = data[f"{name}.scales"].reshape(rows, -1)
            equal &= agree(f"{name} scales", ours, theirs_scale.view(torch.uint8).numpy())
            equal &= agree(f"{name} codes", data[f"{name}.codes"].reshape(rows, columns), theirs)
    return equal


if __name__ == "__main__":
    part, path = sys.argv[1:]
    sys.exit(0 if {"elements": elements, "torchao": torchao}[part](read(path)) else 1)
