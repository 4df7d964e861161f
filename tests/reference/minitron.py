"""Records importance and cuts of tiny decoders in float64: what transform minitron must find and write.

The forward pass, the scores and the cuts are written here from their definitions (arXiv 2407.14679, 2504.11409), one layer and
one position after the other. A cut is told layer by layer which indices stay, and is then checked by its logits.
"""

import math

import numpy
import torch
import torch.nn.functional as F

import record
from decoder import rms_norm, rotated

VOCABULARY, TIME, SAMPLES = 23, 10, 6
MODELS = {
    "hybrid": {"pattern": "M-*-M*-", "width": 12, "heads": 4, "kv_heads": 2, "head_width": 4, "hidden": 10,
               "ffn": "squared_relu", "rope": False, "mamba": {"heads": 4, "head_width": 4, "state": 3, "groups": 2, "conv": 3}},
    "llama": {"pattern": "*-*-*-", "width": 12, "heads": 6, "kv_heads": 3, "head_width": 4, "hidden": 14, "ffn": "swiglu",
              "rope": True, "norm": "layer", "bias": True, "qk_norm": True, "tied": True},
    "plain": {"pattern": "*-*-", "width": 8, "heads": 4, "kv_heads": 4, "head_width": 2, "hidden": 9, "ffn": "gelu", "rope": True},
}
CUTS = {
    "hybrid": {"width": 8, "hidden": 6, "heads": 2, "kv_heads": 1, "mamba_heads": 2, "mamba_head_width": 3},
    "llama": {"width": 10, "hidden": 9, "heads": 2, "kv_heads": 2},
    "plain": {"width": 6, "hidden": 4, "heads": 3, "kv_heads": 3},
}
EPS = 1e-5


def shapes(m):
    """Shape of every parameter by name."""
    d, found = m["width"], {}

    def norm(name, columns, kind="rms"):
        found[f"{name}.weight"] = (columns,)
        if kind == "layer":
            found[f"{name}.bias"] = (columns,)

    def linear(name, out, into):
        found[f"{name}.weight"] = (out, into)
        if m.get("bias"):
            found[f"{name}.bias"] = (out,)

    found["model.embed_tokens.weight"] = (VOCABULARY, d)
    for k, letter in enumerate(m["pattern"]):
        name = f"model.layers.{k}"
        norm(f"{name}.norm", d, m.get("norm", "rms"))
        if letter == "*":
            for part, heads in (("q", m["heads"]), ("k", m["kv_heads"]), ("v", m["kv_heads"])):
                linear(f"{name}.self_attn.{part}_proj", heads * m["head_width"], d)
            linear(f"{name}.self_attn.o_proj", d, m["heads"] * m["head_width"])
            if m.get("qk_norm"):
                norm(f"{name}.self_attn.q_norm", m["head_width"])
                norm(f"{name}.self_attn.k_norm", m["head_width"])
        elif letter == "-":
            for part in ("up", "gate") if m["ffn"] == "swiglu" else ("up",):
                linear(f"{name}.mlp.{part}_proj", m["hidden"], d)
            linear(f"{name}.mlp.down_proj", d, m["hidden"])
        else:
            s = m["mamba"]
            inner, channels = s["heads"] * s["head_width"], s["heads"] * s["head_width"] + 2 * s["groups"] * s["state"]
            found[f"{name}.mamba.in_proj.weight"] = (inner + channels + s["heads"], d)
            found[f"{name}.mamba.conv1d.weight"] = (channels, 1, s["conv"])
            found[f"{name}.mamba.conv1d.bias"] = (channels,)
            for part in ("dt_bias", "A_log", "D"):
                found[f"{name}.mamba.{part}"] = (s["heads"],)
            found[f"{name}.mamba.norm.weight"] = (inner,)
            found[f"{name}.mamba.out_proj.weight"] = (d, inner)
    norm("model.norm", d, m.get("norm", "rms"))
    if not m.get("tied"):
        found["lm_head.weight"] = (VOCABULARY, d)
    return found


