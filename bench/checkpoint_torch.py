"""PyTorch peer of checkpoints.cpp: the same float tensors by torch.save with a sync, and by torch.load when nothing of the file is cached.

Prints JSON with GB/s of both. The first save and load are not counted.
"""
import argparse
import json
import os
import time

import torch

WIDTH = 1024


def state(size):
    rows = size // 4 // WIDTH
    tensors = {"table": torch.rand(rows // 2, WIDTH)}
    for layer in range(3):
        tensors[f"layer{layer}.weight"] = torch.rand(rows // 6, WIDTH)
        tensors[f"layer{layer}.bias"] = torch.rand(WIDTH)
    return tensors


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.close(descriptor)


def drop_cached(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def seconds_of(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, required=True)
    parser.add_argument("--folder", required=True)
    options = parser.parse_args()
    tensors = state(options.megabytes * 1_000_000)
    gigabytes = 4e-9 * sum(tensor.numel() for tensor in tensors.values())
    path = os.path.join(options.folder, f"torch.{os.getpid()}")

    def save():
        torch.save(tensors, path)
        sync(path)

    try:
        for _ in range(2):
            if os.path.exists(path):
                os.unlink(path)
            saved = seconds_of(save)
        for _ in range(2):
            drop_cached(path)
            loaded = seconds_of(lambda: torch.load(path))
    finally:
        os.unlink(path)
    print(json.dumps({"save_gb_per_s": gigabytes / saved, "load_gb_per_s": gigabytes / loaded}))


main()
