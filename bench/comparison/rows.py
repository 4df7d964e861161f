"""The rows of the table, in groups that are measured together: which process each side is, and which of the figures that it
prints is the row's value."""
from dataclasses import dataclass, field
import fnmatch
from typing import Callable, Optional

from . import machine

TRIAL_STEPS = 3           # of a side's first process, which tells how long a step takes: one warms up, two are timed
FEWEST, MOST = 3, 20_000  # steps of a side


@dataclass(frozen=True)
class Row:
    name: str
    title: str = ""  # where our program does not say it
    unit: str = ""   # likewise
    aims: dict = field(default_factory=dict)  # by side: what the median ratio should be at least (at most where limit_over_ours)
    limit_is: str = ""
    lower_is_better: bool = False  # values are seconds
    most: Optional[float] = None   # aim of our own median, where values are seconds
    limit_over_ours: bool = False  # the limit's ratio is how many times as long we take


@dataclass(frozen=True)
class Group:
    """Rows that the same processes serve. Sides are measured in this order in even rounds and backwards in odd ones."""
    rows: tuple
    sides: dict  # name: function of Context to figures as processes.run() returns them
    value: Callable  # (row, side, figures): the row's value; None where the side has none
    # (row, figures of our side): the limit, where our program measures it along the way
    limit: Callable = lambda row, figures: None


@dataclass(frozen=True)
class Context:
    """Functions that start processes from words and return figures, and the sizes of this comparison."""
    ours: Callable  # (program, *words)
    peer: Callable  # (tuned, script, *words)
    torch: bool
    threads: int
    quick: bool
    folder: str  # on a disk
    seconds: float = 3  # that the timed steps of a side should take
    steps: dict = field(default_factory=dict)  # of (row, side), once a trial has told how long a step takes


def our_steps(what, workload, steps):
    """workload `what` NAME, with as many steps as a function of the context says."""
    return lambda context: context.ours("workload", what, workload, "--steps", str(steps(context)), "--threads", str(context.threads))


def peer_steps(tuned, workload, steps):
    """The peer that the workload describes. What it prints knows nothing of tokens or samples: the description does."""
    describe = our_steps("describe", workload, steps)

    def start(context):
        described = describe(context)
        if "error" in described:
            return described
        return {**described, **context.peer(tuned, described["script"], *described["arguments"].split())}
    return start


def sized(name, side, side_of):
    """side_of(steps) with as many steps as take `context.seconds`: the first time after a trial of a few. Of a side that is
    stopped in its trial, `at_most` is a bound of its rate."""
    def start(context):
        if (name, side) not in context.steps:
            trial = side_of(lambda context: TRIAL_STEPS)(context)
            if "late_after_s" in trial and "per_step" in trial:
                trial["at_most"] = trial["per_step"] * TRIAL_STEPS / trial["late_after_s"]
            if not trial.get("seconds_per_step"):
                return trial
            wanted = round(context.seconds / trial["seconds_per_step"] * 4 / 3)  # a quarter warms up
            context.steps[(name, side)] = min(max(wanted, FEWEST), MOST)
        return side_of(lambda context: context.steps[(name, side)])(context)
    return start


def rate(row, side, figures):
    return figures["per_step"] / figures["seconds_per_step"] if figures.get("seconds_per_step") else None


def steps_group(name, aims, limit_is="its products alone"):
    """A row of whole training steps, of which `workload` knows everything but how many."""
    return Group((Row(name, aims=aims, limit_is=limit_is),), {
        "ours": sized(name, "ours", lambda steps: our_steps("train", name, steps)),
        "stock": sized(name, "stock", lambda steps: peer_steps(False, name, steps)),
        "tuned": sized(name, "tuned", lambda steps: peer_steps(True, name, steps)),
        "limit": sized(name, "limit", lambda steps: our_steps("limit", name, steps)),
    }, rate)


