"""Tensors: files that are written here byte by byte, and exports and checkpoints of real runs."""

import json
import struct
import sys
import unittest
from unittest import mock

import tenon_runs
from tenon_runs.errors import PackageMissingError, UnreadableError

from .tiny_runs import PROGRAM, ROOT, scratch, tenon, train, zoo

try:
    import numpy
except ImportError:
    numpy = None

TABLE = "replica0/model/transformer.wte.weight"
WITHOUT = {"numpy": None, "safetensors": None}  # for sys.modules: imports fail


def packed(header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


def written(name, content):
    path = scratch() / name
    path.write_bytes(content)
    return path


def flat(value):
    return value.reshape(-1).tolist() if hasattr(value, "reshape") else value.tolist()


# Type in the file -> its bytes by struct, and the numbers that they stand for.
TYPES = {
    "F64": (struct.pack("<3d", 1.5, -2e300, 0.1), [1.5, -2e300, 0.1]),
    "F32": (struct.pack("<3f", 1.5, -2.25, 0.0), [1.5, -2.25, 0.0]),
    "F16": (struct.pack("<3e", 1.5, -2.25, 65504), [1.5, -2.25, 65504]),
    "BF16": (struct.pack("<3H", 0x3F80, 0xC010, 0x7F7F), [1.0, -2.25, 3.3895313892515355e38]),
    "I64": (struct.pack("<3q", 1, -(2**63), 2**63 - 1), [1, -(2**63), 2**63 - 1]),
    "I32": (struct.pack("<3i", 1, -2, 3), [1, -2, 3]),
    "I16": (struct.pack("<3h", 1, -2, 3), [1, -2, 3]),
    "I8": (struct.pack("<3b", 1, -2, 3), [1, -2, 3]),
    "U64": (struct.pack("<3Q", 1, 2, 2**64 - 1), [1, 2, 2**64 - 1]),
    "U32": (struct.pack("<3I", 1, 2, 3), [1, 2, 3]),
    "U16": (struct.pack("<3H", 1, 2, 3), [1, 2, 3]),
    "U8": (struct.pack("<3B", 1, 2, 255), [1, 2, 255]),
    "BOOL": (b"\x01\x00\x01", [True, False, True]),
}


def one(dtype="F32", shape=(3,), begin=0, end=12, **more):
    return {"t": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}}


class Types(unittest.TestCase):
    def all_types(self):
        for dtype, (data, numbers) in TYPES.items():
            with self.subTest(dtype):
                header = {"__metadata__": {"format": "pt"}, **one(dtype, (1, 3), 0, len(data))}
                found = tenon_runs.tensors(written(f"{dtype}.safetensors", packed(header, data)))
                self.assertEqual(list(found), ["t"])
                self.assertEqual(tuple(found["t"].shape), (1, 3))
                self.assertEqual(flat(found["t"]), numbers)

    def test_without_packages(self):
        with mock.patch.dict(sys.modules, WITHOUT):
            self.all_types()

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_alone(self):
        with mock.patch.dict(sys.modules, {"safetensors": None}):
            self.all_types()

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_with_the_library_safetensors(self):
        try:
            import safetensors  # noqa: F401
        except ImportError:
            self.skipTest("safetensors is not installed")
        self.all_types()

    def test_scalars_and_empty_tensors(self):
        header = {"s": one("F32", (), 0, 4)["t"], "e": one("F32", (0, 7), 4, 4)["t"]}
        path = written("scalar.safetensors", packed(header, struct.pack("<f", 2.5)))
        with mock.patch.dict(sys.modules, WITHOUT):
            found = tenon_runs.tensors(path)
        self.assertEqual((found["s"].shape, found["s"].tolist()), ((), [2.5]))
        self.assertEqual((found["e"].shape, found["e"].tolist()), ((0, 7), []))


