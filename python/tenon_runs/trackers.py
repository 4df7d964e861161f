"""Sends runs to trackers: W&B, MLflow, trackio. Each is imported when it is used.

Without a network W&B records offline below its folder (``wandb sync`` sends it later); MLflow writes to a local store
unless MLFLOW_TRACKING_URI names a server; trackio is local.
"""

from __future__ import annotations

import importlib
import os
import socket
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import urlparse

from .errors import PackageMissingError, TenonError
from .run_record import PathLike, Run


def _import(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PackageMissingError(f"sending to {package} needs a package: pip install {package} ({error})") from None


def reachable(url: str, seconds: float = 3) -> bool:
    """Whether a server answers at the address of a URL."""
    parts = urlparse(url)
    try:
        address = (parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))
        with socket.create_connection(address, timeout=seconds):
            return True
    except (OSError, ValueError):
        return False


def by_step(run: Run) -> List[Tuple[int, Dict[str, float]]]:
    """All metrics of each step, in order of steps."""
    steps: Dict[int, Dict[str, float]] = {}
    for metric, series in run.series.items():
        for point in series:
            steps.setdefault(point.step, {})[metric] = point.value
    return sorted(steps.items())


def _facts(run: Run) -> Dict[str, Any]:
    """What names the run elsewhere."""
    facts: Dict[str, Any] = {"folder": str(run.folder), "status": run.status, "weights_hash": run.weights_hash}
    facts.update({f"manifest.{key}": value for key, value in run.seeds.items()})
    return facts


def _to_wandb(run: Run, project: str, folder: Optional[PathLike], offline: Optional[bool]) -> str:
    wandb = _import("wandb", "wandb")
    if offline is None:
        server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
        offline = not reachable(server)
    mode = "offline" if offline else "online"
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    directory = None if folder is None else str(folder)
    config = {**run.config, "tenon": _facts(run)}
    sent = wandb.init(project=project, name=run.name, config=config, mode=mode, dir=directory, reinit="finish_previous")
    for step, values in by_step(run):
        sent.log(values, step=step)
    for metric, value in run.final.items():
        sent.summary[metric] = value
    place = str(Path(sent.dir).parent) if offline else str(sent.url)
    sent.finish(exit_code=1 if run.status == "failed" else 0)
    return place


def _to_mlflow(run: Run, project: str, folder: Optional[PathLike], offline: Optional[bool]) -> str:
    mlflow = _import("mlflow", "mlflow")
    tracking = _import("mlflow.tracking", "mlflow")
    entities = _import("mlflow.entities", "mlflow")
    configured = None
    if folder is None and tracking.is_tracking_uri_set():
        configured = mlflow.get_tracking_uri()
    if configured and configured.startswith("http") and (offline or not reachable(configured)):
        configured = None
    uri = configured or _local_store(Path(folder or "."))
    client = tracking.MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.get_experiment_by_name(project)
    number = experiment.experiment_id if experiment else client.create_experiment(project)
    begin = _milliseconds(run, "start")
    sent = client.create_run(number, run_name=run.name, start_time=begin)
    name = sent.info.run_id
    longest = 6000  # of a parameter's text in MLflow
    params = [entities.Param(_mlflow_name(k), str(v)[:longest]) for k, v in run.config.items()]
    tags = [entities.RunTag(f"tenon.{k}", str(v)) for k, v in _facts(run).items()]
    metrics = [
        entities.Metric(_mlflow_name(metric), p.value, (begin or 0) + int(p.wall_s * 1000), p.step)
        for metric, series in run.series.items()
        for p in series
    ]
    for i in range(0, len(params), 100):
        client.log_batch(name, params=params[i : i + 100])
    client.log_batch(name, tags=tags)
    for i in range(0, len(metrics), 1000):
        client.log_batch(name, metrics=metrics[i : i + 1000])
    state = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}.get(run.status, "RUNNING")
    client.set_terminated(name, status=state, end_time=_milliseconds(run, "end"))
    return f"{uri} run {name}"


def _local_store(folder: Path) -> str:
    _import("sqlalchemy", "mlflow")  # mlflow-skinny has none, and then no local store
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder.absolute() / 'mlflow.db'}"


def _mlflow_name(name: str) -> str:
    """MLflow allows no brackets and quotes in names."""
    return "".join(c if c.isalnum() or c in "_-./ :" else "_" for c in name)


def _milliseconds(run: Run, key: str) -> Optional[int]:
    from datetime import datetime

    try:
        text = str(run.manifest[key]).replace("Z", "+00:00")
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (KeyError, ValueError):
        return None


def _to_trackio(run: Run, project: str, folder: Optional[PathLike], offline: Optional[bool]) -> str:
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.environ["TRACKIO_DIR"] = str(Path(folder).absolute())
    trackio = _import("trackio", "trackio")
    if folder is not None and str(importlib.import_module("trackio.utils").TRACKIO_DIR) != os.environ["TRACKIO_DIR"]:
        raise TenonError("trackio was imported before with another folder; set TRACKIO_DIR, and leave folder out")
    trackio.init(project=project, name=run.name, config={**run.config, "tenon": _facts(run)}, embed=False)
    for step, values in by_step(run):
        trackio.log(values, step=step)
    trackio.finish()
    return f"trackio project {project}, run {run.name}"


_TRACKERS: Dict[str, Callable[[Run, str, Optional[PathLike], Optional[bool]], str]] = {
    "wandb": _to_wandb,
    "mlflow": _to_mlflow,
    "trackio": _to_trackio,
}
TRACKERS = tuple(_TRACKERS)


def send(
    run: Run,
    to: str,
    project: str = "tenon",
    folder: Optional[PathLike] = None,
    offline: Optional[bool] = None,
) -> str:
    """Sends all metrics, the configuration, seeds and hash of an ended run; returns where it is now.

    ``folder`` is the local store (default: the tracker's own). ``offline`` None looks whether there is a network.
    """
    if to not in _TRACKERS:
        raise TenonError(f"there is no tracker {to!r} (there are: {', '.join(TRACKERS)})")
    if run.status == "unfinished":
        raise TenonError(f"{run.folder} has not ended; send it when it has, or it would be sent twice")
    try:
        return _TRACKERS[to](run, project, folder, offline)
    except TenonError:
        raise
    except Exception as error:  # trackers have no common error
        raise TenonError(f"{to} did not take {run.folder}: {type(error).__name__}: {error}") from error
