"""Eager PyTorch peer of field_shape.hpp: the same Fourier neural operator, LeNet-5 and ResNet-18. Prints samples per second.

The operator is written as its authors' program is: rfft2, a product per mode of two corners, irfft2, beside a convolution of
one point. Batches are made beforehand.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_steps import run_steps

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


class BasicBlock(nn.Module):
    def __init__(self, channels, features, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, features, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(features, features, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(features), nn.BatchNorm2d(features)
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(channels, features, 1, stride, bias=False), nn.BatchNorm2d(features))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    layers, channels = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for features in (64, 128, 256, 512):
        for _ in range(2):
            layers.append(BasicBlock(channels, features, 1 if channels == features else 2))
            channels = features
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)


def images(batch, *shape):
    return [(torch.randn(batch, *shape), torch.randint(0, 10, (batch,))) for _ in range(BATCHES)]


def workload(name, batch):
    """Model, optimizer, loss and batches."""
    if name == "fno":
        shape = (batch, 1, POINTS, POINTS)
        model, data = Fno(), [(torch.randn(shape), torch.randn(shape)) for _ in range(BATCHES)]
        return model, adamw(model), relative_l2, data
    if name == "lenet5":
        model = lenet5()
        return model, adamw(model), F.cross_entropy, images(batch, 1, 28, 28)
    model = resnet18()
    return model, momentum(model), F.cross_entropy, images(batch, 3, 32, 32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("fno", "lenet5", "resnet18"), required=True)
    for name in ("batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model, optimizer, loss, batches = workload(a.model, a.batch)

    def step(t):
        x, y = batches[t % BATCHES]
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), y).backward()
        optimizer.step()

    run_steps(step, a.steps, a.batch)


main()
