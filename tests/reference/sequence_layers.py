"""Records layers of decoders and their losses in float64, as layers.py does: rotary and learned positions, gates, log-probabilities of
tokens, weighted sums, and sums of losses.

Rotations are written as Hugging Face's modeling_llama.py has them (rotate_half), with angles in float64.
"""

import torch
import torch.nn.functional as F

import record
from layers import Book


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotate(x, positions, heads, base):
    """x: [batch, time, heads * d], positions: [batch, time]."""
    heads_of = x.unflatten(-1, (heads, -1))
    d = heads_of.shape[-1]
    inv_freq = 1.0 / base ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = positions.double()[..., None] * inv_freq
    angles = torch.cat((angles, angles), dim=-1)[:, :, None]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return (heads_of * cos + rotate_half(heads_of) * sin).flatten(2)


def rotary(book):
    for case, shape, heads, base in (("rotary", (2, 7, 12), 2, 10000.0), ("rotary_wide", (1, 40, 64), 1, 500000.0)):
        positions = torch.arange(shape[1]).expand(shape[:2])
        book.differentiate(case, {"heads": heads, "base": base, "form": "rotate_half"},
                           lambda x: rotate(x, positions, heads, base), {"x": book.normal(*shape)})
    positions = torch.from_numpy(book.rng.integers(0, 1000, (2, 5)))
    book.differentiate("rotary_positions", {"heads": 3, "base": 100.0, "form": "rotate_half"},
                       lambda x, positions: rotate(x, positions, 3, 100.0), {"x": book.normal(2, 5, 12)}, {"positions": positions})


def gates(book):
    maps = {"silu": F.silu, "gelu": lambda b: F.gelu(b, approximate="tanh"), "none": lambda b: b}
    for name, function in maps.items():
        book.differentiate(f"gate_{name}", {"map": name}, lambda a, b: a * function(b),
                           {"a": book.normal(3, 4, 5), "b": book.normal(3, 4, 5, sigma=2.0)})


def log_probs(x, w, ids):
    rows = F.log_softmax(x @ w.T, dim=-1)
    chosen = rows.gather(-1, ids.clamp(min=0)[..., None])[..., 0]
    return torch.where(ids >= 0, chosen, torch.zeros_like(chosen))


def head_log_probs(book):
    ids = torch.from_numpy(book.rng.integers(0, 11, (3, 5)))
    ids[0, 2] = ids[1, 0] = ids[2, 4] = -1
    book.differentiate("head_log_probs", {"vocabulary": 11, "ids below 0": "0, without a gradient"}, log_probs,
                       {"x": book.normal(3, 5, 6), "w": book.normal(11, 6)}, {"ids": ids})


def mean_loss(book, case, options, function, inputs, fixed):
    """Records a mean loss and its gradients with respect to every tensor in `inputs`."""
    inputs = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    loss = function(**inputs, **fixed)
    gradients = torch.autograd.grad(loss, list(inputs.values()))
    book.add(case, options, {**inputs, **fixed, "loss": loss.reshape(1), **{f"d_{name}": g for name, g in zip(inputs, gradients)}})


def weighted_sums(book):
    mask = torch.from_numpy(book.rng.integers(-1, 5, (3, 5)))
    mask[1, 1], mask[2, 0] = -1, 3
    values, weights = book.normal(3, 5), book.normal(3, 5)
    counted = mask >= 0
    mean_loss(book, "weighted_sum", {"scale": -1.5, "mean over": "places whose mask is not negative"},
              lambda values, weights, mask: (-1.5 * values * weights)[counted].sum() / counted.sum(),
              {"values": values, "weights": weights}, {"mask": mask})
    mean_loss(book, "weighted_sum_all", {"scale": 1}, lambda values: values.mean(), {"values": values}, {})


def sums_of_losses(book):
    targets = torch.tensor([2, 4, -1, 6, 0, -1])
    t = book.normal(6, 7)
    logits = book.normal(6, 7)

    def parts(logits, targets, t):
        return F.cross_entropy(logits, targets, ignore_index=-1), F.mse_loss(logits, t)

    def weighted(**tensors):
        first, second = parts(**tensors)
        return 0.7 * first + 1.9 * second

    def balanced(**tensors):
        first, second = parts(**tensors)
        return first + (first / second).detach() * second

    for case, options, function in (("add_losses", {"weights": [0.7, 1.9]}, weighted),
                                    ("add_losses_equal", {"balance": "first / second, without a gradient"}, balanced)):
        mean_loss(book, case, options, function, {"logits": logits}, {"targets": targets, "t": t})


def learned_positions(book):
    positions = torch.tensor([[0, 1, 2, 0, 1, 0], [8, 3, 3, 3, 4, 0]])
    book.differentiate("positions_given", {}, lambda x, w, positions: x + F.embedding(positions, w),
                       {"x": book.normal(2, 6, 4), "w": book.normal(9, 4)}, {"positions": positions})


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    for write in (rotary, gates, head_log_probs, weighted_sums, sums_of_losses, learned_positions):
        write(book)
        write(single)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("sequence_layers", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
