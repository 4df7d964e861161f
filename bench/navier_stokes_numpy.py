"""NumPy peer of navier_stokes.cpp: seconds per step of the same scheme. The solver is that of tests/reference/flow.py."""
import argparse
import pathlib
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "reference"))
import flow  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--grid", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    n = options.grid
    solver = flow.NavierStokes(n, 1e-3, 1e-3, flow.forcing_of(n, 0.1))
    normals = numpy.random.default_rng(1).normal(size=(n, n, 2))
    spectrum = numpy.fft.rfft2(flow.random_vorticity(normals, 2.5, 7.0))
    for _ in range(10):
        spectrum = solver.advance(spectrum)
    begin = time.perf_counter()
    for _ in range(options.steps):
        spectrum = solver.advance(spectrum)
    print((time.perf_counter() - begin) / options.steps)


main()
