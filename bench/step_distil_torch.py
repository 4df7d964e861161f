"""PyTorch peer of step_distil.cpp: the same decoder and AdamW, with or without a teacher, in eager mode. Prints tokens per second.

The loss is kl_div of log-softmaxes of whole logits, as distillation is usually written; bf16 is torch.autocast.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_steps import run_steps


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.fc, self.proj = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        batch, time_, width = x.shape
        h = self.ln_1(x)
        q, k, v = (m(h).view(batch, time_, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time_, width))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self, blocks, width, heads, hidden, context, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).float().flatten(0, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="fp32")
    for name in ("steps", "threads", "student", "teacher", "width", "heads", "hidden", "context", "batch", "vocabulary", "distil"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    shape = (args.width, args.heads, args.hidden, args.context, args.vocabulary)
    student, teacher = Decoder(args.student, *shape), Decoder(args.teacher, *shape).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    low = torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16")

    def step(_):
        tokens = torch.randint(0, 256, (args.batch, args.context + 1))
        optimizer.zero_grad(set_to_none=True)
        with low:
            logits = student(tokens[:, :-1])
            if args.distil:
                with torch.no_grad():
                    wanted = F.log_softmax(teacher(tokens[:, :-1]), -1)
                loss = F.kl_div(F.log_softmax(logits, -1), wanted, reduction="batchmean", log_target=True)
            else:
                loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()

    run_steps(step, args.steps, args.batch * args.context)


if __name__ == "__main__":
    main()
