"""Records update rules beside those of layers.py, in float64: Adagrad and Muon by PyTorch, LAMB by NumPy.

A case is a prefix: CASE.g [8, ...], CASE.w [9, ...] (the start, then after each step) and the state after the last step.
torch.optim.Muon multiplies in bfloat16 whatever the parameters are, so it is run twice: as it is (CASE.bfloat16_w), and with
that one type replaced by float64 (CASE.w), which is the rule itself. PyTorch has no LAMB: it is written here from Algorithm 2
of You et al. (ICLR 2020), and one step of it is checked by hand below.
"""

import contextlib

import numpy
import torch

import record

STEPS = 8


@contextlib.contextmanager
def products_in(dtype):
    """torch.optim.Muon asks for torch.bfloat16 by name."""
    kept, torch.bfloat16 = torch.bfloat16, dtype
    try:
        yield
    finally:
        torch.bfloat16 = kept


class Book:
    def __init__(self):
        self.rng, self.tensors, self.cases = numpy.random.default_rng(11), {}, {}

    def normal(self, *shape):
        return self.rng.normal(0, 1, shape).astype(numpy.float32).astype(numpy.float64)

    def add(self, case, options, tensors):
        self.cases[case] = options
        self.tensors.update({f"{case}.{name}": value for name, value in tensors.items()})


def torch_run(rule, options, start, gradients):
    w = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer, trajectory = rule([w], **options), [start.copy()]
    for g in gradients:
        w.grad = torch.from_numpy(g.copy())
        optimizer.step()
        trajectory.append(w.detach().numpy().copy())
    return numpy.stack(trajectory), optimizer.state[w]


def adagrad(book):
    start, gradients = book.normal(3, 4), book.normal(STEPS, 3, 4)
    runs = {"adagrad": {}, "adagrad_lr_decay": {"lr_decay": 0.1},
            "adagrad_all": {"lr_decay": 0.05, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-4}}
    for case, options in runs.items():
        options = {"lr": 0.05, **options}
        w, state = torch_run(torch.optim.Adagrad, {**options, "foreach": False}, start, gradients)
        book.add(case, options, {"g": gradients, "w": w, "sum": state["sum"]})


def lamb_run(options, start, gradients):
    lr, (beta1, beta2), eps = options["lr"], options["betas"], options["eps"]
    w, m, v = start.copy(), numpy.zeros_like(start), numpy.zeros_like(start)
    trajectory = [w.copy()]
    for n, g in enumerate(gradients, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ** 2
        r = (m / (1 - beta1 ** n)) / (numpy.sqrt(v / (1 - beta2 ** n)) + eps) + options["weight_decay"] * w
        w_norm = numpy.clip(numpy.linalg.norm(w), *options.get("norm_range", (0, numpy.inf)))
        r_norm = numpy.linalg.norm(r)
        ratio = w_norm / r_norm if w_norm > 0 and r_norm > 0 else 1.0
        w = w - lr * numpy.clip(ratio, *options.get("trust_range", (0, numpy.inf))) * r
        trajectory.append(w.copy())
    return numpy.stack(trajectory), m, v


def lamb(book):
    # By hand: after one step without decay r is the sign of g, so w moves by lr |w| / |r| = 0.1 * 5 / sqrt(2) each.
    w, _, _ = lamb_run({"lr": 0.1, "betas": (0.9, 0.999), "eps": 0.0, "weight_decay": 0.0},
                       numpy.array([3.0, 4.0]), numpy.array([[0.5, -7.0]]))
    assert numpy.allclose(w[1], [3 - 0.5 / 2 ** 0.5, 4 + 0.5 / 2 ** 0.5], rtol=0, atol=1e-15), w

    start, gradients = book.normal(3, 4), book.normal(STEPS, 3, 4)
    base = {"lr": 0.02, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.0}
    for case, options in {"lamb": {}, "lamb_decay": {"weight_decay": 0.1}, "lamb_norm_range": {"norm_range": (0.0, 1.5)},
                          "lamb_trust_range": {"trust_range": (0.9, 1.0)}}.items():
        options = {**base, **options}
        w, m, v = lamb_run(options, start, gradients)
        book.add(case, options, {"g": gradients, "w": w, "exp_avg": m, "exp_avg_sq": v})


def muon(book):
    distances = {}
    base = {"lr": 0.02, "weight_decay": 0.1}
    cases = {"muon_wide": ((4, 7), {}), "muon_tall": ((9, 4), {}), "muon_square": ((5, 5), {"nesterov": False}),
             "muon_rms": ((9, 4), {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.8, "weight_decay": 0.0})}
    for case, (shape, options) in cases.items():
        options, start, gradients = {**base, **options}, book.normal(*shape), book.normal(STEPS, *shape)
        with products_in(torch.float64):
            w, state = torch_run(torch.optim.Muon, options, start, gradients)
        rounded, _ = torch_run(torch.optim.Muon, options, start, gradients)
        moved, difference = numpy.diff(w, axis=0), numpy.diff(rounded, axis=0) - numpy.diff(w, axis=0)
        distances[case] = float(numpy.abs(difference).max() / numpy.abs(moved).max())
        assert 1e-4 < distances[case] < 0.1, (case, distances[case])  # bfloat16 was replaced, and by the same rule
        book.add(case, options, {"g": gradients, "w": w, "bfloat16_w": rounded, "momentum_buffer": state["momentum_buffer"]})
    return distances


def main():
    torch.set_num_threads(1)
    book = Book()
    adagrad(book)
    lamb(book)
    distances = muon(book)
    record.finish("optimizers", book.tensors,
                  {"about": __doc__.split("\n")[0], "cases": book.cases, "bfloat16_distance_of_updates": distances})


if __name__ == "__main__":
    main()
