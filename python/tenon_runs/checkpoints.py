"""Checkpoints of a run: what is in them, and single tensors.

Checksums are not verified here; ``tenon export`` verifies every byte, and writes the weights under conventional names.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from .errors import PackageMissingError, UnreadableError
from .json_lines import read_object
from .run_record import PathLike, Run, load
from .tensor_files import entries, value_of

_GENERATION = re.compile(r"step-([0-9]+)$")


@dataclass(frozen=True)
class Checkpoint:
    """One generation: complete, since the program renames it into its place when it is."""

    folder: Path
    step: int  #: completed slots
    manifest: Dict[str, Any]

    @property
    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """Global shape of each tensor by name, e.g. ``replica0/model/...``."""
        return {t["name"]: tuple(t["shape"]) for t in self.manifest["tensors"]}

    @property
    def weights_prefix(self) -> Optional[str]:
        """The begin of the names of the weights that ``val/*`` refers to; None in checkpoints of earlier versions."""
        text = self.manifest.get("meta", {}).get("evaluated/replica0", {}).get("text")
        return text if isinstance(text, str) else None

    def tensor(self, name: str) -> Any:
        """One tensor, put together from the ranks' files; several parts need numpy."""
        if self.manifest.get("base") is not None:
            raise UnreadableError(f"{self.folder} holds only what changed since an earlier step; use `tenon export`")
        found = [t for t in self.manifest["tensors"] if t["name"] == name]
        if not found:
            raise KeyError(f"{self.folder} has no tensor {name!r}; `shapes` lists all")
        parts = found[0]["parts"]
        if len(parts) == 1 and parts[0].get("shape") == found[0]["shape"]:
            return self._part(parts[0])
        try:
            import numpy
        except ImportError:
            raise PackageMissingError(f"{name} is in {len(parts)} parts, which need numpy: pip install numpy") from None
        pieces = [(part, self._part(part)) for part in parts]
        if sum(piece.size for _, piece in pieces) != math.prod(found[0]["shape"]):
            raise UnreadableError(f"{self.folder}: the parts of {name} do not fill it")
        whole = numpy.zeros(found[0]["shape"], dtype=pieces[0][1].dtype if pieces else "f4")
        for part, piece in pieces:
            place = tuple(slice(o, o + n) for o, n in zip(part["offset"], part["shape"]))
            whole[place] = piece.reshape(part["shape"])
        return whole

    def _part(self, part: Dict[str, Any]) -> Any:
        if "offset" not in part or "shape" not in part:
            raise UnreadableError(f"{self.folder}: {part.get('key')} lists rows of a table; use `tenon export`")
        path = self.folder / self.manifest["files"][part["file"]]["name"]
        found = entries(path).get(part["key"])
        if found is None:
            raise UnreadableError(f"{path}: has no tensor {part['key']!r}, which MANIFEST.json names")
        return value_of(path, found)


def checkpoint_steps(run: Union[Run, PathLike]) -> List[int]:
    """Steps of all complete checkpoints of a run, in order."""
    folder = (run if isinstance(run, Run) else load(run)).folder / "checkpoints"
    if not folder.is_dir():
        return []
    matches = [_GENERATION.match(entry.name) for entry in folder.iterdir()]
    return sorted(int(m.group(1)) for m in matches if m and (folder / m.group() / "MANIFEST.json").exists())


def checkpoint(run: Union[Run, PathLike], step: Optional[int] = None) -> Checkpoint:
    """A checkpoint of a run: the newest, or that of a step."""
    run = run if isinstance(run, Run) else load(run)
    steps = checkpoint_steps(run)
    if not steps:
        raise UnreadableError(f'{run.folder} has no checkpoint; a run saves with [recovery] type = "full"')
    if step is not None and step not in steps:
        raise UnreadableError(f"{run.folder} has no checkpoint of step {step} (it has: {', '.join(map(str, steps))})")
    chosen = steps[-1] if step is None else step
    folder = run.folder / "checkpoints" / f"step-{chosen}"
    manifest = read_object(folder / "MANIFEST.json")
    if manifest.get("format") != "tenon.checkpoint" or manifest.get("version") != 1:
        raise UnreadableError(f"{folder / 'MANIFEST.json'}: not version 1 of tenon.checkpoint")
    return Checkpoint(folder, chosen, manifest)
