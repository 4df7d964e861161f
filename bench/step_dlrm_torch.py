"""Eager PyTorch peer of step_dlrm.cpp: the same DLRM, sparse EmbeddingBags, SGD. Prints samples per second.

Batches are made beforehand: ids fall off as a power law over the rows, scattered over the table. bf16 is torch.autocast, its
usual way; tables stay float32, as ours do.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_steps import run_steps

BATCHES = 8


def perceptron(widths, last):
    layers = []
    for i, (before, after) in enumerate(zip(widths, widths[1:])):
        layers.append(nn.Linear(before, after))
        if last or i + 2 < len(widths):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class Dlrm(nn.Module):
    def __init__(self, dense, bottom, top, tables, rows):
        super().__init__()
        width, vectors = bottom[-1], tables + 1
        self.bottom = perceptron([dense, *bottom], True)
        self.top = perceptron([width + vectors * (vectors - 1) // 2, *top], False)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(tables))
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, offset=-1))

    def forward(self, dense, ids, offsets):
        z0 = self.bottom(dense)
        vectors = torch.stack([z0, *(table(ids[t], offsets).to(z0.dtype) for t, table in enumerate(self.tables))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([z0, products[:, self.pairs[0], self.pairs[1]]], 1))[:, 0]


def power_law_ids(rows, exponent, shape):
    weights = torch.arange(1, rows + 1, dtype=torch.float64) ** -exponent
    ranks = torch.multinomial(weights, shape.numel(), replacement=True).view(shape)
    return torch.randperm(rows)[ranks]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="fp32")
    for name in ("steps", "threads", "tables", "rows", "dense", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--exponent", type=float, required=True)
    for name in ("bottom", "top"):
        parser.add_argument("--" + name, type=lambda text: [int(n) for n in text.split(",")], required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = Dlrm(a.dense, a.bottom, a.top, a.tables, a.rows)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    offsets = torch.arange(a.batch)
    batches = [(torch.randn(a.batch, a.dense),
                torch.stack([power_law_ids(a.rows, a.exponent, torch.Size([a.batch])) for _ in range(a.tables)]),
                torch.randint(0, 2, (a.batch,)).float()) for _ in range(BATCHES)]

    def step(t):
        dense, ids, labels = batches[t % BATCHES]
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            logits = model(dense, ids, offsets)
        loss = F.binary_cross_entropy_with_logits(logits.float(), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    run_steps(step, a.steps, a.batch)


main()
