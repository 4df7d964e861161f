"""Records transforms of which a few modes are kept, their adjoints, spectral convolutions, a small Fourier network and the
relative L2 loss, in float64.

Transforms are NumPy's along one dimension. Adjoints come from the matrix of the map, built column by column from NumPy's own
transform and transposed: nothing of the formula that Tenon uses. Spectral convolutions are PyTorch's rfftn and irfftn with
weights of Li et al. 2021, as one tensor of the truncated spectrum: low modes before high ones along every dimension but the
last, of which the low ones are kept.
"""

import itertools

import numpy
import torch
import torch.nn.functional as F

import record
from layers import Book

TRANSFORMS = {
    # name: points, low, high, real
    "real_even": (8, 3, 0, True), "real_whole": (8, 5, 0, True), "real_odd": (7, 4, 0, True), "real_prime": (13, 2, 0, True),
    "real_one": (1, 1, 0, True), "complex_even": (8, 3, 2, False), "complex_whole": (6, 3, 3, False),
    "complex_odd": (7, 3, 3, False), "complex_low": (5, 2, 0, False),
    "real_long": (150, 4, 0, True), "complex_long": (131, 2, 3, False), "real_wide": (80, 40, 0, True),
}


def kept(spectrum, low, high):
    """Along axis 1."""
    return numpy.concatenate([spectrum[:, :low], spectrum[:, spectrum.shape[1] - high:]], axis=1)


def forward(x, low, high, real):
    return kept(numpy.fft.rfft(x, axis=1) if real else numpy.fft.fft(x, axis=1), low, high)


