"""Compares the float32 module of gpt_neo.py with the GPT-Neo of Hugging Face transformers at the recorded weights.

Guards against one misreading shared by Tenon and gpt_neo.py. Exits with 1 above the tolerance; also shows that the
variant with scaled logits would be noticed. Needs transformers; writes nothing.
"""

import sys

import torch
from safetensors.torch import load_file
from transformers import GPTNeoConfig, GPTNeoForCausalLM

import record
from gpt_neo import CONFIG, GptNeo, mean_loss

TOLERANCE = 1e-5  # float32, relative to the largest element; measured 1e-6


def evaluate(function, model, targets):
    logits = function()
    mean_loss(logits, targets).backward()
    return {"logits": logits.detach(), **{n: p.grad for n, p in model.named_parameters()}}


def worst(a, b):
    return max(record.relative_error(a[n], b[n]) for n in b)


def main():
    torch.set_num_threads(1)
    recorded = load_file(record.FOLDER / "gpt_neo.safetensors")
    weights = {n.removeprefix("init."): w for n, w in recorded.items() if n.startswith("init.")}
    tokens, targets = recorded["tokens"][0], recorded["targets"][0]

    theirs = GPTNeoForCausalLM(GPTNeoConfig(
        vocab_size=CONFIG["vocab"], hidden_size=CONFIG["width"], num_heads=CONFIG["heads"], num_layers=CONFIG["layers"],
        max_position_embeddings=CONFIG["context"], window_size=CONFIG["window"], bos_token_id=0, eos_token_id=0,
        attention_types=[[["global", "local"], CONFIG["layers"] // 2]]))
    missing = theirs.load_state_dict(weights, strict=False)
    if missing.unexpected_keys or missing.missing_keys not in ([], ["lm_head.weight"]):
        sys.exit(f"names differ: {missing}")
    reference = evaluate(lambda: theirs(tokens).logits, theirs, targets)

    errors = {}
    for scaled in (False, True):
        ours = GptNeo(**CONFIG, scaled=scaled)
        ours.load_state_dict(weights)
        errors[scaled] = worst(evaluate(lambda: ours(tokens), ours, targets), reference)
    print(f"largest relative error {errors[False]:.3g}; with scaled logits {errors[True]:.3g}")
    sys.exit(0 if errors[False] < TOLERANCE < errors[True] else 1)


if __name__ == "__main__":
    main()
