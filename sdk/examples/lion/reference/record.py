#!/usr/bin/env python3
"""Writes recorded.hpp: trajectories of Lion in PyTorch's tensor operations, written after the paper's algorithm 2 in
the order of the authors' own PyTorch form (decay first, then the signed step), not after lion.cpp.
Usage: record.py > recorded.hpp    Last run: 2026-11-22, Python 3.11.7, PyTorch 2.15.0."""
import sys

import torch


def lion(weights, gradients, lr, betas, decay):
    w, m, path = weights.clone(), torch.zeros_like(weights), []
    for g in gradients:
        w.mul_(1 - lr * decay)
        direction = m.clone().mul_(betas[0]).add_(g, alpha=1 - betas[0]).sign_()
        w.add_(direction, alpha=-lr)
        m.mul_(betas[1]).add_(g, alpha=1 - betas[1])
        path.append((w.clone(), m.clone()))
    return path


def array(name, values):
    flat = ", ".join(repr(float(v)) for v in values.flatten())
    return f"inline constexpr double {name}[] = {{{flat}}};"


def main():
    torch.manual_seed(11)
    steps, width = 6, 10
    weights = torch.randn(width, dtype=torch.float64)
    gradients = torch.randn(steps, width, dtype=torch.float64)
    gradients[:, 3] = 0  # sign(0) = 0: only decay moves this one
    gradients[2:, 5] = -gradients[:-2, 5]
    print(f"// Written by record.py with PyTorch {torch.__version__.split('+')[0]}, Python {sys.version.split()[0]}. Do not edit.")
    print("#pragma once\n")
    print("// clang-format off")
    print("namespace recorded {\n")
    print(f"inline constexpr int kSteps = {steps}, kWidth = {width};")
    print(array("kStart", weights))
    print(array("kGradients", gradients))
    for name, betas, decay in (("Default", (0.9, 0.99), 0.0), ("Decay", (0.95, 0.98), 0.5)):
        path = lion(weights, gradients, 0.05, betas, decay)
        print(array(f"k{name}Weights", torch.stack([w for w, _ in path])))
        print(array(f"k{name}Momentum", torch.stack([m for _, m in path])))
    print("\n}  // namespace recorded")
    print("// clang-format on")


main()
