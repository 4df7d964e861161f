"""The PyTorch twin of configs/reproduce/shakespeare_baby_gpt.toml: a byte-level GPT-Neo on tiny Shakespeare.

Prints the validation loss in nats per byte and writes baby_gpt.json. It shares no random numbers with Tenon: compare the
validation losses of several seeds, not curves.
"""

import argparse
import json
import math
import pathlib
import time

import numpy
import torch

import record
from gpt_neo import GptNeo, adamw, mean_loss

VOCAB, WIDTH, HEADS, LAYERS, CONTEXT = 256, 128, 4, 4, 64  # every byte is a token
BATCH, STEPS, WARMUP, LR, MIN_LR, CLIP = 12, 2000, 100, 1e-3, 1e-4, 1.0
TEXT = pathlib.Path(__file__).resolve().parents[2] / "data/text/tinyshakespeare.txt"


def initialise(model, generator):
    """Linear and embedding matrices (wte, wpe) N(0, 0.02); no smaller residual projections; biases 0; LayerNorm 1 and 0."""
    for name, p in model.named_parameters():
        if p.ndim >= 2:
            torch.nn.init.normal_(p, 0.0, 0.02, generator=generator)
        else:
            torch.nn.init.constant_(p, 1.0 if ".ln_" in name and name.endswith("weight") else 0.0)


def learning_rate(t):
    """Linear from 0 (step 0 already moves), then cosine to MIN_LR, reached at t = STEPS."""
    if t < WARMUP:
        return LR * (t + 1) / WARMUP
    return MIN_LR + 0.5 * (LR - MIN_LR) * (1 + math.cos(math.pi * (t - WARMUP) / (STEPS - WARMUP)))


def windows(text, starts):
    """Inputs and next-byte targets [len(starts), CONTEXT]."""
    rows = text[numpy.asarray(starts)[:, None] + numpy.arange(CONTEXT + 1)]
    rows = torch.from_numpy(rows.astype(numpy.int64))
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def validation_loss(model, text):
    """Mean over all whole, non-overlapping windows of CONTEXT; each starts without memory of the last."""
    starts = numpy.arange(0, len(text) - CONTEXT, CONTEXT)
    parts = [windows(text, chunk) for chunk in numpy.array_split(starts, math.ceil(len(starts) / 64))]
    return sum(mean_loss(model(x), y).item() * len(x) for x, y in parts) / len(starts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    text = numpy.frombuffer(TEXT.read_bytes(), dtype=numpy.uint8)
    split = len(text) * 9 // 10
    training, validation = text[:split], text[split:]
    model = GptNeo(VOCAB, WIDTH, HEADS, LAYERS, CONTEXT)
    initialise(model, torch.Generator().manual_seed(args.seed))
    order = numpy.random.default_rng(args.seed)
    optimizer = adamw(model, lr=LR)

    began, curve = time.monotonic(), [{"step": 0, "val_loss": validation_loss(model, validation)}]
    for t in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(t)
        x, y = windows(training, order.integers(0, len(training) - CONTEXT, BATCH))
        optimizer.zero_grad()
        loss = mean_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if (t + 1) % 250 == 0:
            curve.append({"step": t + 1, "train_loss": loss.item(), "val_loss": validation_loss(model, validation)})
            print(curve[-1], f"{time.monotonic() - began:.0f} s", flush=True)

    print(f"val loss {curve[-1]['val_loss']:.4f} nats per byte (seed {args.seed})")
    (record.FOLDER / "baby_gpt.json").write_text(json.dumps({
        "provenance": record.provenance(),
        "seed": args.seed,
        "bytes": {"training": len(training), "validation": len(validation),
                  "validation_windows": (len(validation) - 1) // CONTEXT},
        "parameters": sum(p.numel() for p in model.parameters()),
        "val_loss": curve[-1]["val_loss"],
        "curve": curve,
    }, indent=1) + "\n")


if __name__ == "__main__":
    main()
