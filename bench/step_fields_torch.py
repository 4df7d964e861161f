"""Eager PyTorch peer of step_fields.cpp: the same Fourier neural operator and LeNet-5, AdamW. Prints samples per second.

The operator is written as its authors' program is: rfft2, a product per mode of two corners, irfft2, beside a convolution of
one point. Batches are made beforehand.
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCHES = 8
POINTS, WIDTH, MODES, LAYERS, PROJECTION = 64, 32, 12, 4, 128


class SpectralConv(nn.Module):
    def __init__(self):
        super().__init__()
        scale = 1 / WIDTH ** 2
        self.low, self.high = (nn.Parameter(scale * torch.rand(WIDTH, WIDTH, MODES, MODES, dtype=torch.cfloat)) for _ in "ab")

    def forward(self, x):
        modes = torch.fft.rfft2(x)
        out = torch.zeros_like(modes)
        for rows, weight in ((slice(0, MODES), self.low), (slice(-MODES, None), self.high)):
            out[:, :, rows, :MODES] = torch.einsum("bixy,ioxy->boxy", modes[:, :, rows, :MODES], weight)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class Fno(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Conv2d(3, WIDTH, 1)
        self.spectral = nn.ModuleList(SpectralConv() for _ in range(LAYERS))
        self.linear = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 1) for _ in range(LAYERS))
        self.project, self.out = nn.Conv2d(WIDTH, PROJECTION, 1), nn.Conv2d(PROJECTION, 1, 1)
        ticks = torch.arange(POINTS) / POINTS
        self.register_buffer("places", torch.stack(torch.meshgrid(ticks, ticks, indexing="ij"))[None])

    def forward(self, x):
        x = self.lift(torch.cat([x, self.places.expand(len(x), -1, -1, -1)], 1))
        for i, (spectral, linear) in enumerate(zip(self.spectral, self.linear)):
            x = spectral(x) + linear(x)
            if i + 1 < LAYERS:
                x = F.gelu(x)
        return self.out(F.gelu(self.project(x)))


def relative_l2(y, target):
    return ((y - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)).mean()


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def workload(model, batch):
    if model == "fno":
        shape = (batch, 1, POINTS, POINTS)
        return Fno(), relative_l2, [(torch.randn(shape), torch.randn(shape)) for _ in range(BATCHES)]
    return lenet5(), F.cross_entropy, [(torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))) for _ in range(BATCHES)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("fno", "lenet5"), required=True)
    for name in ("batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model, loss, batches = workload(a.model, a.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(t):
        x, y = batches[t % BATCHES]
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), y).backward()
        optimizer.step()

    warm = max(1, a.steps // 2)
    for t in range(warm):
        step(t)
    counted = max(1, a.steps - warm)
    begin = time.perf_counter()
    for t in range(counted):
        step(t)
    print(counted * a.batch / (time.perf_counter() - begin))


main()