def mamba(w, name, s, u, seen):
    """One block, position by position. Rows of in_proj and of the convolution stand group after group."""
    heads, P, N, G = s["heads"], s["head_width"], s["state"], s["groups"]
    of = heads // G
    rows = u @ w[f"{name}.in_proj.weight"].T
    groups = rows.unflatten(-1, (G, -1))
    z, xBC, dt = groups[..., :of * P], groups[..., of * P:2 * of * P + 2 * N], groups[..., 2 * of * P + 2 * N:]
    seen[f"{name}.x"] = groups[..., of * P:2 * of * P].flatten(2)
    taps, flat = s["conv"], xBC.flatten(2)
    padded = F.pad(flat, (0, 0, taps - 1, 0))
    kernel = w[f"{name}.conv1d.weight"][:, 0, :]
    conv = sum(padded[:, j:j + flat.shape[1]] * kernel[:, j] for j in range(taps)) + w[f"{name}.conv1d.bias"]
    xBC = F.silu(conv).unflatten(-1, (G, -1))
    step = F.softplus(dt.flatten(2) + w[f"{name}.dt_bias"])
    rate = torch.exp(w[f"{name}.A_log"])
    out = torch.zeros(*u.shape[:2], heads, P, dtype=u.dtype)
    for b in range(u.shape[0]):
        for h in range(heads):
            g, i = divmod(h, of)
            state = torch.zeros(N, P, dtype=u.dtype)
            for t in range(u.shape[1]):
                x = xBC[b, t, g, i * P:(i + 1) * P]
                B, C = xBC[b, t, g, of * P:of * P + N], xBC[b, t, g, of * P + N:]
                state = torch.exp(-step[b, t, h] * rate[h]) * state + torch.outer(B, step[b, t, h] * x)
                out[b, t, h] = C @ state + w[f"{name}.D"][h] * x
    gated = out.reshape(*u.shape[:2], G, of * P) * F.silu(z)
    normed = gated / torch.sqrt((gated ** 2).mean(-1, keepdim=True) + EPS)
    return (normed.flatten(2) * w[f"{name}.norm.weight"]) @ w[f"{name}.out_proj.weight"].T


def forward(w, m, tokens, without=()):
    """Logits, and what each hook sees. `without`: layers that add nothing."""
    seen = {}

    def linear(name, x):
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def norm(name, x):
        gain = w[f"{name}.weight"]
        y = F.layer_norm(x, gain.shape, gain, w[f"{name}.bias"], EPS) if m.get("norm") == "layer" else rms_norm(x, gain, EPS)
        seen[name] = y
        return y

    batch, time = tokens.shape
    x = w["model.embed_tokens.weight"][tokens]
    seen["stream"] = [x]
    for k, letter in enumerate(m["pattern"]):
        name = f"model.layers.{k}"
        u = norm(f"{name}.norm", x)
        if letter == "*":
            q, k_, v = (linear(f"{name}.self_attn.{p}_proj", u).view(batch, time, -1, m["head_width"]) for p in "qkv")
            if m.get("qk_norm"):
                q = rms_norm(q, w[f"{name}.self_attn.q_norm.weight"], EPS)
                k_ = rms_norm(k_, w[f"{name}.self_attn.k_norm.weight"], EPS)
            if m["rope"]:
                places = torch.arange(time).expand(batch, time)
                q, k_ = rotated(q, places, 10000.0), rotated(k_, places, 10000.0)
            group = q.shape[2] // k_.shape[2]
            k_, v = k_.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
            scores = torch.einsum("bihd,bjhd->bhij", q, k_) / math.sqrt(m["head_width"])
            scores = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -math.inf)
            heads = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
            seen[f"{name}.heads"] = heads
            y = linear(f"{name}.self_attn.o_proj", heads.flatten(2))
        elif letter == "-":
            up = linear(f"{name}.mlp.up_proj", u)
            if m["ffn"] == "swiglu":
                act = up * F.silu(linear(f"{name}.mlp.gate_proj", u))
            else:
                act = F.relu(up) ** 2 if m["ffn"] == "squared_relu" else F.gelu(up, approximate="tanh")
            seen[f"{name}.act"] = act
            y = linear(f"{name}.mlp.down_proj", act)
        else:
            y = mamba(w, f"{name}.mamba", m["mamba"], u, seen)
        x = x if k in without else x + y
        seen["stream"].append(x)
    return norm("model.norm", x) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T, seen


