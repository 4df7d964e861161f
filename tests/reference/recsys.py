"""Records layers of recommendation models, click-through metrics and a tiny DLRM in float64.

Layers as in layers.py. Metrics come from their definitions: AUC by looking at every pair of a positive and a negative (a tie
counts one half), normalised entropy and calibration as in He et al. 2014. The DLRM is written from Naumov et al. 2019: bags
with repeated and missing rows (-1), three steps of plain SGD.
"""

import math

import numpy
import torch
import torch.nn.functional as F

import record
from layers import Book

ROWS, DENSE, BAG, BATCH, STEPS, LR = (5, 7, 3), 4, 3, 6, 3, 0.5
BOTTOM, TOP = (6, 4), (5, 1)


def interact(z0, z, kind):
    if kind == "cat":
        return torch.cat([z0, z.flatten(1)], 1)
    if kind == "sum":
        return z0 + z.sum(1)
    vectors = torch.cat([z0[:, None], z], 1)
    products = vectors @ vectors.transpose(1, 2)
    i, j = torch.tril_indices(*products.shape[1:], offset=0 if kind == "itself" else -1)
    return torch.cat([z0, products[:, i, j]], 1)


def interactions(book):
    for kind in ("dot", "itself", "cat", "sum"):
        z0 = book.normal(3, 2 if kind == "cat" else 5)
        book.differentiate(kind, {"kind": kind}, lambda z0, z: interact(z0, z, kind), {"z0": z0, "z": book.normal(3, 4, 5)})


def bce(book):
    """Losses of logits so far out that a probability would be 0 or 1; label -1 does not count."""
    logits = book.exact(torch.tensor([0.0, 0.3, -0.3, 2.0, -2.0, 30.0, -30.0, 800.0, -800.0, 800.0, -800.0, 1.0]))
    labels = torch.tensor([0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1, -1])
    logits.requires_grad_()
    counted = labels >= 0
    loss = F.binary_cross_entropy_with_logits(logits[counted], labels[counted].to(book.dtype))
    (d_logits,) = torch.autograd.grad(loss, logits)
    book.add("bce", {"loss": "mean over labels 0 and 1"},
             {"logits": logits, "labels": labels, "loss": loss.reshape(1), "d_logits": d_logits})


def metrics(scores, labels):
    """[auc, normalised entropy, calibration] of counted samples, each straight from its definition."""
    positives, negatives = scores[labels == 1], scores[labels == 0]
    greater = (positives[:, None] > negatives[None, :]).sum() + 0.5 * (positives[:, None] == negatives[None, :]).sum()
    p = 1 / (1 + numpy.exp(-scores))
    rate = labels.mean()
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    loss = -numpy.where(labels == 1, numpy.log(p), numpy.log1p(-p)).mean()
    return numpy.array([greater / (len(positives) * len(negatives)), loss / entropy, p.sum() / labels.sum()])


def click_metrics(book):
    rng = numpy.random.default_rng(5)
    labels = (rng.random(200) < 0.3).astype(numpy.int64)
    scores = rng.normal(0, 1, 200) + labels
    cases = {
        "distinct": (scores, labels),
        "ties": (numpy.round(2 * scores) / 2, labels),  # steps of one half: most scores are shared by both classes
        "equal": (numpy.full(7, -0.5), numpy.array([0, 1, 0, 0, 1, 0, 1])),
        "separated": (numpy.array([-2.0, -1.0, 1.0, 2.0, 3.0]), numpy.array([0, 0, 0, 1, 1])),
        "reversed": (numpy.array([2.0, -1.0]), numpy.array([0, 1])),
        "rare": (rng.normal(-3, 1, 500), (numpy.arange(500) % 250 == 0).astype(numpy.int64)),
    }
    for case, (scores, labels) in cases.items():
        scores = book.exact(torch.from_numpy(scores))
        book.add(f"metrics_{case}", {"samples": len(labels)},
                 {"scores": scores, "labels": labels, "expected": metrics(scores.double().numpy(), labels)})


def bags(weights, ids, mode):
    """[batch, tables, width]; ids [batch, tables, places], -1 = nothing there; an empty bag is zero in both modes."""
    columns = []
    for t, w in enumerate(weights):
        kept = ids[:, t] >= 0
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), kept.sum(1).cumsum(0)[:-1]])
        columns.append(F.embedding_bag(ids[:, t][kept], w, offsets, mode=mode))
    return torch.stack(columns, 1)


