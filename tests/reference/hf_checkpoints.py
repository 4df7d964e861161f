"""Writes tests/reference/hf/NAME: tiny checkpoints of Hugging Face transformers with random weights, and their logits.

Each folder is what save_pretrained makes (config.json, and model.safetensors or shards with an index) beside expected.safetensors:
`tokens` (int32) and `logits` of them in float64 at the same weights. The fixtures of `tenon import`. Needs transformers. With
--check nothing is written: weights and logits are computed again and compared.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import (GPTNeoConfig, GPTNeoForCausalLM, LlamaConfig, LlamaForCausalLM, Mamba2Config, Mamba2ForCausalLM,
                          NemotronHConfig, NemotronHForCausalLM, Phi3Config, Phi3ForCausalLM)

import record

FOLDER = record.FOLDER / "hf"
VOCABULARY, CONTEXT = 67, 16
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
          "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "initializer_range": 0.3, **IDS}
LLAMA = {**COMMON, "num_key_value_heads": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
NEMOTRON_H = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
              "intermediate_size": 24, "mamba_num_heads": 6, "mamba_head_dim": 4, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 8,
              "max_position_embeddings": CONTEXT, "initializer_range": 0.3, **IDS}
MAMBA2 = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 8, "head_dim": 4, "num_heads": 8,
          "initializer_range": 0.3, "chunk_size": 8, **IDS}

# Name: class, configuration, and the largest shard.
CHECKPOINTS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**LLAMA, tie_word_embeddings=False), None),
    "llama_tied": (LlamaForCausalLM, LlamaConfig(**LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True), "8KB"),
    "phi3": (Phi3ForCausalLM, Phi3Config(**COMMON, num_key_value_heads=2, original_max_position_embeddings=CONTEXT, sliding_window=5,
                                         tie_word_embeddings=False), "10KB"),
    "gpt_neo": (GPTNeoForCausalLM, GPTNeoConfig(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, hidden_size=16, num_layers=2,
                                                num_heads=4, attention_types=[[["global", "local"], 1]], window_size=5,
                                                intermediate_size=24, resid_dropout=0.0, embed_dropout=0.0,
                                                initializer_range=0.3, bos_token_id=1, eos_token_id=2), None),
    # Time steps begin between 0.001 and 0.1; time_step_min and time_step_limit bound them in every pass.
    "nemotron_h": (NemotronHForCausalLM, NemotronHConfig(**NEMOTRON_H, hybrid_override_pattern="M-MM*-M-", time_step_min=0.02), None),
    "mamba2": (Mamba2ForCausalLM, Mamba2Config(**MAMBA2, n_groups=1, tie_word_embeddings=True), None),
    "mamba2_groups": (Mamba2ForCausalLM, Mamba2Config(**MAMBA2, n_groups=4, conv_kernel=3, layer_norm_epsilon=1e-3,
                                                      time_step_limit=(0.01, 0.05)), "10KB"),
}


def randomised(cls, config, seed):
    """Biases and gains as well: at their initial 0 and 1, exchanged ones would not be seen."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = cls(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.float().eval()


def write(name, folder):
    cls, config, shard = CHECKPOINTS[name]
    model = randomised(cls, config, 7 + list(CHECKPOINTS).index(name))
    if shard is None:
        model.save_pretrained(folder)
    else:
        model.save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, VOCABULARY, (1, CONTEXT), generator=torch.Generator().manual_seed(11))
    with torch.no_grad():
        logits = model.double()(tokens, use_cache=False).logits.double()
    save_file({"tokens": tokens.to(torch.int32), "logits": logits}, folder / "expected.safetensors")


def weights_of(folder):
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        found.update(load_file(path))
    return found


def same(old, new):
    ok = True
    a, b = weights_of(old), weights_of(new)
    if a.keys() != b.keys() or any(not torch.equal(a[n], b[n]) for n in a):
        print(f"{old.name}: other weights")
        ok = False
    a, b = load_file(old / "expected.safetensors"), load_file(new / "expected.safetensors")
    error = record.relative_error(a["logits"], b["logits"])
    if not torch.equal(a["tokens"], b["tokens"]) or not error < 1e-6:  # norms and angles in float32
        print(f"{old.name}: other logits, relative error {error:.3g}")
        ok = False
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    ok = True
    for name in CHECKPOINTS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / name
            folder.mkdir()
            write(name, folder)
            if check:
                ok &= same(FOLDER / name, folder)
                continue
            shutil.rmtree(FOLDER / name, ignore_errors=True)
            shutil.copytree(folder, FOLDER / name)
    if not check:
        import transformers
        record_of = {**record.provenance(), "transformers": transformers.__version__, "script": "hf_checkpoints.py"}
        (FOLDER / "hf.json").write_text(json.dumps(record_of, indent=2) + "\n")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
