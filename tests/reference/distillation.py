"""Records losses of distillation in float64, as layers.py does: divergences of a student from a teacher, and distances of states.

Rows whose target is negative do not count. A divergence is PyTorch's kl_div of log-softmaxes of logits / T; in the form top_k
the teacher's k likeliest classes keep their probabilities and all others are one class.
"""

import torch
import torch.nn.functional as F

import record
from layers import Book
from sequence_layers import mean_loss


def divergence(student, teacher, form, temperature, top_k=None):
    """Of every row, in nats."""
    log_q, log_p = F.log_softmax(student / temperature, -1), F.log_softmax(teacher / temperature, -1)
    if form == "reverse":
        log_p, log_q = log_q, log_p
    if top_k is not None:
        chosen = torch.zeros_like(teacher, dtype=torch.bool).scatter(-1, teacher.topk(top_k, -1).indices, True)

        def classes(log_probabilities):
            kept = log_probabilities.gather(-1, teacher.topk(top_k, -1).indices)
            rest = torch.logsumexp(log_probabilities.masked_fill(chosen, -torch.inf), -1, keepdim=True)
            return torch.cat([kept, rest], -1)

        log_p, log_q = classes(log_p), classes(log_q)
    return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)


def distillation(form, temperature, square, top_k=None, tokens=None):
    def function(x_student, w, x_teacher, head_teacher, targets):
        student, teacher = x_student @ w.T, x_teacher @ head_teacher.T
        counted = targets >= 0
        loss = divergence(student, teacher, form, temperature, top_k)[counted].mean()
        if square:
            loss = loss * temperature**2
        if tokens is not None:
            loss = loss + tokens * F.cross_entropy(student[counted], targets[counted].long())
        return loss

    return function


def divergences(book):
    cases = {
        "forward": {"form": "forward", "temperature": 1.0, "square": False},
        "forward_hot": {"form": "forward", "temperature": 2.5, "square": True},
        "reverse": {"form": "reverse", "temperature": 1.5, "square": False},
        "reverse_hot": {"form": "reverse", "temperature": 4.0, "square": True},
        "top_k": {"form": "top_k", "temperature": 1.0, "square": False, "top_k": 3},
        "top_k_hot": {"form": "top_k", "temperature": 2.0, "square": True, "top_k": 5},
        "with_tokens": {"form": "forward", "temperature": 2.0, "square": True, "tokens": 0.7},
    }
    for case, options in cases.items():
        # As many rows as classes, so that a test can pass the teacher's head as data.
        targets = torch.from_numpy(book.rng.integers(-1, 11, 11))
        targets[0], targets[6] = -1, 10
        inputs = {"x_student": book.normal(11, 3), "w": book.normal(11, 3)}
        fixed = {"x_teacher": book.normal(11, 4), "head_teacher": book.normal(11, 4), "targets": targets}
        mean_loss(book, case, options, distillation(**options), inputs, fixed)


def states(book):
    def rows(form, student, teacher):
        if form == "mse":
            return F.mse_loss(student, teacher, reduction="none").mean(-1)
        if form == "normalised_mse":
            zero = torch.zeros_like(teacher)
            return F.mse_loss(student, teacher, reduction="none").mean(-1) / F.mse_loss(zero, teacher, reduction="none").mean(-1)
        return 1 - F.cosine_similarity(student, teacher, dim=-1)

    for form in ("mse", "normalised_mse", "cosine"):
        for width in (7, 4):
            targets = torch.from_numpy(book.rng.integers(-1, 3, (3, 5)))
            targets[0, 0], targets[1, 1] = -1, 2
            inputs = {"student": book.normal(3, 5, width)}
            if width == 4:
                inputs["w"] = book.normal(7, 4)

            def function(student, teacher, targets, w=None, form=form):
                return rows(form, student if w is None else student @ w.T, teacher)[targets >= 0].mean()

            mean_loss(book, form + ("" if width == 7 else "_projected"), {"loss": form, "project": width == 4}, function, inputs,
                      {"teacher": book.normal(3, 5, 7), "targets": targets})


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    for each in (book, single):
        divergences(each)
        states(each)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("distillation", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