def aggregate(sizes, sequence, batch):
    """sizes [samples, time, parts], each at least 0."""
    a = sizes.mean(1) if sequence == "mean" else (sizes ** 2).sum(1).sqrt()
    return a.mean(0) if batch == "mean" else (a ** 2).sum(0).sqrt()


def importance(m, seen, sequence="mean", batch="l2"):
    found = {}
    norms = [f"model.layers.{k}.norm" for k in range(len(m["pattern"]))] + ["model.norm"]
    found["width"] = sum(aggregate(seen[name].abs(), sequence, batch) for name in norms)
    for k, letter in enumerate(m["pattern"]):
        if letter == "*":
            found[f"layers.{k}.heads"] = aggregate(seen[f"model.layers.{k}.heads"].norm(dim=-1), sequence, batch)
        elif letter == "-":
            found[f"layers.{k}.hidden"] = aggregate(seen[f"model.layers.{k}.act"].abs(), sequence, batch)
        else:
            found[f"layers.{k}.mamba_channels"] = aggregate(seen[f"model.layers.{k}.mamba.x"].abs(), sequence, batch)
    stream = seen["stream"]
    found["depth.bi"] = torch.stack([1 - F.cosine_similarity(a, b, dim=-1, eps=0.0).mean() for a, b in zip(stream, stream[1:])])
    return found


def top(scores, count):
    return sorted(sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i))[:count])


