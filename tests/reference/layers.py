"""Records single layers, losses, update rules and schedules in float64: inputs, outputs and gradients of small shapes.

A case is a prefix: CASE.INPUT..., CASE.OUTPUT..., and CASE.d_NAME for the gradient of sum(y * d_y), or of the mean loss,
with respect to NAME. layers.json lists the options of every case. All inputs are float32 values, so a float32 implementation
starts from the same numbers; float32_error is what PyTorch itself then loses, relative to each tensor's largest element.
"""

import math

import numpy
import torch
import torch.nn.functional as F

import images
import record
from gpt_neo import attend


class Book:
    """The cases computed in one precision from the same inputs."""

    def __init__(self, dtype):
        self.dtype, self.rng = dtype, numpy.random.default_rng(7)
        self.tensors, self.cases = {}, {}

    def exact(self, values):
        return values.float().to(self.dtype)

    def normal(self, *shape, centre=0.0, sigma=1.0):
        return self.exact(torch.from_numpy(self.rng.normal(centre, sigma, shape)))

    def add(self, case, options, tensors):
        self.cases[case] = options
        self.tensors.update({f"{case}.{name}": value for name, value in tensors.items()})

    def differentiate(self, case, options, function, inputs, fixed=None):
        """Records y = function(**inputs, **fixed) and the pull-back of a random d_y to every tensor in `inputs`."""
        inputs = {name: value.clone().requires_grad_() for name, value in inputs.items()}
        fixed = fixed or {}
        y = function(**inputs, **fixed)
        d_y = self.normal(*y.shape)
        gradients = torch.autograd.grad(y, list(inputs.values()), d_y)
        self.add(case, options, {**inputs, **fixed, "y": y, "d_y": d_y,
                                 **{f"d_{name}": g for name, g in zip(inputs, gradients)}})


def layers(book):
    x, w, b = book.normal(2, 3, 5), book.normal(4, 5), book.normal(4)
    for case, inputs in {"linear": {"x": x, "w": w}, "linear_bias": {"x": x, "w": w, "b": b}}.items():
        book.differentiate(case, {"y": "x w^T + b", "w": "[out, in]"},
                           lambda x, w, b=None: F.linear(x, w, b), inputs)

    ids = torch.tensor([[3, 0, 3, 6, 1], [3, 6, 6, 5, 0]])  # rows 2 and 4 unused: their gradient is zero
    book.differentiate("embedding", {}, lambda w, ids: F.embedding(ids, w), {"w": book.normal(7, 3)}, {"ids": ids})

    x = book.normal(2, 4, 6).double()
    x[0, 1] += 1000.0  # a far mean: a one-pass variance loses its digits
    x[0, 2] *= 1e-4    # variance far below eps
    x[1, 3] = 2.5      # constant: variance zero
    book.differentiate("layer_norm", {"eps": 1e-5, "over": "last dimension, variance divided by its length"},
                       lambda x, w, b: F.layer_norm(x, (6,), w, b, eps=1e-5),
                       {"x": book.exact(x), "w": book.normal(6, centre=1, sigma=0.3), "b": book.normal(6, sigma=0.3)})

    x = torch.tensor([0.0, 1e-9, -1e-9, 0.5, -0.5, 1, -1, 2, -2, 3, -3, 5, -5, 10, -10, 30, -30], dtype=torch.float64)
    x = torch.cat([book.exact(x), book.normal(15)])
    for case, form in {"gelu_tanh": "tanh", "gelu_exact": "none"}.items():
        book.differentiate(case, {"form": form}, lambda x: F.gelu(x, approximate=form), {"x": x})


def softmax_cross_entropy(book):
    far = book.normal(6, 7).double()
    far[0, 2], far[1, 4], far[3] = 1000.0, -1000.0, far[3] + 800.0  # exp() of a raw logit would overflow
    far = book.exact(far)
    mixed, none = torch.tensor([2, 4, -1, 6, 0, -1]), torch.tensor([2, 4, 1, 6, 0, 3])
    for case, logits, targets in (("softmax_ce", book.normal(6, 7), none), ("softmax_ce_ignore", book.normal(6, 7), mixed),
                                  ("softmax_ce_far", far, mixed)):
        logits.requires_grad_()
        rows = F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
        loss = F.cross_entropy(logits, targets, ignore_index=-1)
        (d_logits,) = torch.autograd.grad(loss, logits)
        book.add(case, {"ignored_target": -1, "loss": "mean over the others", "rows": "0 where ignored"},
                 {"logits": logits, "targets": targets, "rows": rows, "loss": loss.reshape(1), "d_logits": d_logits})


