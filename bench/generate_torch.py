"""PyTorch peer of decode.cpp: the same GPT with kept keys and values, and draws of tokens from the softmax of its logits.

Prints a line of JSON for bench/compare: tokens per second of one text and of 16 texts at a time, the medians of --rounds.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, TOKENS, TEXTS = 4, 128, 4, 1024, 256, 128, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, keys, values, at):
        """x: one position of each text; a text of 128 tokens is shorter than the window of every second layer."""
        q, k, v = self.qkv(self.ln_1(x)).view(x.shape[0], 3, HEADS, WIDTH // HEADS).unbind(1)
        keys[:, :, at], values[:, :, at] = k, v
        y = F.scaled_dot_product_attention(q.unsqueeze(2), keys[:, :, :at + 1], values[:, :, :at + 1], scale=1.0)
        x = x + self.out(y.reshape(x.shape[0], WIDTH))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, kept, at):
        x = self.wte(tokens) + self.wpe.weight[at]
        for block, (keys, values) in zip(self.blocks, kept):
            x = block(x, keys, values, at)
        return F.linear(self.ln_f(x), self.wte.weight)


@torch.inference_mode()
def rate(model, texts):
    shape = (texts, HEADS, CONTEXT, WIDTH // HEADS)
    kept = [(torch.empty(shape), torch.empty(shape)) for _ in range(LAYERS)]
    begin = time.perf_counter()
    tokens = torch.full((texts,), 10)
    for at in range(TOKENS):
        tokens = torch.multinomial(F.softmax(model(tokens, kept, at), dim=-1), 1).squeeze(1)
    return texts * TOKENS / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = Gpt().eval()
    rate(model, TEXTS)
    rates = [(rate(model, 1), rate(model, TEXTS)) for _ in range(a.rounds)]
    print(json.dumps({"one_per_s": statistics.median(one for one, _ in rates), "many_per_s": statistics.median(many for _, many in rates)}))


main()