def some_ids(rng, batch):
    ids = numpy.stack([rng.integers(0, rows, (batch, BAG)) for rows in ROWS], 1)
    ids[rng.random(ids.shape) < 0.3] = -1
    ids[0, 0], ids[1, 1], ids[2, 2] = -1, 4, (2, 2, 0)  # an empty bag; one row thrice; one twice
    ids[3, 0], ids[4, 0] = (1, -1, 1), (1, 3, -1)       # a row that several samples share
    return torch.from_numpy(ids)


def embedding_bags(book):
    rng = numpy.random.default_rng(11)
    ids = some_ids(rng, BATCH)
    one = torch.from_numpy(numpy.stack([rng.integers(0, rows, BATCH) for rows in ROWS], 1))
    for case, chosen, mode in (("bag_sum", ids, "sum"), ("bag_mean", ids, "mean"), ("bag_one", one, "sum")):
        weights = {f"w{t}": book.normal(rows, 4) for t, rows in enumerate(ROWS)}
        shaped = chosen if chosen.dim() == 3 else chosen[:, :, None]
        book.differentiate(case, {"mode": mode, "rows": ROWS, "width": 4}, lambda **w: bags(list(w.values()), shaped, mode),
                           weights)
        book.add(case, book.cases[case], {"ids": chosen})


def dlrm_parameters(book):
    width = BOTTOM[-1]
    vectors = len(ROWS) + 1
    shapes, before = {}, DENSE
    for part, widths in (("bottom", BOTTOM), ("top", TOP)):
        if part == "top":
            before = width + vectors * (vectors - 1) // 2
        for i, features in enumerate(widths):
            shapes[f"{part}.{i}.weight"], shapes[f"{part}.{i}.bias"] = (features, before), (features,)
            before = features
    shapes |= {f"emb.{t}.weight": (rows, width) for t, rows in enumerate(ROWS)}
    return {name: book.normal(*shape, sigma=0.6) for name, shape in shapes.items()}


def dlrm(w, dense, ids, mode):
    x = dense
    for i in range(len(BOTTOM)):
        x = F.relu(F.linear(x, w[f"bottom.{i}.weight"], w[f"bottom.{i}.bias"]))
    x = interact(x, bags([w[f"emb.{t}.weight"] for t in range(len(ROWS))], ids, mode), "dot")
    for i in range(len(TOP)):
        x = F.linear(x, w[f"top.{i}.weight"], w[f"top.{i}.bias"])
        x = F.relu(x) if i + 1 < len(TOP) else x
    return x[:, 0]


def models(book):
    """Loss and gradients at the start, the losses of three steps, and the weights after them."""
    rng = numpy.random.default_rng(13)
    dense, labels = book.normal(STEPS, BATCH, DENSE), torch.from_numpy(rng.integers(0, 2, (STEPS, BATCH)))
    labels[:, -1] = -1
    ids = torch.stack([some_ids(rng, BATCH) for _ in range(STEPS)])
    start = dlrm_parameters(book)
    for mode in ("sum", "mean"):
        w = {name: value.clone().requires_grad_() for name, value in start.items()}
        losses, out = [], {}
        for t in range(STEPS):
            logits, counted = dlrm(w, dense[t], ids[t], mode), labels[t] >= 0
            loss = F.binary_cross_entropy_with_logits(logits[counted], labels[t][counted].to(book.dtype))
            gradients = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
            if t == 0:
                out = {"logits": logits, **{f"grad.{name}": g for name, g in gradients.items()}}
            losses.append(loss)
            with torch.no_grad():
                for name, g in gradients.items():
                    w[name] -= LR * g
        book.add(f"dlrm_{mode}", {"bottom": BOTTOM, "top": TOP, "rows": ROWS, "lr": LR},
                 {**out, "step_loss": torch.stack(losses), **{f"final.{name}": value for name, value in w.items()}})
    book.add("dlrm", {"dense": DENSE, "bag": BAG}, {"dense": dense, "ids": ids, "labels": labels,
                                                    **{f"init.{name}": value for name, value in start.items()}})


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    for write in (interactions, bce, click_metrics, embedding_bags, models):
        write(book)
        write(single)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("recsys", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
