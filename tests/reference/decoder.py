"""Decoders in plain PyTorch, and the record of tiny ones: logits, loss and every gradient in float64.

Each layer of the pattern is x + f(norm(x)): `*` causal attention with grouped heads, `-` a feed-forward network. Names of
parameters are those of Tenon's model `decoder`: model.layers.N counts letters of the pattern.
"""

import math

import numpy
import torch
import torch.nn.functional as F

import record

VOCABULARY, CONTEXT, BATCH = 61, 12, 3
DEFAULTS = {"norm": "rms", "eps": 1e-5, "position": "rope", "rope_base": 10000.0, "window": 0, "qk_norm": False,
            "ffn": "swiglu", "bias": [], "tied": False, "block": {}}
MODELS = {
    "llama": {"pattern": "*-*-", "width": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "rope_base": 100.0},
    "llama_tied": {"pattern": "*-*-", "width": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "rope_base": 100.0, "tied": True},
    "phi3": {"pattern": "*-*-", "width": 16, "heads": 4, "hidden": 20, "window": 5},
    "nope": {"pattern": "*--*-", "width": 16, "heads": 4, "kv_heads": 1, "head_width": 6, "hidden": 24, "position": "none",
             "ffn": "squared_relu"},
    "mixed": {"pattern": "*-*-*-", "width": 12, "heads": 3, "hidden": 16, "norm": "layer", "position": "learned",
              "ffn": "gelu", "bias": ["qkv", "out", "ffn"], "qk_norm": True, "tied": True,
              "block": {2: {"heads": 4, "kv_heads": 2, "head_width": 6, "window": 3, "position": "rope", "rope_base": 50.0,
                            "bias": [], "norm": "rms"},
                        3: {"ffn": "geglu", "hidden": 10, "bias": []},
                        4: {"skip": True}}},
    "packed": {"pattern": "*-*-", "width": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "rope_base": 100.0, "window": 4},
}
PACKED = ("packed",)


def layers_of(config):
    """(number, letter, settings) of each layer that is not skipped."""
    for number, letter in enumerate(config["pattern"]):
        settings = {**config, **config["block"].get(number, {})}
        if not settings.get("skip", False):
            heads = settings["heads"]
            settings.setdefault("kv_heads", heads)
            settings.setdefault("head_width", settings["width"] // heads)
            yield number, letter, settings


def shapes(config):
    """Shape of every parameter by name."""
    width, found = config["width"], {}

    def norm(name, kind, columns):
        found[f"{name}.weight"] = (columns,)
        if kind == "layer":
            found[f"{name}.bias"] = (columns,)

    def linear(name, out, into, bias):
        found[f"{name}.weight"] = (out, into)
        if bias:
            found[f"{name}.bias"] = (out,)

    found["model.embed_tokens.weight"] = (VOCABULARY, width)
    if config["position"] == "learned":
        found["model.embed_positions.weight"] = (CONTEXT, width)
    for number, letter, s in layers_of(config):
        name = f"model.layers.{number}"
        norm(f"{name}.norm", s["norm"], width)
        if letter == "*":
            q, kv = s["heads"] * s["head_width"], s["kv_heads"] * s["head_width"]
            for part, out in (("q", q), ("k", kv), ("v", kv)):
                linear(f"{name}.self_attn.{part}_proj", out, width, "qkv" in s["bias"])
            if s["qk_norm"]:
                norm(f"{name}.self_attn.q_norm", "rms", s["head_width"])
                norm(f"{name}.self_attn.k_norm", "rms", s["head_width"])
            linear(f"{name}.self_attn.o_proj", width, q, "out" in s["bias"])
        else:
            bias = "ffn" in s["bias"]
            if s["ffn"] in ("swiglu", "geglu"):
                linear(f"{name}.mlp.gate_proj", s["hidden"], width, bias)
            linear(f"{name}.mlp.up_proj", s["hidden"], width, bias)
            linear(f"{name}.mlp.down_proj", width, s["hidden"], bias)
    norm("model.norm", config["norm"], width)
    if not config["tied"]:
        found["lm_head.weight"] = (VOCABULARY, width)
    return found


def rms_norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def rotated(x, positions, base, neighbours=False):
    """x [batch, time, heads, d]: the pair (i, i + d/2) is turned by position / base^(2i/d). neighbours: pairs (2i, 2i + 1)."""
    half = x.shape[-1] // 2
    angles = positions[..., None].to(x.dtype) / base ** (torch.arange(half, dtype=x.dtype) / half)
    cosine, sine = angles.cos()[..., None, :], angles.sin()[..., None, :]
    if neighbours:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cosine - b * sine, b * cosine + a * sine), -1).flatten(-2)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def logits_of(weights, config, tokens, documents=None, positions=None, wrong=None):
    """[batch, time, vocabulary]. wrong: a mistake made on purpose, so that the record shows that it would be noticed."""
    batch, time = tokens.shape

    def linear(name, x):
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name, kind, eps, x):
        gain = weights[f"{name}.weight"]
        return rms_norm(x, gain, eps) if kind == "rms" else F.layer_norm(x, gain.shape, gain, weights[f"{name}.bias"], eps)

    if positions is None:
        positions = torch.arange(time).expand(batch, time)
    i, j = torch.arange(time)[:, None], torch.arange(time)[None, :]
    x = weights["model.embed_tokens.weight"][tokens]
    if config["position"] == "learned":
        x = x + weights["model.embed_positions.weight"][:time]
    for number, letter, s in layers_of(config):
        name = f"model.layers.{number}"
        y = norm(f"{name}.norm", s["norm"], s["eps"], x)
        if letter == "*":
            q, k, v = (linear(f"{name}.self_attn.{part}_proj", y).view(batch, time, -1, s["head_width"]) for part in "qkv")
            if s["qk_norm"]:
                q = rms_norm(q, weights[f"{name}.self_attn.q_norm.weight"], s["eps"])
                k = rms_norm(k, weights[f"{name}.self_attn.k_norm.weight"], s["eps"])
            if s["position"] == "rope":
                q = rotated(q, positions, s["rope_base"], wrong == "neighbours")
                if wrong != "keys_not_rotated":
                    k = rotated(k, positions, s["rope_base"], wrong == "neighbours")
            group = s["heads"] // s["kv_heads"]
            head = torch.arange(s["heads"])
            of = head % s["kv_heads"] if wrong == "modulo" else head // group
            scale = 1.0 if wrong == "unscaled" else 1 / math.sqrt(s["head_width"])
            scores = torch.einsum("bihd,bjhd->bhij", q, k[:, :, of]) * scale
            seen = (j <= i) & ((j > i - s["window"]) if s["window"] else (j <= i))
            seen = seen.expand(batch, 1, time, time)
            if documents is not None:
                seen = seen & (documents[:, None, :, None] == documents[:, None, None, :])
            z = torch.einsum("bhij,bjhd->bihd", scores.masked_fill(~seen, -math.inf).softmax(-1), v[:, :, of])
            y = linear(f"{name}.self_attn.o_proj", z.reshape(batch, time, -1))
        else:
            up = linear(f"{name}.mlp.up_proj", y)
            if s["ffn"] == "gelu":
                y = F.gelu(up, approximate="tanh")
            elif s["ffn"] == "squared_relu":
                y = F.relu(up) ** 2
            else:
                gate = linear(f"{name}.mlp.gate_proj", y)
                y = up * (F.silu(gate) if s["ffn"] == "swiglu" else F.gelu(gate, approximate="tanh"))
            y = linear(f"{name}.mlp.down_proj", y)
        x = x + y
    x = norm("model.norm", config["norm"], config["eps"], x)
    return x @ weights["model.embed_tokens.weight" if config["tied"] else "lm_head.weight"].T


