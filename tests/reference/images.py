"""The cases of layers.py for images and normalisations: convolutions, pools, batch and RMS norm, MSE, smoothed labels."""

import torch
import torch.nn.functional as F


def pointwise_and_rms_norm(book):
    book.differentiate("rms_norm", {"eps": 1e-6}, lambda x, w: F.rms_norm(x, (6,), w, eps=1e-6),
                       {"x": book.normal(2, 4, 6), "w": book.normal(6, centre=1, sigma=0.3)})
    x = torch.tensor([0.0, 1e-3, -1e-3, 1, -1, 5, -5, 20, -20, 80, -80], dtype=torch.float64)
    x = torch.cat([book.exact(x), book.normal(9)])
    book.differentiate("silu", {}, lambda x: F.silu(x), {"x": x})
    book.differentiate("squared_relu", {}, lambda x: F.relu(x) ** 2, {"x": x})


def convolutions(book):
    cases = {  # x, w, bias, options
        "conv2d": ((2, 3, 7, 6), (4, 3, 3, 3), True, {"padding": (1, 1)}),
        "conv2d_strided": ((2, 3, 8, 7), (5, 3, 3, 2), True, {"stride": (2, 1), "padding": (1, 0)}),
        "conv2d_dilated": ((2, 2, 9, 8), (3, 2, 3, 3), False, {"dilation": (2, 3), "padding": (2, 3)}),
        "conv2d_groups": ((3, 6, 5, 5), (9, 2, 3, 3), True, {"groups": 3, "stride": (2, 2), "padding": (1, 1)}),
        "conv2d_depthwise": ((2, 4, 5, 6), (4, 1, 3, 3), False, {"groups": 4, "padding": (1, 1)}),
        "conv2d_point": ((2, 5, 3, 4), (3, 5, 1, 1), False, {"stride": (2, 2)}),
    }
    for case, (x, w, bias, options) in cases.items():
        inputs = {"x": book.normal(*x), "w": book.normal(*w)}
        if bias:
            inputs["b"] = book.normal(w[0])
        book.differentiate(case, options, lambda x, w, b=None: F.conv2d(x, w, b, **options), inputs)


def pools(book):
    overlapping = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 1)}
    cases = {
        "max_pool2d": (F.max_pool2d, {"kernel_size": 2}),
        "max_pool2d_overlapping": (F.max_pool2d, overlapping),
        "max_pool2d_dilated": (F.max_pool2d, {"kernel_size": 2, "stride": 1, "dilation": 3}),
        "average_pool2d": (F.avg_pool2d, {"kernel_size": 2}),
        "average_pool2d_padding": (F.avg_pool2d, overlapping),
        "average_pool2d_no_padding": (F.avg_pool2d, {**overlapping, "count_include_pad": False}),
        "average_pool2d_global": (lambda x: F.adaptive_avg_pool2d(x, 1), {}),
    }
    for case, (pool, options) in cases.items():
        book.differentiate(case, options, lambda x: pool(x, **options), {"x": book.normal(2, 3, 7, 6)})


def batch_norms(book):
    """after_*: running values after the batch; y_eval: evaluation of the same x with those."""
    options = {"eps": 1e-3, "momentum": 0.3}
    for case, shape in {"batch_norm": (4, 3, 5, 2), "batch_norm_rows": (6, 3)}.items():
        before = {"mean": book.normal(3), "var": book.exact(1 + book.normal(3).abs())}
        after = {name: value.clone() for name, value in before.items()}
        w, b = book.normal(3, centre=1, sigma=0.3), book.normal(3, sigma=0.3)
        x = book.normal(*shape, centre=2, sigma=3)
        book.differentiate(case, options, lambda x, w, b: F.batch_norm(x, after["mean"], after["var"], w, b, training=True,
                                                                       **options), {"x": x, "w": w, "b": b})
        y = F.batch_norm(x, after["mean"], after["var"], w, b, training=False, **options)
        book.add(case, options, {**{f"before_{n}": v for n, v in before.items()},
                                 **{f"after_{n}": v for n, v in after.items()}, "y_eval": y})


def losses(book):
    x, t = book.normal(4, 5).requires_grad_(), book.normal(4, 5).requires_grad_()
    loss = F.mse_loss(x, t)
    d_x, d_t = torch.autograd.grad(loss, [x, t])
    book.add("mse", {"loss": "mean over elements"}, {"x": x, "t": t, "loss": loss.reshape(1), "d_x": d_x, "d_t": d_t})
    targets = torch.tensor([2, 4, -1, 6, 0, -1])
    for case, smoothing in {"softmax_ce_smooth": 0.1, "softmax_ce_flat": 1.0}.items():
        logits = book.normal(6, 7).requires_grad_()
        loss = F.cross_entropy(logits, targets, ignore_index=-1, label_smoothing=smoothing)
        (d_logits,) = torch.autograd.grad(loss, logits)
        book.add(case, {"label_smoothing": smoothing, "ignored_target": -1, "loss": "mean over the others"},
                 {"logits": logits, "targets": targets, "loss": loss.reshape(1), "d_logits": d_logits})


WRITERS = (pointwise_and_rms_norm, convolutions, pools, batch_norms, losses)
