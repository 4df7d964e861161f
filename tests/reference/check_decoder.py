"""Compares decoder.py with the Llama and Phi-3 of Hugging Face transformers at the recorded weights, in float64.

Guards against one misreading shared by Tenon and decoder.py. Exits with 1 above the tolerance; also shows that a rotation of
neighbouring elements would be noticed. Needs transformers; writes nothing.
"""

import sys

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

import record
from decoder import CONTEXT, VOCABULARY, logits_of, loss_of, resolved, shapes

TOLERANCE = 1e-5  # relative to the largest element; their norms and angles are float32; measured 2e-6


def their_name(name):
    """Layers 2n and 2n + 1 of the pattern are their layer n."""
    parts = name.split(".")
    if parts[:2] != ["model", "layers"]:
        return name
    number, rest = int(parts[2]), parts[3:]
    if rest[0] == "norm":
        rest[0] = "post_attention_layernorm" if number % 2 else "input_layernorm"
    return ".".join(["model", "layers", str(number // 2), *rest])


def fused(weights, parts):
    """Phi-3 keeps q, k, v and gate, up of a layer in one matrix each."""
    found = dict(weights)
    for name in weights:
        for whole, members in parts.items():
            if name.endswith(f"{members[0]}.weight"):
                stem = name.removesuffix(f"{members[0]}.weight")
                found[f"{stem}{whole}.weight"] = torch.cat([found.pop(f"{stem}{m}.weight") for m in members])
    return found


def their_model(name, config):
    common = {"vocab_size": VOCABULARY, "hidden_size": config["width"], "intermediate_size": config["hidden"],
              "num_hidden_layers": len(config["pattern"]) // 2, "num_attention_heads": config["heads"],
              "num_key_value_heads": config.get("kv_heads", config["heads"]), "rms_norm_eps": config["eps"],
              "max_position_embeddings": CONTEXT, "tie_word_embeddings": config["tied"], "pad_token_id": 0,
              "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": "eager",
              "rope_parameters": {"rope_type": "default", "rope_theta": config["rope_base"]}}
    if name != "phi3":
        return LlamaForCausalLM(LlamaConfig(**common))
    return Phi3ForCausalLM(Phi3Config(**common, original_max_position_embeddings=CONTEXT, sliding_window=config["window"]))


def main():
    torch.set_num_threads(1)
    recorded = load_file(record.FOLDER / "decoder.safetensors")
    tokens, targets = recorded["tokens"], recorded["targets"]
    failed = False
    for name in ("llama", "llama_tied", "phi3"):
        config = resolved(name)
        own = {n: recorded[f"{name}.init.{n}"].double() for n in shapes(config)}
        parts = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]} if name == "phi3" else {}
        theirs = their_model(name, config).double()
        missing = theirs.load_state_dict(fused({their_name(n): w for n, w in own.items()}, parts), strict=False)
        if missing.unexpected_keys or missing.missing_keys not in ([], ["lm_head.weight"]):
            sys.exit(f"names differ: {missing}")
        logits = theirs(tokens, use_cache=False).logits
        loss_of(logits, targets).backward()
        gradients = {n: p.grad for n, p in theirs.named_parameters()}
        expected = fused({their_name(n): recorded[f"{name}.grad.{n}"] for n in own}, parts)
        errors = [record.relative_error(recorded[f"{name}.logits"], logits.detach())]
        errors += [record.relative_error(expected[n], g) for n, g in gradients.items()]
        wrong = record.relative_error(logits_of(own, config, tokens, wrong="neighbours"), logits.detach())
        print(f"{name}: largest relative error {max(errors):.3g}; with neighbours rotated {wrong:.3g}")
        failed |= not max(errors) < TOLERANCE < wrong
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
