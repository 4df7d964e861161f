"""Files as NumPy writes them and images as torchvision's ToTensor and Normalize scale them: data_formats.safetensors.

npy.CASE.file holds the bytes of a .npy file, npy.CASE.values what is in it (int64 for whole numbers, float64 for real ones);
mnist.* the first, a middle and the last shipped image with their labels, and the scaled value of every byte.
"""

import gzip
import io

import numpy
import torch

import record

MNIST = record.FOLDER.parent.parent / "data" / "mnist"


def npy(array, version):
    file = io.BytesIO()
    numpy.lib.format.write_array(file, array, version=version)
    return numpy.frombuffer(file.getvalue(), numpy.uint8)


def npy_cases():
    generator = numpy.random.default_rng(5)
    cases = {
        "f4": (generator.normal(size=(2, 3)).astype("<f4"), (1, 0)),
        "f8": (generator.normal(size=(5, 2, 2)).astype("<f8"), (1, 0)),
        "i4": (generator.integers(-(2**31), 2**31, size=(4,)).astype("<i4"), (1, 0)),
        "i8": (generator.integers(-(2**62), 2**62, size=(3, 1)).astype("<i8"), (2, 0)),
        "u1": (generator.integers(0, 256, size=(6, 7)).astype("u1"), (3, 0)),
        "bool": (generator.integers(0, 2, size=(3, 4, 5)).astype("?"), (1, 0)),
    }
    found = {}
    for name, (array, version) in cases.items():
        found[f"npy.{name}.file"] = npy(array, version)
        found[f"npy.{name}.values"] = array.astype("float64" if array.dtype.kind == "f" else "int64")
    return found


def mnist():
    images = numpy.frombuffer(gzip.open(MNIST / "t10k-images-idx3-ubyte.gz").read(), numpy.uint8, offset=16)
    labels = numpy.frombuffer(gzip.open(MNIST / "t10k-labels-idx1-ubyte.gz").read(), numpy.uint8, offset=8)
    chosen = [0, 4999, 9999]
    raw = torch.tensor(images.reshape(-1, 28, 28)[chosen])
    unit = torch.arange(256, dtype=torch.uint8).to(torch.float32).div(255)
    standard = unit.clone().sub_(torch.as_tensor(0.1307)).div_(torch.as_tensor(0.3081))
    return {
        "mnist.images": raw.to(torch.float32).div(255),
        "mnist.labels": torch.tensor(labels[chosen].astype(numpy.int64)),
        "mnist.class_counts": numpy.bincount(labels, minlength=10).astype(numpy.int64),
        "mnist.unit": unit,
        "mnist.standard": standard,
    }


record.CHECK_RTOL["uint8"] = 0.0
record.finish("data_formats", {**npy_cases(), **mnist()}, {"what": "files of NumPy; images scaled as by torchvision"})
