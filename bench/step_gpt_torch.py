"""PyTorch peer of step_gpt.cpp and, with --device cuda, of gpu/step.cpp: the same GPT-Neo blueprint and AdamW. Prints tokens per second.

Attention uses PyTorch's fused kernel with the same causal and windowed masks; bf16 is torch.autocast, its usual way.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_steps import run_steps

WINDOW = 256


class Block(nn.Module):
    def __init__(self, width, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, time_, width = x.shape
        h = self.ln_1(x)
        q, k, v = (m(h).view(batch, time_, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        if self.window is None or time_ <= self.window:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time_, width))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, None if i % 2 == 0 else WINDOW) for i in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)
        offset = torch.arange(context)[:, None] - torch.arange(context)[None, :]
        self.register_buffer("mask", (offset >= 0) & (offset < WINDOW))

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x, self.mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", default="cpu", help="cuda: compiled, without clipping; cpu: eager, with it")
    parser.add_argument("--vocabulary", type=int, default=256)
    for name in ("steps", "threads", "layers", "width", "heads", "context", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    gpu = a.device == "cuda"
    model = Gpt(a.layers, a.width, a.heads, a.context, a.vocabulary).to(a.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1, fused=gpu)
    tokens = torch.randint(0, 256, (a.batch, a.context + 1), device=a.device)
    forward = torch.compile(model) if gpu else model

    def step(_):
        with torch.autocast(a.device, torch.bfloat16, enabled=a.precision == "bf16"):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        if not gpu:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    run_steps(step, a.steps, a.batch * a.context, torch.cuda.synchronize if gpu else None)


main()
