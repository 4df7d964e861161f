"""GPT-Neo in plain PyTorch, and the record of a tiny one: forward, backward and ten AdamW steps.

Pre-LayerNorm blocks, learned positions, tied head, q/k/v without bias, attention logits NOT divided by sqrt(d_head) and
computed in at least float32, even layers global and odd layers local: position i sees the keys i-window+1 ... i.
"""

import math

import numpy
import torch
import torch.nn.functional as F
from torch import nn

import record


class Attention(nn.Module):
    def __init__(self, width, heads, window, scale):
        super().__init__()
        self.heads, self.window, self.scale = heads, window, scale
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=True)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (p(x).view(batch, time, self.heads, -1).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(attend(q, k, v, self.window, self.scale).transpose(1, 2).reshape(batch, time, width))


def attend(q, k, v, window, scale):
    """Causal attention on [batch, heads, time, d_head]; window None = all earlier keys."""
    kept = torch.promote_types(q.dtype, torch.float32)
    logits = q.to(kept) @ k.to(kept).transpose(-1, -2) * scale
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None, :]
    seen = j <= i if window is None else (j <= i) & (j > i - window)
    return logits.masked_fill(~seen, -math.inf).softmax(-1).to(v.dtype) @ v


class Block(nn.Module):
    def __init__(self, width, heads, window, scale, gelu):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-5)
        self.attn = nn.ModuleDict({"attention": Attention(width, heads, window, scale)})
        self.ln_2 = nn.LayerNorm(width, eps=1e-5)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})
        self.gelu = gelu

    def forward(self, x):
        x = x + self.attn["attention"](self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate=self.gelu))


class GptNeo(nn.Module):
    """logits [batch, time, vocab] of tokens [batch, time]; gelu is "tanh" or "none" (exact)."""

    def __init__(self, vocab, width, heads, layers, context, window=256, scaled=False, gelu="tanh"):
        super().__init__()
        scale = 1 / math.sqrt(width // heads) if scaled else 1.0
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width),
            "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(width, heads, window if i % 2 else None, scale, gelu) for i in range(layers)),
            "ln_f": nn.LayerNorm(width, eps=1e-5),
        })

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return t["ln_f"](x) @ t["wte"].weight.T


def mean_loss(logits, targets):
    """Mean cross-entropy in nats over the targets that are not -1."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def adamw(model, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, eps=1e-8):
    """Decoupled decay on matrices (both embeddings included) and on no bias or LayerNorm parameter."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, foreach=False)


CONFIG = {"vocab": 61, "width": 16, "heads": 4, "layers": 2, "context": 12, "window": 5}
BATCH, STEPS, CLIP = 3, 10, 1.0


def initial_weights(rng):
    """Wider than the N(0, 0.02) of training: there attention is flat and both GELUs agree, so a wrong scale, mask or GELU
    would pass. Float32 values, exact in both precisions."""
    spread = {"wte": 0.3, "wpe": 0.3, "c_proj": 0.15, "out_proj": 0.25}
    weights = {}
    for name, p in GptNeo(**CONFIG).named_parameters():
        parts = name.split(".")
        sigma = 0.1 if p.ndim == 1 else spread.get(parts[-2], 0.3)
        centre = 1.0 if parts[-2].startswith("ln_") and parts[-1] == "weight" else 0.0
        weights[name] = torch.from_numpy(rng.normal(centre, sigma, tuple(p.shape)).astype(numpy.float32))
    return weights


def train(weights, tokens, targets, dtype, **variant):
    """Loss, logits and gradients of batch 0 at the initial weights, then step t on batch t."""
    model = GptNeo(**CONFIG, **variant).to(dtype)
    model.load_state_dict(weights)
    optimizer, losses, norms, out = adamw(model), [], [], {}
    for t in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens[t])
        loss = mean_loss(logits, targets[t])
        loss.backward()
        if t == 0:
            out["logits"] = logits.detach().clone()
            out.update({f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()})
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=False))
        losses.append(loss.detach())
        optimizer.step()
    out["step_loss"], out["step_grad_norm"] = torch.stack(losses), torch.stack(norms)
    out.update({f"final.{n}": p.detach().clone() for n, p in model.named_parameters()})
    return out


def distance(a, b):
    """Largest relative error over tensors, by group of names."""
    worst = {}
    for name in a:
        group = name.split(".")[0]
        worst[group] = max(worst.get(group, 0.0), record.relative_error(a[name], b[name]))
    return worst


def main():
    torch.set_num_threads(1)
    rng = numpy.random.default_rng(20240607)
    weights = initial_weights(rng)
    shape = (STEPS, BATCH, CONFIG["context"])
    tokens = torch.from_numpy(rng.integers(0, CONFIG["vocab"], shape))
    targets = torch.from_numpy(rng.integers(0, CONFIG["vocab"], shape))
    targets[torch.from_numpy(rng.random(shape) < 0.1)] = -1
    targets[0, 0, :3] = -1

    f64 = train(weights, tokens, targets, torch.float64)
    f32 = train(weights, tokens, targets, torch.float32)
    variants = {"scaled": train(weights, tokens, targets, torch.float64, scaled=True),
                "exact_gelu": train(weights, tokens, targets, torch.float64, gelu="none")}

    tensors = {"tokens": tokens, "targets": targets}
    tensors.update({f"init.{n}": w for n, w in weights.items()})
    tensors.update({f"f64.{n}": v for n, v in f64.items()})
    tensors.update({f"f32.{n}": v for n, v in f32.items()})
    for label, run in variants.items():
        tensors.update({f"{label}.{n}": run[n].float() if n == "logits" else run[n]
                        for n in ("logits", "step_loss", "step_grad_norm")})
    record.finish("gpt_neo", tensors, {
        "model": {**CONFIG, "layer_norm_eps": 1e-5, "gelu": "tanh", "attention_scale": 1.0,
                  "local_layers": "odd", "local_keys": "i-window+1 ... i", "tied_head": True},
        "training": {"steps": STEPS, "batch": BATCH, "optimizer": "adamw", "lr": 1e-3, "betas": [0.9, 0.99],
                     "eps": 1e-8, "weight_decay": 0.1, "decay_on": "parameters of two dimensions",
                     "clip": "gradients times min(1, 1 / (norm + 1e-6))", "ignored_target": -1},
        "parameters": sum(w.numel() for w in weights.values()),
        "step_loss": f64["step_loss"].tolist(),
        "step_grad_norm": f64["step_grad_norm"].tolist(),
        "ignored_per_batch": (targets == -1).sum((1, 2)).tolist(),
        "error_of_float32": distance(f32, f64),
        "distance_of_variants": {label: distance(run, f64) for label, run in variants.items()},
    })


if __name__ == "__main__":
    main()
