"""The PyTorch twin of configs/reproduce/lenet5_mnist.toml: LeNet-5, ten epochs of 8,500 images, the last 1,500 held out.

Prints the validation accuracy of each seed and writes lenet5_mnist.json. It shares no random numbers with Tenon: compare
means over seeds.
"""

import argparse
import gzip
import json
import math
import pathlib

import numpy
import torch
from torch import nn

import record

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data/mnist"
BATCH, STEPS, WARMUP, LR, DECAY, VAL = 64, 1328, 50, 2e-3, 0.01, 1500
MEAN, STD = 0.1307, 0.3081


def idx(name, header):
    return numpy.frombuffer(gzip.decompress((FOLDER / name).read_bytes()), numpy.uint8)[header:]


def model():
    """61,706 parameters; as torch.nn initialises, which is what Tenon's layers do."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def learning_rate(t):
    if t < WARMUP:
        return LR * (t + 1) / WARMUP
    return 0.5 * LR * (1 + math.cos(math.pi * (t - WARMUP) / (STEPS - WARMUP)))


def train(seed, images, labels):
    torch.manual_seed(seed)
    net = model()
    assert sum(p.numel() for p in net.parameters()) == 61706
    decayed = [p for p in net.parameters() if p.ndim >= 2]
    plain = [p for p in net.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}], lr=LR)
    kept, val = torch.arange(len(labels) - VAL), slice(len(labels) - VAL, None)
    order = iter(())
    for t in range(STEPS):
        batch = []
        while len(batch) < BATCH:
            index = next(order, None)
            if index is None:
                order = iter(kept[torch.randperm(len(kept))].tolist())
                continue
            batch.append(index)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(t)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        return (net(images[val]).argmax(1) == labels[val]).double().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    pixels = torch.from_numpy(idx("t10k-images-idx3-ubyte.gz", 16).astype(numpy.float32) / 255).reshape(-1, 1, 28, 28)
    images = (pixels - MEAN) / STD
    labels = torch.from_numpy(idx("t10k-labels-idx1-ubyte.gz", 8).astype(numpy.int64))
    accuracy = []
    for seed in range(1, args.seeds + 1):
        accuracy.append(train(seed, images, labels))
        print(f"seed {seed}: val/accuracy {accuracy[-1]:.4f}", flush=True)
    print(f"mean {sum(accuracy) / len(accuracy):.4f}")
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"provenance": record.provenance(), "val_accuracy": accuracy}, indent=1) + "\n")


if __name__ == "__main__":
    main()