class Refused(unittest.TestCase):
    CASES = [
        (b"", "too short"),
        (b"\x05\x00\x00", "too short"),
        (struct.pack("<Q", 2**63) + b"{}", "too short"),
        (packed(b"{"), "no valid safetensors file"),
        (packed(b"[]"), "the header is no object"),
        (packed(b"\xff"), "no valid safetensors file"),
        (packed(b"[" * 100000), "no valid safetensors file"),
        (packed({"t": 3}), "the type 3 is not among"),
        (packed(one("F4"), b"0" * 12), "the type 'F4' is not among F64"),
        (packed(one(end=13), b"0" * 12), "outside the file"),
        (packed(one(begin=12, end=0), b"0" * 12), "outside the file"),
        (packed(one(shape=(4,)), b"0" * 12), "do not fit the shape"),
        (packed(one(shape=(-3,)), b"0" * 12), "shape is no list of counts"),
        (packed(one(shape=(True,), end=4), b"0" * 12), "shape is no list of counts"),
        (packed({"t": {"dtype": "F32"}}), "shape is no list of counts"),
        (packed({"t": {"dtype": "F32", "shape": [0], "data_offsets": [0]}}), "outside the file"),
    ]

    def test_damaged_files(self):
        for number, (content, pattern) in enumerate(self.CASES):
            path = written(f"damaged{number}.safetensors", content)
            with self.subTest(pattern, number=number), self.assertRaisesRegex(UnreadableError, pattern) as caught:
                tenon_runs.tensors(path)
            self.assertIn(str(path), str(caught.exception))

    def test_no_file(self):
        with self.assertRaisesRegex(UnreadableError, "cannot be read: No such file"):
            tenon_runs.tensors(scratch() / "nothing.safetensors")

    def test_npy(self):
        with mock.patch.dict(sys.modules, WITHOUT), self.assertRaisesRegex(PackageMissingError, "pip install numpy"):
            tenon_runs.npy("x.npy")
        if numpy is None:
            self.skipTest("numpy is not installed; the error that says so was tested")
        path = scratch() / "a.npy"
        numpy.save(path, numpy.arange(6).reshape(2, 3))
        self.assertEqual(tenon_runs.npy(path).tolist(), [[0, 1, 2], [3, 4, 5]])
        path.write_bytes(b"\x93NUMPY")
        with self.assertRaisesRegex(UnreadableError, "no valid npy file"):
            tenon_runs.npy(path)
        with self.assertRaisesRegex(UnreadableError, "No such file"):
            tenon_runs.npy(scratch() / "nothing.npy")


class RealRuns(unittest.TestCase):
    def test_an_export(self):
        run = zoo() / "deep/er/saved"
        told = json.loads(tenon("export", run, "--out", scratch() / "export/model.safetensors", "--json"))
        found = tenon_runs.tensors(scratch() / "export/model.safetensors")
        total = sum(len(flat(value)) for value in found.values())
        self.assertEqual((len(found), total), (told["tensors"], told["elements"]))
        self.assertEqual(told["weights_hash"], tenon_runs.load(run).weights_hash)

    def test_a_checkpoint_holds_what_is_exported(self):
        run = zoo() / "deep/er/saved"
        out = tenon_runs.export(run, scratch() / "export2/model.safetensors", program=PROGRAM)
        saved = tenon_runs.checkpoint(run)
        self.assertEqual((saved.step, tenon_runs.checkpoint_steps(run)), (4, [2, 4]))
        self.assertNotEqual(flat(tenon_runs.checkpoint(run, 2).tensor(TABLE)), flat(saved.tensor(TABLE)))
        exported = tenon_runs.tensors(out)
        name = "transformer.h.1.mlp.c_fc.weight"
        inside = saved.tensor(saved.weights_prefix + name)
        self.assertEqual(flat(inside), flat(exported[name]))
        self.assertEqual(saved.shapes[saved.weights_prefix + name], tuple(exported[name].shape))
        self.assertGreater(len(set(flat(inside))), 1000)

    def test_parts_of_several_ranks(self):
        run = train(scratch() / "mesh", "run.steps=2", "run.eval_batches=1", "data.batch=8", "recovery.type=full",
                    config=ROOT / "configs/base/lenet5_2x2.toml", tiny=False)  # fmt: skip
        saved = tenon_runs.checkpoint(run)
        with mock.patch.dict(sys.modules, WITHOUT):
            self.assertEqual(len(saved.tensor(saved.weights_prefix + "conv1.bias").tolist()), 6)
            with self.assertRaisesRegex(PackageMissingError, "in 4 parts, which need numpy"):
                saved.tensor(saved.weights_prefix + "fc1.weight")
        if numpy is None:
            self.skipTest("numpy is not installed; the error that says so was tested")
        tenon("export", run, "--out", scratch() / "export3/model.safetensors")
        for name, value in tenon_runs.tensors(scratch() / "export3/model.safetensors").items():
            self.assertTrue(numpy.array_equal(saved.tensor(saved.weights_prefix + name), value), name)

    def test_what_is_not_there(self):
        with self.assertRaisesRegex(UnreadableError, r'no checkpoint; a run saves with \[recovery\] type = "full"'):
            tenon_runs.checkpoint(zoo() / "plain")
        with self.assertRaisesRegex(UnreadableError, r"no checkpoint of step 3 \(it has: 2, 4\)"):
            tenon_runs.checkpoint(zoo() / "deep/er/saved", 3)
        with self.assertRaisesRegex(KeyError, "`shapes` lists all"):
            tenon_runs.checkpoint(zoo() / "deep/er/saved").tensor("x")
