"""Records the clipped objective of policy gradients in float64, as layers.py does: min(rho A, clip(rho) A) over counted places.

Written as the equation has it, with gradients of PyTorch's autograd.
"""

import torch

import record
from layers import Book
from sequence_layers import mean_loss


def clipped(clip):
    def function(log_probs, drawn, advantages, targets):
        counted = targets >= 0
        ratio = torch.exp(log_probs - drawn)
        terms = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
        return -terms[counted].mean()

    return function


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    for each in (book, single):
        for case, clip in (("usual", 0.2), ("wide", 3.0), ("none", 0.0)):
            targets = torch.from_numpy(each.rng.integers(-1, 3, (4, 9)))
            drawn = each.normal(4, 9, centre=-2.0)
            inputs = {"log_probs": each.exact(drawn + each.normal(4, 9, sigma=0.4)), "drawn": drawn, "advantages": each.normal(4, 9)}
            mean_loss(each, case, {"clip": clip, "mean over": "places whose target is not negative"}, clipped(clip), inputs,
                      {"targets": targets})
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("policy_loss", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