def kept_of(m, scores, cut):
    """What stays of each axis."""
    kept = {"width": top(scores["width"], cut["width"])}
    for k, letter in enumerate(m["pattern"]):
        if letter == "-":
            kept[k] = top(scores[f"layers.{k}.hidden"], cut["hidden"])
        elif letter == "*":
            heads = scores[f"layers.{k}.heads"].view(m["kv_heads"], -1)
            groups = top(heads.sum(1), cut["kv_heads"])
            group = heads.shape[1]
            kept[k] = groups, [g * group + h for g in groups for h in top(heads[g], cut["heads"] // cut["kv_heads"])]
        else:
            s = m["mamba"]
            channels = scores[f"layers.{k}.mamba_channels"].view(s["heads"], s["head_width"])
            elements = top(channels.norm(dim=0), cut["mamba_head_width"])
            of, each = s["heads"] // s["groups"], cut["mamba_heads"] // s["groups"]
            sizes = channels[:, elements].norm(dim=1)
            kept[k] = elements, [g * of + h for g in range(s["groups"]) for h in top(sizes[g * of:(g + 1) * of], each)]
    return kept


def trimmed(w, m, kept):
    """The weights that stay, each tensor on its own."""
    out = {}
    width = kept["width"]
    for name, value in w.items():
        if not name.startswith("model.layers."):
            out[name] = value[:, width] if value.dim() == 2 else value[width]
            continue
        k, part = int(name.split(".")[2]), name.split(".", 3)[3]
        spread = lambda heads: [h * m["head_width"] + i for h in heads for i in range(m["head_width"])]
        if part.startswith("norm."):
            out[name] = value[width]
        elif part.startswith("self_attn."):
            groups, heads = kept[k]
            rows = {"q_proj": spread(heads), "k_proj": spread(groups), "v_proj": spread(groups), "o_proj": width}
            which = part.split(".")[1]
            if which in ("q_norm", "k_norm"):
                out[name] = value
                continue
            value = value[rows[which]]
            out[name] = value if value.dim() == 1 else value[:, spread(heads) if which == "o_proj" else width]
        elif part.startswith("mlp."):
            down = ".down_proj." in name
            value = value[width if down else kept[k]]
            out[name] = value if value.dim() == 1 else value[:, kept[k] if down else width]
        else:
            out[name] = cut_mamba(part.split(".", 1)[1], value, m["mamba"], kept[k], width)
    return out


def cut_mamba(part, value, s, kept, width):
    elements, heads = kept
    P, N, of = s["head_width"], s["state"], s["heads"] // s["groups"]
    channels = [h * P + i for h in heads for i in elements]
    if part == "norm.weight":
        return value[channels]
    if part == "out_proj.weight":
        return value[width][:, channels]
    if part in ("dt_bias", "A_log", "D"):
        return value[heads]
    is_conv = part.startswith("conv1d")
    rows, at = [], 0
    for g in range(s["groups"]):
        own = [h - g * of for h in heads if h // of == g]
        for block in ("x", "B", "C") if is_conv else ("z", "x", "B", "C", "dt"):
            size = {"z": of * P, "x": of * P, "B": N, "C": N, "dt": of}[block]
            inside = {"B": list(range(N)), "C": list(range(N)), "dt": own}.get(block, [h * P + i for h in own for i in elements])
            rows += [at + i for i in inside]
            at += size
    value = value[rows]
    return value if is_conv else value[:, width]


def smaller(m, cut):
    s = {**m, **{key: cut[key] for key in ("width", "hidden", "heads", "kv_heads")}}
    if "mamba" in m:
        s["mamba"] = {**m["mamba"], "heads": cut["mamba_heads"], "head_width": cut["mamba_head_width"]}
    return s


def merged(w, m, scores):
    """Query rows of `plain` cut to 3 heads of 4: rank i of K takes head_i - head_(2K - i + 1), ranks from 1."""
    rows = {}
    for k, letter in enumerate(m["pattern"]):
        if letter != "*":
            continue
        order = sorted(range(m["heads"]), key=lambda i: -float(scores[f"layers.{k}.heads"][i]))
        count, d = 3, m["head_width"]
        q = w[f"model.layers.{k}.self_attn.q_proj.weight"].view(m["heads"], d, -1)
        new = {}
        for rank, head in enumerate(order[:count], 1):
            partner = 2 * count - rank + 1
            new[head] = 2 * q[head] - q[order[partner - 1]] if count < partner <= len(order) else q[head]
        rows[k] = torch.cat([new[h] for h in sorted(new)])
    return rows


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    torch.set_num_threads(1)
    rng = numpy.random.default_rng(20261129)
    tokens = torch.from_numpy(rng.integers(0, VOCABULARY, (SAMPLES, TIME)))
    targets = torch.from_numpy(rng.integers(0, VOCABULARY, (SAMPLES, TIME)))
    tensors = {"tokens": tokens, "targets": targets}
    for model, m in MODELS.items():
        w = {}
        for name, shape in shapes(m).items():
            gain = name.endswith("norm.weight")
            w[name] = torch.from_numpy(rng.normal(1.0 if gain else 0.0, 0.3 if len(shape) > 1 else 0.2, shape))
        logits, seen = forward(w, m, tokens)
        tensors.update({f"{model}.init.{n}": v for n, v in w.items()})
        scores = importance(m, seen)
        tensors.update({f"{model}.scores.{n}": v for n, v in scores.items()})
        for sequence, batch in (("mean", "mean"), ("l2", "l2"), ("l2", "mean")):
            other = importance(m, seen, sequence, batch)
            tensors[f"{model}.{sequence}_{batch}.width"] = other["width"]
        base, layers = loss_of(logits, targets), range(len(m["pattern"]))
        alone = [forward(w, m, tokens, (k,))[0] for k in layers]
        tensors[f"{model}.loss"] = base
        tensors[f"{model}.scores.depth.loss"] = torch.stack([loss_of(l, targets) - base for l in alone])
        tensors[f"{model}.scores.depth.logit_mse"] = torch.stack([((l - logits) ** 2).mean() for l in alone])
        runs = [loss_of(forward(w, m, tokens, (k, k + 1))[0], targets) - base for k in list(layers)[:-1]]
        tensors[f"{model}.scores.depth.contiguous"] = torch.stack(runs)
        gone = []
        while len(gone) < 2:
            cost = {k: ((forward(w, m, tokens, (*gone, k))[0] - logits) ** 2).mean() for k in layers if k not in gone}
            gone.append(min(cost, key=cost.get))
        tensors[f"{model}.scores.depth.removed"] = torch.tensor(gone)
        small = trimmed(w, m, kept_of(m, scores, CUTS[model]))
        assert {n: tuple(v.shape) for n, v in small.items()} == shapes(smaller(m, CUTS[model]))
        tensors.update({f"{model}.cut.{n}": v for n, v in small.items()})
        tensors[f"{model}.cut_logits"] = forward(small, smaller(m, CUTS[model]), tokens)[0]
        if model == "plain":
            tensors.update({f"plain.merged.{k}": v for k, v in merged(w, m, scores).items()})
    record.finish("minitron", tensors, {"models": MODELS, "cuts": CUTS, "vocabulary": VOCABULARY})


if __name__ == "__main__":
    main()
