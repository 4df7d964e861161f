"""PyTorch peer of the decoder of workload.cpp: the same Llama and AdamW. Prints tokens per second.

Attention uses PyTorch's fused kernel with grouped queries; bf16 is torch.autocast, its usual way.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_steps import run_steps


def rotated(x, cosine, sine):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.head_width = width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * self.head_width, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cosine, sine):
        batch, time_, width = x.shape
        h = self.norm_1(x)
        q, k, v = (m(h).view(batch, time_, -1, self.head_width).transpose(1, 2) for m in (self.q, self.k, self.v))
        q, k = rotated(q, cosine, sine).to(v.dtype), rotated(k, cosine, sine).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time_, width))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, hidden, context, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)
        half = width // heads // 2
        angles = torch.arange(context)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="fp32")
    for name in ("steps", "threads", "layers", "width", "heads", "kv-heads", "hidden", "context", "batch", "vocabulary"):
        parser.add_argument("--" + name, type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = Decoder(a.layers, a.width, a.heads, a.kv_heads, a.hidden, a.context, a.vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1)
    tokens = torch.randint(0, 256, (a.batch, a.context + 1))

    def step(_):
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    run_steps(step, a.steps, a.batch * a.context)


main()
