"""The curves: which process each point is, on which axis it lies, and how much its step is expected to cost.

An expectation is a cost relative to other points of the same curve, from the machine's cores, from what the process says of its own
arithmetic, or the first point's step and what a limit of the machine grows by; its exponent is fitted over the same points as the
measured one, so that both mean the same.
"""
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Point:
    words: tuple   # of `workload train`, without steps and threads
    steps: int
    quick_steps: int
    x: float = 0   # 0: the parameters that the process counts
    ranks: int = 0  # of a thread each; 0: one rank with all threads


@dataclass(frozen=True)
class Curve:
    name: str
    title: str
    x_label: str
    held: str      # what stays the same
    why: str       # the expectation in words
    points: tuple
    expected: Callable  # (x, figures, cores): relative cost
    limit: bool = False  # `workload limit` runs beside each point, and `expected` says how many of its seconds add to the first point's step


def arithmetic(x, figures, cores):
    return figures["flops_per_step"]


def ranks_curve():
    points = tuple(Point(("gpt-fp32", "--layers", "4", "--width", "256", "--context", "256", "--batch", "2", "--ranks", str(ranks)),
                         8, 4, ranks, ranks) for ranks in (1, 2, 4, 8))
    return Curve("ranks", "Ranks", "ranks (one thread each)", "GPT of 4 layers and width 256, 512 tokens per rank, `ddp` over threads",
                 "1 up to the cores C, ranks / C beyond", points, lambda x, figures, cores: max(1.0, x / cores))


def model_curve():
    sizes = ((2, 192, 24, 6), (4, 256, 16, 4), (6, 384, 8, 3), (8, 576, 6, 2), (10, 1024, 4, 2))
    points = tuple(Point(("gpt-fp32", "--layers", str(layers), "--width", str(width), "--context", "128", "--batch", "2"), steps, quick)
                   for layers, width, steps, quick in sizes)
    return Curve("model", "Size of the model", "parameters", "GPT, 256 tokens per step, context 128, vocabulary 256",
                 "6 flops per weight and token, and those of attention, which grow more slowly", points, arithmetic)


def sequence_curve():
    points = tuple(Point(("gpt-fp32", "--layers", "4", "--width", "256", "--context", str(context), "--batch", str(1024 // context)),
                         12, 4, context) for context in (64, 128, 256, 512, 1024))
    return Curve("sequence", "Length of the sequence", "tokens per sequence", "GPT of 4 layers and width 256, 1,024 tokens per step",
                 "the same per token, and attention's products: half the context in every other layer, a window of 256 in the rest",
                 points, arithmetic)


def mixer_curve(name, title, mixer, why):
    points = tuple(Point((mixer, "--context", str(context)), max(4, 24 * 1024 // context), 2, context)
                   for context in (1024, 2048, 4096, 8192, 16384))
    return Curve(name, title, "tokens of the sequence", f"2 layers of {title} of width 256, one sequence per step", why, points, arithmetic)


def rows_curve():
    points = tuple(Point(("tables", "--rows", str(rows)), 1200, 40, rows) for rows in (10 ** 4, 10 ** 5, 10 ** 6, 10 ** 7))
    return Curve("rows", "Rows of tables", "rows of each of 4 tables", "4 tables of width 16, 2,048 samples, ids all over the tables",
                 "a step touches the rows that it names: what the machine takes longer to reach them in larger tables", points,
                 lambda x, figures, cores: figures["limit_s"], limit=True)


def all_curves():
    return [ranks_curve(), model_curve(), sequence_curve(), rows_curve(),
            mixer_curve("mamba2", "Mamba-2", "mamba2", "1 at any length: products within chunks of 128, and their states"),
            mixer_curve("attention", "attention", "attention", "the products with weights, and half the context per token for the scores")]


def chosen(names):
    curves = all_curves()
    known = [curve.name for curve in curves]
    for name in names or []:
        if name not in known:
            raise SystemExit(f"bench/scaling: there is no curve '{name}'; there are: {' '.join(known)}")
    return [curve for curve in curves if not names or curve.name in names]