def loss_of(logits, targets):
    """Mean cross-entropy in nats over the targets that are not -1."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def initial_weights(rng, config):
    """Wider than the N(0, 0.02) of training, where attention is flat and a wrong scale, rotation or group would pass."""
    weights = {}
    for name, shape in shapes(config).items():
        is_gain = len(shape) == 1 and name.endswith("weight")
        sigma = 0.2 if len(shape) == 1 else 0.3
        weights[name] = torch.from_numpy(rng.normal(1.0 if is_gain else 0.0, sigma, shape).astype(numpy.float32))
    return weights


def resolved(name):
    return {**DEFAULTS, **MODELS[name]}


def packed_rows(rng):
    """Documents of random lengths, and positions with gaps: equal steps within a document would leave its rotations as they
    are."""
    documents = numpy.cumsum(rng.random((BATCH, CONTEXT)) < 0.3, axis=1)
    positions = numpy.cumsum(rng.integers(1, 4, (BATCH, CONTEXT)), axis=1)
    return torch.from_numpy(documents), torch.from_numpy(positions)


def main():
    torch.set_num_threads(1)
    rng = numpy.random.default_rng(20261128)
    tokens = torch.from_numpy(rng.integers(0, VOCABULARY, (BATCH, CONTEXT)))
    targets = torch.from_numpy(rng.integers(0, VOCABULARY, (BATCH, CONTEXT)))
    targets[torch.from_numpy(rng.random((BATCH, CONTEXT)) < 0.1)] = -1
    documents, positions = packed_rows(rng)
    tensors = {"tokens": tokens, "targets": targets, "documents": documents, "positions": positions}
    losses, distances = {}, {}
    for name in MODELS:
        config = resolved(name)
        initial = initial_weights(rng, config)
        weights = {n: w.double().requires_grad_() for n, w in initial.items()}
        rows = {"documents": documents, "positions": positions} if name in PACKED else {}
        logits = logits_of(weights, config, tokens, **rows)
        loss = loss_of(logits, targets)
        loss.backward()
        tensors.update({f"{name}.init.{n}": w for n, w in initial.items()})
        tensors.update({f"{name}.grad.{n}": w.grad for n, w in weights.items()})
        tensors.update({f"{name}.logits": logits, f"{name}.loss": loss})
        losses[name] = loss.item()
    config = resolved("llama")
    weights = {n: tensors[f"llama.init.{n}"].double() for n in shapes(config)}
    for wrong in ("unscaled", "neighbours", "keys_not_rotated", "modulo"):
        logits = logits_of(weights, config, tokens, wrong=wrong)
        tensors[f"llama.{wrong}.loss"] = loss_of(logits, targets)
        distances[wrong] = record.relative_error(logits, tensors["llama.logits"].detach())
    record.finish("decoder", tensors, {
        "models": {name: resolved(name) for name in MODELS},
        "vocabulary": VOCABULARY, "context": CONTEXT, "batch": BATCH, "packed": list(PACKED), "ignored_target": -1,
        "parameters": {name: sum(math.prod(s) for s in shapes(resolved(name)).values()) for name in MODELS},
        "loss": losses, "distance_of_mistakes": distances,
    })


if __name__ == "__main__":
    main()