def against_own_step(name, ours, other, aim, limit_is, peers=False):
    """A row whose limit is another step of ours: how many times as long a step takes."""
    row = Row(name, aims={"limit": aim}, limit_is=limit_is, limit_over_ours=True)
    sides = {"ours": sized(name, "ours", lambda steps: our_steps("train", ours, steps))}
    if peers:
        sides["stock"] = sized(name, "stock", lambda steps: peer_steps(False, ours, steps))
        sides["tuned"] = sized(name, "tuned", lambda steps: peer_steps(True, ours, steps))
    sides["limit"] = sized(name, "limit", lambda steps: our_steps("train", other, steps))
    return Group((row,), sides, rate)


def bf16_group(name, aims, f32, units):
    """Without bf16 units PyTorch emulates, ten times slower, so that our own step in f32 is what a step in bf16 is held to."""
    return steps_group(name, aims) if units else against_own_step(name, name, f32, 1.15, "times the same step in f32", peers=True)


def first_slot_group(name, workload, most, aims):
    """Not the step itself, so that what is measured is the program and not its products. Both processes end there."""
    def ours(context):
        return context.ours("workload", "start", workload, "--threads", str(context.threads))

    def peer(tuned):
        def start(context):
            described = context.ours("workload", "describe", workload, "--threads", str(context.threads))
            if "error" in described:
                return described
            return context.peer(tuned, described["script"], *described["arguments"].split(), "--steps", "0")
        return start
    row = Row(name, f"start of the process to the begin of its first slot, GPT of {workload}", "s", aims, lower_is_better=True, most=most)
    return Group((row,), {"ours": ours, "stock": peer(False), "tuned": peer(True)}, lambda row, side, figures: figures.get("first_slot_s"))


def generate_group():
    def peer(tuned):
        return lambda context: context.peer(tuned, "generate_torch.py", "--threads", str(context.threads),
                                            "--rounds", "1" if context.quick else "3")
    title = "of a GPT of 4 layers of width 128, 128 tokens each, on kept keys and values"
    rows = (Row("generate", f"16 texts at a time {title}", "tokens/s", {}),
            Row("generate-one", f"one text {title}", "tokens/s", {}))
    return Group(rows, {
        "ours": lambda context: context.ours("decode", "--json", "true", "--rounds", "1" if context.quick else "3",
                                             "--threads", str(context.threads)),
        "stock": peer(False), "tuned": peer(True),
    }, lambda row, side, figures: figures.get("one_per_s" if row.name == "generate-one" else "many_per_s"))


def quantize_group(mode, aim):
    def peer(tuned):
        return lambda context: context.peer(tuned, "quantize_torch.py", "--mode", mode, "--threads", str(context.threads),
                                            "--steps", "4" if context.quick else "10")
    row = Row(f"quantize-{mode}", f"NVFP4 1x16 of a bf16 matrix of 4096 x 2048, PyTorch {mode}", "GB/s", aim, "a copy of the matrix")
    return Group((row,), {
        "ours": lambda context: context.ours("quantize", "--json", "true", "--rounds", "1", "--steps", "4" if context.quick else "10",
                                             "--threads", str(context.threads)),
        "stock": peer(False), "tuned": peer(True),
    }, lambda row, side, figures: figures.get("gb_per_s" if side == "ours" else "first"),
        lambda row, figures: figures.get("copy_gb_per_s"))


def all_reduce_group():
    def size(context):
        return str((8 if context.quick else 64) << 20)

    def peer(tuned):
        return lambda context: context.peer(tuned, "all_reduce_torch.py", "2", size(context), "8")

    def value(row, side, figures):
        if side == "ours":
            return figures.get("gb_per_s")
        return figures["bytes"] * 1e-9 / figures["first"] if figures.get("first") else None

    def with_size(start):
        return lambda context: {"bytes": int(size(context)), **start(context)}
    row = Row("all-reduce", "sum over two processes, transport `socket`, Gloo", "GB/s of tensor", {},
              "one way through a local socket")
    return Group((row,), {
        "ours": lambda context: context.ours("all_reduce", "--json", "true", "--rounds", "1", "--bytes", size(context)),
        "stock": with_size(peer(False)), "tuned": with_size(peer(True)),
    }, value, lambda row, figures: figures["gb_per_s"] / figures["of_copy"] if figures.get("of_copy") else None)


