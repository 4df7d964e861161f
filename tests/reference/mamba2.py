"""Records Mamba-2 layers in float64: outputs and the gradients of x and of every parameter, as layers.py does.

The block is written from its equations (Dao, Gu 2024), one position after the other: no chunks, no segment sums. Rows of the
projection and channels of the convolution stand group after group, as Tenon has them: z, x, B, C, dt of the first group, then
of the next. With documents the state and the convolution begin again at each border.
"""

import math

import torch
import torch.nn.functional as F

import record
from layers import Book

CASES = {
    # name: heads, groups, width of a head, state, conv, time, width, bounds of steps, lengths of documents
    "one_group": (4, 1, 3, 5, 4, 9, 6, (0.0, 0.0), None),
    "groups": (6, 2, 4, 3, 4, 10, 8, (0.0, 0.0), None),
    "a_group_per_head": (3, 3, 2, 4, 3, 7, 6, (0.0, 0.0), None),
    "bounded_steps": (4, 2, 3, 4, 4, 8, 4, (0.3, 1.1), None),
    "documents": (4, 2, 3, 5, 4, 12, 6, (0.0, 0.0), (5, 1, 2, 4)),
    "no_reach": (2, 1, 4, 3, 1, 6, 5, (0.0, 0.0), (4, 2)),
}


def convolve(x, weight, bias, documents):
    """x: [batch, time, channels]; weight: [channels, 1, width]. Position t - j counts where it is of t's document."""
    width, time = weight.shape[-1], x.shape[1]
    y = bias.expand_as(x)
    for j in range(min(width, time)):
        seen = (documents[:, j:] == documents[:, :time - j])[..., None]
        y = y + F.pad(torch.where(seen, x[:, :time - j], torch.zeros((), dtype=x.dtype)), (0, 0, j, 0)) * weight[:, 0, width - 1 - j]
    return F.silu(y)


def scan(x, steps, rates, B, C, skip, documents):
    """x: [batch, time, heads, P]; steps: [batch, time, heads]; B, C: [batch, time, heads, N]."""
    state, found = torch.zeros(x.shape[0], x.shape[2], B.shape[-1], x.shape[3], dtype=x.dtype), []
    for t in range(x.shape[1]):
        goes_on = documents[:, t] == documents[:, t - 1] if t > 0 else torch.zeros(x.shape[0], dtype=torch.bool)
        decay = torch.exp(-steps[:, t] * rates) * goes_on[:, None].to(x.dtype)
        state = decay[..., None, None] * state + B[:, t, :, :, None] * (steps[:, t, :, None] * x[:, t])[:, :, None, :]
        found.append((state * C[:, t, :, :, None]).sum(2) + skip[:, None] * x[:, t])
    return torch.stack(found, 1)


def block(u, in_proj, conv_weight, conv_bias, dt_bias, A_log, D, gain, out_proj, documents, heads, groups, head_width, state,
          bounds, eps):
    batch, time = u.shape[:2]
    of_group, inner = heads // groups, heads // groups * head_width
    rows = (u @ in_proj.T).unflatten(-1, (groups, -1))
    z, xBC, dt = rows.split([inner, inner + 2 * state, of_group], -1)
    xBC = convolve(xBC.flatten(2), conv_weight, conv_bias, documents).unflatten(-1, (groups, -1))
    x, B, C = xBC.split([inner, state, state], -1)
    steps = F.softplus(dt.flatten(2) + dt_bias)
    if bounds != (0.0, 0.0):
        steps = steps.clamp(*bounds)
    y = scan(x.reshape(batch, time, heads, head_width), steps, torch.exp(A_log), B.repeat_interleave(of_group, 2),
             C.repeat_interleave(of_group, 2), D, documents)
    gated = y.reshape(batch, time, groups, inner) * F.silu(z)
    normed = gated * torch.rsqrt(gated.pow(2).mean(-1, keepdim=True) + eps)
    return (normed.flatten(2) * gain) @ out_proj.T


def write(book):
    for case, (heads, groups, P, N, conv, time, width, bounds, lengths) in CASES.items():
        batch, eps, inner = 2, 1e-5, heads * P
        documents = torch.zeros(batch, time, dtype=torch.int64)
        if lengths is not None:  # the second sample has them in the other order
            documents = torch.stack([torch.repeat_interleave(3 * torch.arange(len(lengths)) - 1, torch.tensor(row))
                                     for row in (lengths, lengths[::-1])])
        options = {"heads": heads, "groups": groups, "head_width": P, "state": N, "conv": conv, "dt_limits": list(bounds),
                   "norm_eps": eps}
        channels = inner + 2 * groups * N
        inputs = {
            "x": book.normal(batch, time, width),
            "in_proj": book.normal(channels + inner + heads, width, sigma=0.7),
            "conv_weight": book.normal(channels, 1, conv, sigma=0.6),
            "conv_bias": book.normal(channels, sigma=0.3),
            "dt_bias": book.normal(heads, centre=-0.5, sigma=0.7),
            "A_log": book.normal(heads, sigma=0.8),
            "D": book.normal(heads, centre=1, sigma=0.4),
            "gain": book.normal(inner, centre=1, sigma=0.3),
            "out_proj": book.normal(width, inner, sigma=1 / math.sqrt(inner)),
        }
        def apply(x, **parameters):
            return block(x, **parameters, heads=heads, groups=groups, head_width=P, state=N, bounds=bounds, eps=eps)

        book.differentiate(case, options, apply, inputs, {"documents": documents})


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    write(book)
    write(single)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("mamba2", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
