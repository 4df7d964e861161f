"""Solvers of flow problems in NumPy, written from their equations: what simulations.py records and bench/ races.

Navier-Stokes in vorticity form on the unit torus (Li et al. 2010.08895), Darcy flow with five-point differences,
two-phase flow by IMPES. Fields are [x][y].
"""

import numpy


class NavierStokes:
    """Pseudo-spectral; explicit Euler for the dealiased convective term, Crank-Nicolson for diffusion."""

    def __init__(self, n, viscosity, step, forcing):
        k = numpy.fft.fftfreq(n, 1 / n)
        kx, ky = k[:, None], numpy.arange(n // 2 + 1)[None, :]
        self.n, self.step = n, step
        self.lap = 4 * numpy.pi**2 * (kx**2 + ky**2)
        inverse = numpy.where(self.lap > 0, 1 / numpy.where(self.lap > 0, self.lap, 1), 0)
        # Odd derivatives have no part at the highest frequency.
        dx = 2j * numpy.pi * numpy.where(abs(kx) == n // 2, 0, kx) + 0 * ky
        dy = 2j * numpy.pi * numpy.where(ky == n // 2, 0, ky) + 0 * kx
        self.to_u, self.to_v, self.dx, self.dy = dy * inverse, -dx * inverse, dx, dy
        self.kept = (abs(kx) <= 2 / 3 * (n // 2)) & (ky <= 2 / 3 * (n // 2))
        self.explicit = 1 - step * viscosity * self.lap / 2
        self.implicit = 1 + step * viscosity * self.lap / 2
        self.forcing = step * numpy.fft.rfft2(forcing)

    def physical(self, spectrum):
        return numpy.fft.irfft2(spectrum, s=(self.n, self.n))

    def velocity(self, spectrum):
        return self.physical(self.to_u * spectrum), self.physical(self.to_v * spectrum)

    def advance(self, spectrum):
        u, v = self.velocity(spectrum)
        convective = u * self.physical(self.dx * spectrum) + v * self.physical(self.dy * spectrum)
        push = self.step * numpy.where(self.kept, numpy.fft.rfft2(convective), 0)
        return (self.explicit * spectrum - push + self.forcing) / self.implicit


def forcing_of(n, amplitude):
    x = numpy.arange(n) / n
    angle = 2 * numpy.pi * (x[:, None] + x[None, :])
    return amplitude * (numpy.sin(angle) + numpy.cos(angle))


def random_vorticity(normals, alpha, tau):
    """normals: [n][n][2], real and imaginary parts; the generator of the paper's authors, with complex transforms."""
    n = normals.shape[0]
    k = numpy.fft.fftfreq(n, 1 / n)
    lap = 4 * numpy.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2)
    root = n**2 * numpy.sqrt(2) * tau ** ((2 * alpha - 2) / 2) * (lap + tau**2) ** (-alpha / 2)
    root[0, 0] = 0
    return numpy.fft.ifft2(root * (normals[..., 0] + 1j * normals[..., 1])).real


def cosine_field(normals, alpha, tau, points):
    """Gaussian field with covariance tau^(2 alpha - 2) (-lap + tau^2)^(-alpha), Neumann, by its sum of cosines."""
    n = normals.shape[0]
    k = numpy.arange(n)
    weight = numpy.where(k == 0, 1.0, numpy.sqrt(2))
    root = tau ** (alpha - 1) * (numpy.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2) + tau**2) ** (-alpha / 2)
    root[0, 0] = 0
    basis = weight * numpy.cos(numpy.pi * points[:, None] * k[None, :])
    return basis @ (root * normals) @ basis.T


def darcy(a):
    """-div(a grad u) = 1, u = 0 on the boundary; a at the nodes, arithmetic means at the faces."""
    n = a.shape[0]
    inner = [(i, j) for i in range(1, n - 1) for j in range(1, n - 1)]
    place = {node: row for row, node in enumerate(inner)}
    matrix = numpy.zeros((len(inner), len(inner)))
    for (i, j), row in place.items():
        for other in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            face = (a[i, j] + a[other]) / 2
            matrix[row, row] += face
            if other in place:
                matrix[row, place[other]] -= face
    u = numpy.zeros_like(a)
    u[1:-1, 1:-1] = numpy.linalg.solve(matrix, numpy.full(len(inner), 1 / (n - 1) ** 2)).reshape(n - 2, n - 2)
    return u


class TwoPhase:
    """IMPES on n x n cells of the unit square without flow over the boundary; oil has viscosity 1, water `ratio`."""

    def __init__(self, permeability, rates, porosity, ratio):
        self.n = permeability.shape[0]
        self.rates, self.porosity, self.ratio = rates, porosity, ratio
        self.faces_x = 2 / (1 / permeability[1:] + 1 / permeability[:-1])
        self.faces_y = 2 / (1 / permeability[:, 1:] + 1 / permeability[:, :-1])
        self.pressure = numpy.zeros_like(permeability)

    def flow(self, s):
        return s**2 / (s**2 + self.ratio * (1 - s) ** 2)

    def mobility(self, s):
        return s**2 / self.ratio + (1 - s) ** 2

    def solve(self, s):
        """Pressure of zero mean, and the flow over the faces in the direction of growing index."""
        mobility = self.mobility(s)
        forward_x = self.pressure[:-1] >= self.pressure[1:]
        forward_y = self.pressure[:, :-1] >= self.pressure[:, 1:]
        tx = self.faces_x * numpy.where(forward_x, mobility[:-1], mobility[1:])
        ty = self.faces_y * numpy.where(forward_y, mobility[:, :-1], mobility[:, 1:])
        index = numpy.arange(self.n**2).reshape(self.n, self.n)
        matrix = numpy.zeros((self.n**2, self.n**2))
        for left, right, t in ((index[:-1], index[1:], tx), (index[:, :-1], index[:, 1:], ty)):
            for a, b, value in zip(left.ravel(), right.ravel(), t.ravel()):
                matrix[a, a] += value
                matrix[b, b] += value
                matrix[a, b] -= value
                matrix[b, a] -= value
        p = numpy.linalg.lstsq(matrix, self.rates.ravel(), rcond=None)[0].reshape(self.n, self.n)
        self.pressure = p - p.mean()
        return tx * (self.pressure[:-1] - self.pressure[1:]), ty * (self.pressure[:, :-1] - self.pressure[:, 1:])

    def outflow(self, fx, fy):
        out = numpy.maximum(-self.rates, 0)
        out[:-1] += numpy.maximum(fx, 0)
        out[1:] += numpy.maximum(-fx, 0)
        out[:, :-1] += numpy.maximum(fy, 0)
        out[:, 1:] += numpy.maximum(-fy, 0)
        return out

    def move(self, s, fx, fy, step):
        f = self.flow(s)
        water_x = fx * numpy.where(fx > 0, f[:-1], f[1:])
        water_y = fy * numpy.where(fy > 0, f[:, :-1], f[:, 1:])
        gain = numpy.where(self.rates > 0, self.rates, self.rates * f)
        gain[:-1] -= water_x
        gain[1:] += water_x
        gain[:, :-1] -= water_y
        gain[:, 1:] += water_y
        return s + step / self.porosity * self.n**2 * gain