def inverse(z, n, low, high, real):
    """Imaginary parts of modes that are their own conjugates are dropped, whatever NumPy makes of them."""
    if not real:
        spectrum = numpy.zeros((z.shape[0], n, z.shape[2]), complex)
        spectrum[:, :low], spectrum[:, n - high:] = z[:, :low], z[:, low:]
        return numpy.fft.ifft(spectrum, axis=1)
    spectrum = numpy.zeros((z.shape[0], n // 2 + 1, z.shape[2]), complex)
    spectrum[:, :low] = z
    spectrum[:, 0] = spectrum[:, 0].real
    if n % 2 == 0:
        spectrum[:, n // 2] = spectrum[:, n // 2].real
    return numpy.fft.irfft(spectrum, n, axis=1)


def reals(values):
    """Complex numbers as pairs of reals in a new last dimension."""
    return numpy.stack([values.real, values.imag], -1) if numpy.iscomplexobj(values) else values


def adjoint(linear, shape, complex_in, gradient):
    """The transposed matrix of `linear` over reals, times `gradient`."""
    width = int(numpy.prod(shape)) * (2 if complex_in else 1)
    columns = []
    for i in range(width):
        unit = numpy.zeros(width)
        unit[i] = 1
        unit = unit.reshape(*shape, 2) if complex_in else unit.reshape(shape)
        columns.append(reals(linear(unit[..., 0] + 1j * unit[..., 1] if complex_in else unit)).ravel())
    result = numpy.array(columns) @ reals(gradient).ravel()
    return result.reshape(*shape, 2) if complex_in else result.reshape(shape)


def transforms(book, random):
    for name, (n, low, high, real) in TRANSFORMS.items():
        def draw(extent, complex_):
            values = random.standard_normal((2, extent, 3))
            return values + 1j * random.standard_normal((2, extent, 3)) if complex_ else values

        x, g, z, h = draw(n, not real), draw(low + high, True), draw(low + high, True), draw(n, not real)
        book.add(f"fft_{name}", {"points": n, "low": low, "high": high, "real": real}, {
            key: torch.from_numpy(reals(value).astype(numpy.float64)) for key, value in {
                "x": x, "forward": forward(x, low, high, real),
                "g": g, "forward_adjoint": adjoint(lambda v: forward(v, low, high, real), x.shape, not real, g),
                "z": z, "inverse": inverse(z, n, low, high, real),
                "h": h, "inverse_adjoint": adjoint(lambda v: inverse(v, n, low, high, real), z.shape, True, h),
            }.items()})


def spectral_conv(x, w, modes):
    """x: [batch, in, points...], w: [in, out, 2 k_1, ..., k_d, 2]."""
    points, d = x.shape[2:], len(modes)
    spectrum = torch.fft.rfftn(x, dim=tuple(range(2, 2 + d)))
    out = torch.zeros(x.shape[0], w.shape[1], *spectrum.shape[2:], dtype=spectrum.dtype)
    weight = torch.view_as_complex(w)
    for corner in itertools.product((False, True), repeat=d - 1):
        from_, to = [slice(None)] * 2, [slice(None)] * 2
        for high, k, n in zip(corner, modes[:-1], points[:-1]):
            from_.append(slice(n - k, n) if high else slice(0, k))
            to.append(slice(k, 2 * k) if high else slice(0, k))
        from_.append(slice(0, modes[-1]))
        to.append(slice(0, modes[-1]))
        out[tuple(from_)] = torch.einsum("bi...,io...->bo...", spectrum[tuple(from_)], weight[tuple(to)])
    # PyTorch's irfftn would read imaginary parts that mean nothing; between the inverse transforms they are dropped.
    for dim, n in enumerate(points[:-1]):
        out = torch.fft.ifft(out, n=n, dim=2 + dim)
    own = torch.zeros(out.shape[-1], dtype=torch.bool)
    own[0] = True
    if points[-1] % 2 == 0:
        own[points[-1] // 2] = True
    out = torch.where(own, out.real + 0j, out)
    return torch.fft.irfft(out, n=points[-1], dim=-1)


CONVOLUTIONS = {
    # name: batch, in, out, points, modes
    "1d": (2, 3, 2, (9,), (4,)), "1d_whole": (2, 2, 3, (8,), (5,)),
    "2d": (2, 3, 2, (6, 7), (2, 3)), "2d_whole": (2, 2, 2, (6, 8), (3, 5)), "2d_odd": (1, 2, 3, (5, 5), (2, 3)),
    "3d": (2, 2, 3, (4, 5, 6), (2, 1, 3)), "4d": (1, 2, 2, (4, 3, 4, 5), (1, 1, 2, 2)),
}


def weight(book, inputs, outputs, modes):
    return book.normal(inputs, outputs, *[2 * k for k in modes[:-1]], modes[-1], 2)


def convolutions(book):
    for name, (batch, inputs, outputs, points, modes) in CONVOLUTIONS.items():
        book.differentiate(f"conv_{name}", {"points": points, "modes": modes},
                           lambda x, w: spectral_conv(x, w, modes),
                           {"x": book.normal(batch, inputs, *points), "w": weight(book, inputs, outputs, modes)})


def relative_l2(x, t):
    error = (x - t).flatten(1).norm(dim=1) / t.flatten(1).norm(dim=1)
    return error.mean().reshape(1)


def losses(book):
    x, t = book.normal(3, 1, 4, 5), book.normal(3, 1, 4, 5)
    x.requires_grad_()
    loss = relative_l2(x, t)
    (d_x,) = torch.autograd.grad(loss, x)
    book.add("relative_l2", {"loss": "mean over samples"}, {"x": x, "t": t, "loss": loss, "d_x": d_x})
    scaled = relative_l2(0.5 + 2 * x, 0.5 + 2 * t)
    (d_x,) = torch.autograd.grad(scaled, x)
    book.add("relative_l2_scaled", {"loss": "of 0.5 + 2 x and 0.5 + 2 t"}, {"x": x, "t": t, "loss": scaled, "d_x": d_x})


def pad(x, share):
    """Zeros on the far sides."""
    widths = []
    for n in reversed(x.shape[2:]):
        widths += [0, round(share * n)]
    return F.pad(x, widths)


def mix(x, w, b):
    return torch.einsum("oi,bi...->bo...", w, x) + b.reshape(1, -1, *[1] * (x.dim() - 2))


def network(book):
    """Two layers of width 3 over 6 x 5 points of one channel, coordinates i/n beside it, padding of a third."""
    width, modes, batch, points, hidden = 3, (3, 2), 2, (6, 5), 4
    names = {"lift.weight": (width, 3), "lift.bias": (width,), "project.weight": (hidden, width), "project.bias": (hidden,),
             "out.weight": (1, hidden), "out.bias": (1,)}
    for i in range(2):
        names |= {f"layers.{i}.spectral.weight": (width, width, 2 * modes[0], modes[1], 2),
                  f"layers.{i}.linear.weight": (width, width), f"layers.{i}.linear.bias": (width,)}
    parameters = {name: (0.5 * book.normal(*shape)).requires_grad_() for name, shape in names.items()}
    x, t = book.normal(batch, 1, *points), book.normal(batch, 1, *points)

    def run(p):
        grid = torch.meshgrid(*[torch.arange(n, dtype=x.dtype) / n for n in points], indexing="ij")
        v = torch.cat([x, *[g.expand(batch, 1, *points) for g in grid]], 1)
        v = pad(mix(v, p["lift.weight"], p["lift.bias"]), 1 / 3)
        for i in range(2):
            v = spectral_conv(v, p[f"layers.{i}.spectral.weight"], modes) + mix(
                v, p[f"layers.{i}.linear.weight"], p[f"layers.{i}.linear.bias"])
            v = F.gelu(v) if i == 0 else v
        v = v[:, :, :points[0], :points[1]]
        v = F.gelu(mix(v, p["project.weight"], p["project.bias"]))
        return mix(v, p["out.weight"], p["out.bias"])

    y = run(parameters)
    loss = relative_l2(y, t)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    book.add("fno", {"width": width, "modes": modes, "padding": 1 / 3},
             {"x": x, "t": t, "y": y, "loss": loss, **{f"init.{n}": p for n, p in parameters.items()},
              **{f"grad.{n}": g for n, g in zip(parameters, gradients)}})


def main():
    torch.set_num_threads(1)
    book, single = Book(torch.float64), Book(torch.float32)
    for write in (convolutions, losses, network):
        write(book)
        write(single)
    recorded, rough = record.as_arrays(book.tensors), record.as_arrays(single.tensors)
    for case, options in book.cases.items():
        options["float32_error"] = max(record.relative_error(rough[name], recorded[name])
                                       for name in recorded if name.startswith(f"{case}."))
    transforms(book, numpy.random.default_rng(31))
    record.finish("spectral", record.as_arrays(book.tensors), {"dtype": "float64", "cases": book.cases})


if __name__ == "__main__":
    main()
