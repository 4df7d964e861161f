"""Tensors in files: safetensors (what ``tenon export`` and checkpoints write) and npy.

safetensors are read by the library of that name where it and numpy are installed, else by the reader below. Values are
numpy arrays where numpy is installed, else a Tensor. BF16, which numpy lacks, comes as float32 with equal values.
"""

from __future__ import annotations

import array
import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

from .errors import PackageMissingError, UnreadableError
from .run_record import PathLike

# Name in the file -> bytes of an element, code of `memoryview.cast`, name in numpy. Halves have no code.
_TYPES = {
    "F64": (8, "d", "<f8"),
    "F32": (4, "f", "<f4"),
    "F16": (2, "", "<f2"),
    "BF16": (2, "", ""),
    "I64": (8, "q", "<i8"),
    "I32": (4, "i", "<i4"),
    "I16": (2, "h", "<i2"),
    "I8": (1, "b", "i1"),
    "U64": (8, "Q", "<u8"),
    "U32": (4, "I", "<u4"),
    "U16": (2, "H", "<u2"),
    "U8": (1, "B", "u1"),
    "BOOL": (1, "?", "bool"),
}


@dataclass(frozen=True)
class Tensor:
    """A tensor without numpy: ``data`` holds its elements, row by row, as numbers."""

    dtype: str  #: as in the file, e.g. F32
    shape: Tuple[int, ...]
    data: Any  #: a memoryview

    def tolist(self) -> List[Any]:
        """All elements, flat."""
        return list(self.data)


@dataclass(frozen=True)
class Entry:
    """A tensor's place in a file."""

    dtype: str
    shape: Tuple[int, ...]
    begin: int  #: in the file
    end: int


def _product(shape: Tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _counts(value: Any, what: str) -> Tuple[int, ...]:
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise ValueError(f"{what} is no list of counts")
    return tuple(value)


def _entry(value: Any, begin: int, size: int) -> Entry:
    if not isinstance(value, dict) or value.get("dtype") not in _TYPES:
        found = value.get("dtype") if isinstance(value, dict) else value
        raise ValueError(f"the type {found!r} is not among {', '.join(_TYPES)}")
    shape, offsets = _counts(value.get("shape"), "shape"), _counts(value.get("data_offsets"), "data_offsets")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= size - begin:
        raise ValueError(f"data_offsets {list(offsets)} are outside the file")
    if offsets[1] - offsets[0] != _product(shape) * _TYPES[value["dtype"]][0]:
        raise ValueError(f"data_offsets {list(offsets)} do not fit the shape {list(shape)}")
    return Entry(value["dtype"], shape, begin + offsets[0], begin + offsets[1])


def entries(path: PathLike) -> Dict[str, Entry]:
    """The header of a safetensors file: all tensors by name, without their values."""
    path = Path(path)
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
            if length > size - 8:
                raise UnreadableError(f"{path}: no safetensors file: it is too short for the header that it announces")
            header = json.loads(file.read(length).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("the header is no object")
        return {n: _entry(v, 8 + length, size) for n, v in header.items() if n != "__metadata__"}
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: no valid safetensors file: {error}") from None


def _widened(raw: bytes) -> Any:
    """BF16 as float32: the same upper half, and zeros."""
    half = array.array("H", raw)
    if sys.byteorder == "big":
        half.byteswap()
    words = array.array("I", (h << 16 for h in half))
    return memoryview(words).cast("B").cast("f")


def _cast(raw: bytes, code: Any) -> Any:
    return memoryview(raw).cast(code)


def value_of(path: PathLike, entry: Entry) -> Any:
    """One tensor: a numpy array where numpy is installed, else a Tensor."""
    with open(path, "rb") as file:
        file.seek(entry.begin)
        raw = file.read(entry.end - entry.begin)
    if len(raw) != entry.end - entry.begin:
        raise UnreadableError(f"{path}: became shorter while it was read")
    size, code, name = _TYPES[entry.dtype]
    try:
        import numpy
    except ImportError:
        if entry.dtype == "BF16":
            return Tensor(entry.dtype, entry.shape, _widened(raw))
        if entry.dtype == "F16":
            numbers = struct.unpack(f"<{len(raw) // 2}e", raw)
            return Tensor(entry.dtype, entry.shape, memoryview(array.array("f", numbers)))
        if sys.byteorder == "big" and size > 1:
            raise PackageMissingError(
                "this processor stores numbers in another order than the file; install numpy"
            ) from None
        return Tensor(entry.dtype, entry.shape, _cast(raw, code))
    if entry.dtype == "BF16":
        words = numpy.frombuffer(raw, "<u2").astype("<u4") << 16
        return words.view("<f4").reshape(entry.shape)
    return numpy.frombuffer(raw, name).reshape(entry.shape)


def _by_library(path: Path, found: Dict[str, Entry]) -> Dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            return {n: file.get_tensor(n) for n, e in found.items() if e.dtype != "BF16"}
    except SafetensorError as error:
        raise UnreadableError(f"{path}: no valid safetensors file: {error}") from None


def tensors(path: PathLike) -> Dict[str, Any]:
    """All tensors of a safetensors file by name."""
    path = Path(path)
    found = entries(path)
    try:
        import numpy  # noqa: F401
        import safetensors  # noqa: F401
    except ImportError:
        return {name: value_of(path, entry) for name, entry in found.items()}
    values = _by_library(path, found)
    return {name: values[name] if name in values else value_of(path, entry) for name, entry in found.items()}


def npy(path: PathLike) -> Any:
    """The array in a npy file, e.g. of ``tenon evaluate --write``; needs numpy."""
    try:
        import numpy
    except ImportError:
        raise PackageMissingError(f"{path}: npy files need numpy: pip install numpy") from None
    try:
        return numpy.load(path, allow_pickle=False)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise UnreadableError(f"{path}: no valid npy file: {error}") from None