def checkpoint_group():
    def size(context):
        return ("--megabytes", "64" if context.quick else "512", "--folder", context.folder)

    def peer(tuned):
        return lambda context: context.peer(tuned, "checkpoint_torch.py", *size(context))
    rows = (Row("checkpoint-save", "tensors to a verified checkpoint on the disk; torch.save and a sync", "GB/s", {"limit": 0.8}, "raw writes"),
            Row("checkpoint-load", "a checkpoint back, every block checked, nothing cached; torch.load", "GB/s",
                {"limit": 0.7}, "raw reads"))

    def key(row):
        return row.name.rsplit("-", 1)[1]
    return Group(rows, {
        "ours": lambda context: context.ours("checkpoints", "--json", "true", "--rounds", "1", *size(context)),
        "stock": peer(False), "tuned": peer(True),
    }, lambda row, side, figures: figures.get(f"{key(row)}_gb_per_s"),
        lambda row, figures: figures[f"{key(row)}_gb_per_s"] / figures[f"{key(row)}_of_raw"] if f"{key(row)}_of_raw" in figures else None)


BF16_UNITS = {"avx512_bf16", "amx_bf16"}


def all_groups(flags=None):
    """All rows, with the aims of a processor of these flags; None: of one that has all."""
    present = set(flags) if flags is not None else set().union(BF16_UNITS, *machine.CLASSES.values())
    kind = machine.processor_class(present)
    units = bool(BF16_UNITS & present)
    copy = 0.5 if kind == "AVX2" else 0.6
    return [
        steps_group("gpt-fp32", {"stock": 1.2, "tuned": 1.1, "limit": 0.75}),
        bf16_group("gpt-bf16", {"stock": 2.0, "tuned": 1.5, "limit": 0.65}, "gpt-fp32", units),
        against_own_step("nvfp4-step", "gpt-nvfp4", "gpt-bf16", {"AMX": 1.25, "AVX-512": 1.15}.get(kind, 1.4), "times the same step in bf16"),
        steps_group("gpt125m-fp32", {"stock": 1.3, "tuned": 1.1, "limit": 0.75}),
        bf16_group("gpt125m-bf16", {"stock": 1.5, "tuned": 1.2, "limit": 0.65}, "gpt125m-fp32", units),
        bf16_group("decoder-bf16", {"limit": 0.65}, "decoder-fp32", units),
        steps_group("dlrm-fp32", {"stock": 2.0, "tuned": 1.3}),
        steps_group("dlrm-bf16", {"stock": 1.3, "tuned": 1.2}),
        steps_group("lenet5", {"stock": 2.0, "tuned": 1.9}),
        steps_group("resnet18", {"stock": 1.2, "tuned": 1.15}),
        steps_group("fno2d", {"stock": 4.0, "tuned": 2.0}, "its products and copies alone"),
        quantize_group("eager", {"stock": 20.0, "tuned": 8.0, "limit": copy}),
        quantize_group("compiled", {"stock": 5.0, "limit": copy}),
        all_reduce_group(),
        checkpoint_group(),
        generate_group(),
        first_slot_group("time-to-first-slot", "gpt-fp32", 0.4, {"stock": 10.0}),
        first_slot_group("time-to-first-slot-tiny", "gpt-tiny", 0.15, {}),
    ]


def matches(name, patterns):
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def chosen(patterns, flags=None):
    """Groups that hold a row whose name one of these patterns fits, or all; a pattern that fits none ends the program with the names."""
    groups = all_groups(flags)
    known = [row.name for group in groups for row in group.rows]
    for pattern in patterns or []:
        if not fnmatch.filter(known, pattern):
            raise SystemExit(f"bench/compare: there is no row '{pattern}'; there are: {' '.join(known)}")
    return [group for group in groups if any(matches(row.name, patterns) for row in group.rows)]