def attention(book):
    heads, shape = 2, (2, 7, 8)

    def attend_flat(q, k, v, window, scale):
        q, k, v = (a.unflatten(-1, (heads, -1)).transpose(1, 2) for a in (q, k, v))
        return attend(q, k, v, window, scale).transpose(1, 2).flatten(2)

    q, k, v = (book.normal(*shape) for _ in range(3))
    for window, label in ((None, "global"), (3, "window3"), (1, "window1")):
        for scale, suffix in ((1.0, ""), (1 / math.sqrt(shape[2] // heads), "_scaled")):
            book.differentiate(f"attention_{label}{suffix}",
                               {"heads": heads, "window": window or 0, "scale": scale, "layout": "[batch, time, heads * d]"},
                               lambda q, k, v: attend_flat(q, k, v, window, scale), {"q": q, "k": k, "v": v})


def optimizers(book):
    """Eight steps on one matrix; w is the trajectory [9, 3, 4] from the initial weights on, states are the last."""
    start, gradients = book.normal(3, 4), book.normal(8, 3, 4)
    gradients[:, 0, 0] = 0.0      # never a gradient: only decay moves it
    gradients[2:5, 1, 1] = 0.0    # momentum carries it on
    gradients[:, 2, 2] *= 2.0**-23  # near eps of AdamW
    sgd = {"plain": {}, "momentum": {"momentum": 0.9}, "nesterov": {"momentum": 0.9, "nesterov": True},
           "decay": {"weight_decay": 0.1}, "momentum_decay": {"momentum": 0.9, "weight_decay": 0.1},
           "nesterov_decay": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}}
    runs = {f"sgd_{name}": (torch.optim.SGD, {"lr": 0.05, "dampening": 0.0, **options}) for name, options in sgd.items()}
    runs["adamw"] = (torch.optim.AdamW, {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1})
    runs["adamw_no_decay"] = (torch.optim.AdamW, {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0})
    for case, (rule, options) in runs.items():
        w = torch.nn.Parameter(start.clone())
        optimizer, trajectory = rule([w], foreach=False, **options), [start.clone()]
        for g in gradients:
            w.grad = g.clone()
            optimizer.step()
            trajectory.append(w.detach().clone())
        states = {name: optimizer.state[w][name] for name in ("momentum_buffer", "exp_avg", "exp_avg_sq")
                  if optimizer.state[w].get(name) is not None}
        book.add(case, options, {"g": gradients, "w": torch.stack(trajectory), **states})


def schedules(book):
    """lr [steps] of step t = 0 ... steps-1. min_lr would be reached at t = steps, one past the last step."""
    lr, minimum, steps, warmup, fraction = 1e-3, 1e-4, 50, 8, 0.3
    t = numpy.arange(steps)
    rise = lr * (t + 1) / warmup

    cosine = minimum + 0.5 * (lr - minimum) * (1 + numpy.cos(numpy.pi * (t - warmup) / (steps - warmup)))
    common = {"lr": lr, "min_lr": minimum, "steps": steps, "warmup": warmup}
    book.add("schedule_cosine", common, {"lr": numpy.where(t < warmup, rise, cosine)})

    begin = steps - round(fraction * steps)
    u = numpy.clip((t - begin) / (steps - begin), 0.0, None)
    for shape, left in {"linear": 1 - u, "one_minus_sqrt": 1 - numpy.sqrt(u)}.items():
        book.add(f"schedule_wsd_{shape}", {**common, "decay_fraction": fraction, "decay_begins_at": begin},
                 {"lr": numpy.where(t < warmup, rise, minimum + (lr - minimum) * left)})


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    for write in (layers, softmax_cross_entropy, attention, optimizers, schedules, *images.WRITERS):
        write(book)
        write(single)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("layers", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
