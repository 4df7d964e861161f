"""Records three steps of update rules on a table behind nn.EmbeddingBag(sparse=True), in float64.

The batches have rows twice in a bag and in several bags, empty bags, a row that is read in the first and last step only, and
rows that are never read. SGD, Adagrad and SparseAdam are PyTorch's. PyTorch has no row-wise Adagrad: it is written here from its
formula, on the dense gradient of the same table, and one step of it is checked by hand below.

torch.optim.SparseAdam adds eps to the root of the uncorrected second moment. To follow AdamW's formula, where the root is
corrected first, it is given eps sqrt(1 - beta2^n) in step n: the two are then equal. It knows no decay: where a case has one, the
rows of the batch are multiplied by 1 - lr decay before the step.
"""

import math

import numpy
import torch

import record

STEPS, ROWS, WIDTH, BAGS, PLACES = 3, 12, 5, 6, 4
# -1 is an empty place. Row 7 is read in the first and the last step, rows 0 and 11 never.
IDS = numpy.array([
    [[3, 3, 7, -1], [-1, -1, -1, -1], [3, 5, -1, -1], [10, -1, -1, -1], [5, 1, 2, 3], [8, 8, 8, 8]],
    [[1, 1, -1, -1], [4, -1, -1, -1], [-1, -1, -1, -1], [9, 6, 4, 4], [-1, -1, -1, -1], [3, 1, -1, -1]],
    [[7, 2, -1, -1], [2, 2, 7, -1], [10, 9, 8, 6], [-1, -1, -1, -1], [5, -1, -1, -1], [1, 3, 4, 5]],
], dtype=numpy.int64)


def bags_of(ids):
    """The flat ids and offsets that EmbeddingBag takes."""
    flat, offsets = [], []
    for bag in ids:
        offsets.append(len(flat))
        flat += [i for i in bag if i >= 0]
    return torch.tensor(flat), torch.tensor(offsets)


def bag_layer(weights, sparse):
    layer = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights))
    return layer


def backward(layer, step, d_y):
    ids, offsets = bags_of(IDS[step])
    layer.weight.grad = None
    (layer(ids, offsets) * torch.from_numpy(d_y)).sum().backward()


def torch_run(rule, options, start, d_y, before_step=lambda layer, optimizer, step: None):
    layer = bag_layer(start, True)
    optimizer, trajectory = rule(layer.parameters(), **options), [start.copy()]
    for step in range(STEPS):
        backward(layer, step, d_y[step])
        assert layer.weight.grad.is_sparse and not layer.weight.grad.is_coalesced()
        before_step(layer, optimizer, step)
        optimizer.step()
        trajectory.append(layer.weight.detach().numpy().copy())
    return numpy.stack(trajectory), optimizer.state[layer.weight]


def adam_run(options, decay, start, d_y):
    lr, eps, beta2 = options["lr"], options["eps"], options["betas"][1]

    def before_step(layer, optimizer, step):
        optimizer.param_groups[0]["eps"] = eps * math.sqrt(1 - beta2 ** (step + 1))
        rows = layer.weight.grad.coalesce().indices()[0]
        with torch.no_grad():
            layer.weight[rows] *= 1 - lr * decay

    return torch_run(torch.optim.SparseAdam, options, start, d_y, before_step)


def rowwise_adagrad(w, gradient, rows, m, lr, eps):
    for row in rows:
        g = gradient[row]
        m[row] += (g * g).mean()
        w[row] -= lr * g / (math.sqrt(m[row]) + eps)


def rowwise_run(options, start, d_y):
    # By hand: the mean of 3^2 and 4^2 is 12.5, so the row moves by 0.1 (3, 4) / sqrt(12.5).
    w, m = numpy.zeros((1, 2)), numpy.zeros(1)
    rowwise_adagrad(w, numpy.array([[3.0, 4.0]]), [0], m, 0.1, 0.0)
    assert m[0] == 12.5 and numpy.allclose(w, [[-0.3 / 12.5 ** 0.5, -0.4 / 12.5 ** 0.5]], rtol=1e-15, atol=0), (w, m)

    w, m, trajectory = start.copy(), numpy.full(ROWS, options.get("initial_accumulator", 0.0)), [start.copy()]
    for step in range(STEPS):
        layer = bag_layer(w, False)
        backward(layer, step, d_y[step])
        rows = sorted({i for i in IDS[step].flat if i >= 0})
        rowwise_adagrad(w, layer.weight.grad.numpy(), rows, m, options["lr"], options["eps"])
        trajectory.append(w.copy())
    return numpy.stack(trajectory), m


def main():
    torch.set_num_threads(1)
    rng = numpy.random.default_rng(17)
    draw = lambda *shape: rng.normal(0, 1, shape).astype(numpy.float32).astype(numpy.float64)
    start, d_y = draw(ROWS, WIDTH), draw(STEPS, BAGS, WIDTH)
    tensors, cases = {"ids": IDS, "d_y": d_y}, {}

    def add(case, options, trajectory, **state):
        cases[case] = options
        tensors.update({f"{case}.{name}": value for name, value in {"w": trajectory, **state}.items()})

    options = {"lr": 0.05}
    add("sgd", options, torch_run(torch.optim.SGD, options, start, d_y)[0])
    for case, more in {"adagrad": {},
                       "adagrad_all": {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-4}}.items():
        w, state = torch_run(torch.optim.Adagrad, {**options, **more}, start, d_y)
        add(case, {**options, **more}, w, sum=state["sum"])
    adam = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-3}
    for case, decay in {"adamw": 0.0, "adamw_decay": 0.5}.items():
        w, state = adam_run(adam, decay, start, d_y)
        add(case, {**adam, "weight_decay": decay}, w, exp_avg=state["exp_avg"], exp_avg_sq=state["exp_avg_sq"])
    for case, more in {"rowwise_adagrad": {"eps": 1e-10},
                       "rowwise_adagrad_all": {"eps": 1e-2, "initial_accumulator": 0.5}}.items():
        w, m = rowwise_run({**options, **more}, start, d_y)
        add(case, {**options, **more}, w, sum=m)
    record.finish("row_optimizers", tensors, {"about": __doc__.split("\n")[0], "cases": cases})


if __name__ == "__main__":
    main()
