"""Records transposed convolutions and interpolations over one to three dimensions in float64.

A weight of a transposed convolution is recorded as Tenon stores it, [features, kernel..., channels of a group], because a
product's rows are what one group makes of its channels; PyTorch's is [channels, features of a group, kernel...].
"""

import torch
import torch.nn.functional as F

import record
from layers import Book

TRANSPOSED = {
    # name: x, features, kernel, groups, bias, further options
    "1d": ((2, 3, 6), 4, (3,), 1, True, {"stride": (2,), "padding": (1,), "output_padding": (1,)}),
    "1d_dilated": ((2, 2, 7), 3, (3,), 1, True, {"dilation": (3,), "padding": (2,), "output_padding": (2,)}),
    "1d_gaps": ((2, 3, 4), 2, (2,), 1, True, {"stride": (4,), "padding": (0,), "output_padding": (3,)}),
    "1d_cropped": ((1, 2, 5), 2, (3,), 1, False, {"stride": (2,), "padding": (3,)}),
    "2d": ((2, 3, 4, 5), 4, (3, 3), 1, True, {"stride": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}),
    "2d_mixed": ((2, 2, 4, 3), 3, (2, 3), 1, True,
                 {"stride": (3, 1), "padding": (0, 1), "dilation": (1, 2), "output_padding": (2, 1)}),
    "2d_groups": ((3, 6, 3, 4), 9, (3, 2), 3, True, {"stride": (2, 2), "padding": (1, 0)}),
    "2d_depthwise": ((2, 4, 3, 3), 4, (2, 2), 4, False, {"stride": (2, 2)}),
    "2d_points": ((2, 3, 3, 2), 2, (1, 1), 1, True, {"stride": (3, 2), "output_padding": (2, 1)}),
    "3d": ((1, 2, 3, 2, 3), 3, (2, 2, 2), 1, True, {"stride": (2, 2, 2)}),
    "3d_groups": ((2, 4, 2, 3, 2), 6, (3, 2, 1), 2, True,
                  {"stride": (2, 1, 2), "padding": (1, 0, 0), "output_padding": (1, 0, 1)}),
}

INTERPOLATED = {
    # name: x, scale
    "1d": ((2, 3, 5), (2,)), "1d_four": ((1, 2, 3), (4,)), "1d_one": ((2, 2, 1), (3,)),
    "2d": ((2, 3, 4, 3), (2, 3)), "2d_rows": ((2, 2, 3, 4), (3, 1)), "3d": ((1, 2, 3, 2, 4), (2, 3, 2)),
}

MODES = {
    "nearest": ({1: "nearest", 2: "nearest", 3: "nearest"}, {}),
    "linear": ({1: "linear", 2: "bilinear", 3: "trilinear"}, {"align_corners": False}),
    "linear_aligned": ({1: "linear", 2: "bilinear", 3: "trilinear"}, {"align_corners": True}),
}


def as_pytorch_stores_it(w, groups):
    """[features, kernel..., channels of a group] -> [channels, features of a group, kernel...]."""
    return w.unflatten(0, (groups, -1)).movedim(-1, 1).flatten(0, 1)


def transposed(book):
    functions = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
    for name, (x, features, kernel, groups, bias, options) in TRANSPOSED.items():
        inputs = {"x": book.normal(*x), "w": book.normal(features, *kernel, x[1] // groups)}
        if bias:
            inputs["b"] = book.normal(features)
        function = functions[len(kernel)]
        book.differentiate(f"transposed_{name}", {"kernel": kernel, "groups": groups, **options},
                           lambda x, w, b=None: function(x, as_pytorch_stores_it(w, groups), b, groups=groups, **options),
                           inputs)


def interpolated(book):
    for mode, (names, options) in MODES.items():
        for name, (x, scale) in INTERPOLATED.items():
            size = [n * s for n, s in zip(x[2:], scale)]
            book.differentiate(f"{mode}_{name}", {"scale": scale, "mode": names[len(scale)], **options},
                               lambda x: F.interpolate(x, size=size, mode=names[len(scale)], **options),
                               {"x": book.normal(*x)})


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    for write in (transposed, interpolated):
        write(book)
        write(single)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    record.finish("resampling", recorded, {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
