"""Runs and studies of Tenon in Python: reads them, starts them, sends them to trackers. See docs/python.md."""

__version__ = "0.1.0"

from .checkpoints import Checkpoint, checkpoint, checkpoint_steps
from .errors import (
    PackageMissingError,
    ProgramError,
    ProgramMissingError,
    RunWarning,
    TenonError,
    UnreadableError,
)
from .json_lines import Point
from .program import ab, export, find_program, train
from .run_folders import Runs, runs
from .run_record import Run, load
from .studies import Comparison, Study, Verdict, study
from .tensor_files import Tensor, npy, tensors
from .trackers import send

__all__ = [
    "Checkpoint",
    "Comparison",
    "PackageMissingError",
    "Point",
    "ProgramError",
    "ProgramMissingError",
    "Run",
    "RunWarning",
    "Runs",
    "Study",
    "Tensor",
    "TenonError",
    "UnreadableError",
    "Verdict",
    "ab",
    "checkpoint",
    "checkpoint_steps",
    "export",
    "find_program",
    "load",
    "npy",
    "runs",
    "send",
    "study",
    "tensors",
    "train",
]
