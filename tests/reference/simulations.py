"""What the solvers of plugins/simulator must give: simulations.safetensors. The equations stand in flow.py."""

import numpy

import flow
import record

GENERATOR = numpy.random.default_rng(11)


def navier_stokes(found):
    n = 16
    vorticity = GENERATOR.normal(size=(n, n))
    vorticity -= vorticity.mean()
    solver = flow.NavierStokes(n, 1e-3, 1e-2, flow.forcing_of(n, 0.1))
    spectrum = numpy.fft.rfft2(vorticity)
    found["ns.vorticity.0"] = vorticity
    found["ns.u"], found["ns.v"] = solver.velocity(spectrum)
    for step in range(1, 101):
        spectrum = solver.advance(spectrum)
        if step in (1, 10, 100):
            found[f"ns.vorticity.{step}"] = solver.physical(spectrum)
    found["ns.normals"] = GENERATOR.normal(size=(n, n, 2))
    found["ns.random"] = flow.random_vorticity(found["ns.normals"], 2.5, 7.0)


def darcy(found):
    n = 17
    found["field.normals"] = GENERATOR.normal(size=(n, n))
    found["field.nodes"] = flow.cosine_field(found["field.normals"], 2.0, 3.0, numpy.arange(n) / (n - 1))
    found["field.centres"] = flow.cosine_field(found["field.normals"], 2.0, 3.0, (numpy.arange(n) + 0.5) / n)
    found["darcy.a"] = numpy.where(found["field.nodes"] >= 0, 12.0, 3.0)
    found["darcy.u"] = flow.darcy(found["darcy.a"])


def two_phase(found):
    n, porosity, ratio = 8, 0.2, 0.5
    permeability = numpy.exp(GENERATOR.normal(size=(n, n)))
    rates = numpy.zeros((n, n))
    rates[1, 2] = rates[6, 1] = porosity / 2
    rates[5, 6] = -porosity
    solver = flow.TwoPhase(permeability, rates, porosity, ratio)
    s = numpy.zeros((n, n))
    found["impes.permeability"], found["impes.rates"] = permeability, rates
    for step in range(1, 31):
        if step % 3 == 1:
            fx, fy = solver.solve(s)
        if step == 1:
            found["impes.pressure.1"] = solver.pressure
            found["impes.outflow.1"] = solver.outflow(fx, fy)
        s = solver.move(s, fx, fy, 0.002)
        if step in (1, 30):
            found[f"impes.saturation.{step}"] = s
    found["impes.pressure.30"] = solver.pressure


tensors = {}
navier_stokes(tensors)
darcy(tensors)
two_phase(tensors)
record.finish(
    "simulations",
    tensors,
    {
        "ns": "16 x 16, nu 1e-3, dt 1e-2, forcing 0.1; ns.random: alpha 2.5, tau 7",
        "field": "alpha 2, tau 3, 17 x 17 cosines at the nodes i / 16 and at the centres (i + 1/2) / 17",
        "darcy": "17 x 17 nodes, right-hand side 1",
        "impes": "8 x 8, porosity 0.2, ratio 0.5, dt 0.002, pressure every third step from the first",
    },
)
