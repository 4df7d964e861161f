"""Errors of this package. Each message says what went wrong, where, and what to do."""

from __future__ import annotations

from typing import Optional


class TenonError(Exception):
    """Base of all errors of this package."""


class UnreadableError(TenonError):
    """A file or folder is missing, damaged, or not what it should be."""


class ProgramMissingError(TenonError):
    """There is no program ``tenon`` where it was looked for."""


class PackageMissingError(TenonError):
    """An optional package is needed and not installed; the message says which."""


class ProgramError(TenonError):
    """The program ended with an exit status other than 0.

    ``status`` is the exit status (1 failed run, 2 configuration, 3 plugin, 4 lost device; negative: a signal),
    ``words`` what the program said about it, ``folder`` the run or study that it named, if any.
    """

    def __init__(self, command: str, status: int, words: str, folder: Optional[str] = None):
        super().__init__(f"{command} ended with exit status {status}: {words or 'it said nothing'}")
        self.status = status
        self.words = words
        self.folder = folder


class RunWarning(UserWarning):
    """A run was left out, or something about it is odd but readable."""
