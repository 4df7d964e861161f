"""Writes reference numbers: NAME.safetensors (the numbers) beside NAME.json (how they were made).

With --check a script writes nothing: it computes its numbers again and compares them with those on disk, so that a record
that no longer follows from its script is noticed. Numbers come from PyTorch and NumPy alone, never from Tenon.
"""

import argparse
import datetime
import json
import pathlib
import platform
import sys

import numpy
from safetensors import __version__ as safetensors_version
from safetensors.numpy import load_file, save_file

try:
    import torch
except ImportError:  # scripts of NumPy alone run without it
    torch = None

FOLDER = pathlib.Path(__file__).resolve().parent
# One thread and the same machine give the same bits; other BLAS kernels sum in another order.
CHECK_RTOL = {"float64": 1e-11, "float32": 1e-4, "int64": 0.0, "uint8": 0.0}


def provenance():
    found = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "safetensors": safetensors_version,
        "machine": platform.machine(),
    }
    if torch is not None:
        found["torch"] = torch.__version__
        found["torch_threads"] = torch.get_num_threads()
        found["torch_cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return found


def as_arrays(tensors):
    """Detached, contiguous copies: safetensors stores the buffer as it lies and would store a transposed view wrongly."""
    arrays = {}
    for name, value in tensors.items():
        if torch is not None and isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        arrays[name] = numpy.array(value, order="C", copy=True)
    return arrays


def relative_error(a, b):
    """Largest difference, relative to the largest element of b; the absolute one where b is all zero."""
    a, b = numpy.asarray(a, numpy.float64), numpy.asarray(b, numpy.float64)
    return float(numpy.abs(a - b).max(initial=0.0) / (numpy.abs(b).max(initial=0.0) or 1.0))


def differences(old, new):
    """Names whose shape, type or value differ."""
    found = [f"{name}: only in one of the two" for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        a, b = old[name], new[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            found.append(f"{name}: {a.dtype}{a.shape} on disk, {b.dtype}{b.shape} computed")
            continue
        error = relative_error(b, a)
        if not error <= CHECK_RTOL[str(a.dtype)]:
            found.append(f"{name}: relative error {error:.3g}")
    return found


def finish(name, tensors, description):
    """Writes the pair, or compares under --check and exits with 1 on a difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare with the files on disk, write nothing")
    arrays, target = as_arrays(tensors), FOLDER / f"{name}.safetensors"
    if parser.parse_args().check:
        found = differences(load_file(target), arrays)
        print("\n".join(found) or f"{target.name}: {len(arrays)} tensors agree")
        sys.exit(1 if found else 0)
    save_file(arrays, target)
    target.chmod(0o644)
    text = json.dumps({"provenance": provenance(), **description}, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    print(f"{target.name}: {len(arrays)} tensors, {target.stat().st_size} bytes")
