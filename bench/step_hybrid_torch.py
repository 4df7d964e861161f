"""PyTorch peer of step_hybrid.cpp, eager: the chunked state space model alone, or training steps of a hybrid. Prints tokens per second.

The chunked form is the listing of Dao and Gu (2024, "SSD minimal"), from the same inputs as ours: the projected row, softplus of the
step and the term D x are part of it. Forward and backward of all inputs and parameters.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_steps import run_steps


def segment_sums(l):
    """[..., q] to [..., q, q]: the sum of l over (j, i], minus infinity for j > i."""
    q = l.shape[-1]
    x = l[..., None].expand(*l.shape, q)
    x = x.masked_fill(~torch.ones(q, q, dtype=torch.bool).tril(-1), 0).cumsum(-2)
    return x.masked_fill(~torch.ones(q, q, dtype=torch.bool).tril(0), -math.inf)


def chunked(u, l, b, c, chunk):
    """u: [batch, time, heads, width], l: [batch, time, heads], b and c: [batch, time, groups, state]."""
    batch, time_, heads, width = u.shape
    groups = b.shape[2]
    n = time_ // chunk
    u = u.reshape(batch, n, chunk, groups, heads // groups, width)
    b, c = (t.reshape(batch, n, chunk, groups, -1) for t in (b, c))
    l = l.reshape(batch, n, chunk, groups, heads // groups).permute(0, 3, 4, 1, 2)  # b g h n q
    total = l.cumsum(-1)
    scores = torch.einsum("bnigs,bnjgs->bgnij", c, b)
    weights = scores[:, :, None] * segment_sums(l).exp()
    y = torch.einsum("bghnij,bnjghp->bnighp", weights, u)
    tail = (total[..., -1:] - total).exp()
    states = torch.einsum("bnjgs,bghnj,bnjghp->bnghsp", b, tail, u)
    states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
    passed = segment_sums(F.pad(total[..., -1], (1, 0))).exp()
    states = torch.einsum("bghzn,bnghsp->bzghsp", passed, states)[:, :-1]
    y = y + torch.einsum("bnigs,bnghsp,bghni->bnighp", c, states, total.exp())
    return y.reshape(batch, time_, heads, width)


def ssd(xbc, step, a_log, dt_bias, d, heads, groups, state, chunk):
    batch, time_, columns = xbc.shape
    inner = columns - 2 * groups * state
    x, b, c = xbc.split([inner, groups * state, groups * state], -1)
    x = x.reshape(batch, time_, heads, -1)
    delta = F.softplus(step + dt_bias)
    y = chunked(delta[..., None] * x, -delta * a_log.exp(), b.reshape(batch, time_, groups, -1), c.reshape(batch, time_, groups, -1), chunk)
    return (y + d[:, None] * x).reshape(batch, time_, -1)


class Mamba2(nn.Module):
    def __init__(self, width, heads, head_width, state, groups, chunk, conv=4):
        super().__init__()
        self.sizes = heads, groups, state, chunk
        self.inner = heads * head_width
        self.channels = self.inner + 2 * groups * state
        self.in_proj = nn.Linear(width, self.inner + self.channels + heads, bias=False)
        self.conv = nn.Conv1d(self.channels, self.channels, conv, groups=self.channels, padding=conv - 1)
        self.a_log, self.dt_bias, self.d = (nn.Parameter(torch.rand(heads)) for _ in range(3))
        self.norm = nn.Parameter(torch.ones(self.inner))
        self.out_proj = nn.Linear(self.inner, width, bias=False)

    def forward(self, x):
        heads, groups, state, chunk = self.sizes
        z, xbc, step = self.in_proj(x).split([self.inner, self.channels, heads], -1)
        xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        y = ssd(xbc, step, self.a_log, self.dt_bias, self.d, heads, groups, state, chunk) * F.silu(z)
        y = y.reshape(*y.shape[:-1], groups, -1)
        y = (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)).flatten(-2) * self.norm
        return self.out_proj(y)


class Attention(nn.Module):
    def __init__(self, width, heads=4, kv_heads=2):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * kv_heads * width // heads, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, time_, width = x.shape
        q = self.q(x).view(batch, time_, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, time_, 2, self.kv_heads, -1).permute(2, 0, 3, 1, 4).repeat_interleave(self.heads // self.kv_heads, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time_, width))


class SquaredRelu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())


class Hybrid(nn.Module):
    def __init__(self, a, vocabulary=256):
        super().__init__()
        make = {
            "M": lambda: Mamba2(a.width, a.heads, a.head_width, a.state, a.groups, a.chunk),
            "*": lambda: Attention(a.width),
            "-": lambda: SquaredRelu(a.width, a.hidden),
        }
        self.embed = nn.Embedding(vocabulary, a.width)
        self.layers = nn.ModuleList(make[letter]() for letter in a.pattern)
        self.norms = nn.ModuleList(nn.RMSNorm(a.width) for _ in range(len(a.pattern) + 1))
        self.head = nn.Linear(a.width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return F.cross_entropy(self.head(self.norms[-1](x)).flatten(0, 1), targets.flatten())


def run_model(a):
    model = Hybrid(a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    tokens = torch.randint(0, 256, (a.batch, a.time + 1))

    def step(_):
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    run_steps(step, a.steps, a.batch * a.time)


def run_ssd(a):
    inner = a.heads * a.head_width
    xbc = torch.randn(a.batch, a.time, inner + 2 * a.groups * a.state, requires_grad=True)
    step = torch.randn(a.batch, a.time, a.heads, requires_grad=True)
    parameters = [torch.rand(a.heads, requires_grad=True) for _ in range(3)]
    dy = torch.randn(a.batch, a.time, inner)

    def both(_):
        y = ssd(xbc, step, *parameters, a.heads, a.groups, a.state, a.chunk)
        torch.autograd.grad(y, [xbc, step, *parameters], dy)

    run_steps(both, a.steps, a.batch * a.time)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["ssd", "model"], required=True)
    parser.add_argument("--pattern", default="M")
    for name in ("width", "hidden"):
        parser.add_argument("--" + name, type=int, default=0)
    for name in ("steps", "threads", "batch", "time", "heads", "head_width", "state", "groups", "chunk"):
        parser.add_argument("--" + name, type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    (run_ssd if a.part == "ssd" else run_model)(a)


if __name__ == "__main__":
    main()
