"""Sending: what the trackers then hold, read without the package under test. Absent trackers skip their test."""

import importlib.util
import json
import math
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import tenon_runs
from tenon_runs.errors import PackageMissingError, TenonError
from tenon_runs.trackers import TRACKERS, reachable

from .test_command_line import call
from .tiny_runs import scratch, zoo


def lines_of(run: Path):
    """step -> metric -> value, from metrics.jsonl."""
    steps = {}
    for text in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        value = math.nan if line["value"] is None else line["value"]
        steps.setdefault(line["step"], {})[f"{line['split']}/{line['name']}"] = value
    return steps


def needs(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def without_network(*arguments, **environment):
    """A proxy that is not there stands for no network."""
    proxy = "http://127.0.0.1:9"
    quiet = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "WANDB_SILENT": "true", "HOME": str(scratch())}
    return call(*arguments, cwd=scratch(), **{**quiet, **environment})


def wandb_records(path: Path):
    """The records of a .wandb file: a header of 7 bytes, then the log format of LevelDB in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts = path.read_bytes(), 7, []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record


class Sent(unittest.TestCase):
    @needs("wandb")
    def test_wandb(self):
        for name in ("plain", "nan"):
            run, folder = tenon_runs.load(zoo() / name), scratch() / f"wandb-{name}"
            place = without_network("send", zoo() / name, "--to", "wandb", "--project", "p", "--folder", folder,
                                    WANDB_BASE_URL="http://127.0.0.1:9").strip().split("\n")[-1]  # fmt: skip
            files = list(Path(place).glob("*.wandb"))
            self.assertEqual(len(files), 1)
            found, config = {}, {}
            for record in wandb_records(files[0]):
                items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
                if items:
                    found[items["_step"]] = {k: v for k, v in items.items() if not k.startswith("_")}
                for update in [*record.run.config.update, *record.config.update]:
                    config[update.key or "/".join(update.nested_key)] = json.loads(update.value_json)
            told = lines_of(run.folder)
            self.assertEqual(sorted(found), sorted(told))
            for step, values in told.items():
                self.assertEqual({k: str(float(v)).lower() for k, v in found[step].items()},
                                 {k: str(float(v)).lower() for k, v in values.items()})  # fmt: skip
            self.assertEqual(config["optimizer.lr"], run.config["optimizer.lr"])
            self.assertEqual(config["tenon"]["manifest.seed"], 2 if name == "plain" else 1)

    @needs("mlflow", "sqlalchemy")
    def test_mlflow(self):
        folder = scratch() / "mlflow"
        for name in ("plain", "nan", "failed"):
            without_network("send", zoo() / name, "--to", "mlflow", "--project", "p", "--folder", folder)
        with sqlite3.connect(folder / "mlflow.db") as base:
            query = "select value, run_uuid, status from runs join tags using (run_uuid) where key = 'tenon.folder'"
            found = {Path(folder).parent.name: (uuid, status) for folder, uuid, status in base.execute(query)}
            self.assertEqual({name: status for name, (_, status) in found.items()},
                             {"plain": "FINISHED", "nan": "FINISHED", "failed": "FAILED"})  # fmt: skip
            runs = {name: uuid for name, (uuid, _) in found.items()}
            for name in ("plain", "nan"):
                found = {}
                query = "select step, key, value, is_nan from metrics where run_uuid = ?"
                for step, key, value, is_nan in base.execute(query, [runs[name]]):
                    found.setdefault(step, {})[key] = "nan" if is_nan else value
                told = lines_of(tenon_runs.load(zoo() / name).folder)
                told = {s: {k: "nan" if v != v else v for k, v in values.items()} for s, values in told.items()}
                self.assertEqual(found, told)
            params = dict(base.execute("select key, value from params where run_uuid = ?", [runs["plain"]]))
            tags = dict(base.execute("select key, value from tags where run_uuid = ?", [runs["plain"]]))
        run = tenon_runs.load(zoo() / "plain")
        self.assertEqual(len(params), len(run.config))
        self.assertEqual((params["optimizer.lr"], params["run.seed"]), ("0.003", "2"))
        self.assertEqual(tags["tenon.weights_hash"], run.weights_hash)

    @needs("trackio")
    def test_trackio(self):
        folder = scratch() / "trackio"
        for attempt in ("1", "2"):  # of one name
            run = zoo() / "plain" / attempt
            without_network("send", run, "--to", "trackio", "--project", "p", "--folder", folder)
        with sqlite3.connect(folder / "p.db") as base:
            configs = {run: json.loads(text) for run, text in base.execute("select run_id, config from configs")}
            self.assertEqual(sorted(config["run.seed"] for config in configs.values()), [1, 2])
            for run, config in configs.items():
                rows = base.execute("select step, metrics from metrics where run_id = ?", [run])
                found = {step: json.loads(text) for step, text in rows}
                self.assertEqual(found, lines_of(zoo() / "plain" / str(config["run.seed"])))
                self.assertEqual(config["optimizer.lr"], 0.003)


class Refused(unittest.TestCase):
    def test_absent_packages_say_what_to_install(self):
        run = tenon_runs.load(zoo() / "plain")
        for tracker in TRACKERS:
            with self.subTest(tracker), mock.patch.dict(sys.modules, {tracker: None}):
                with self.assertRaisesRegex(PackageMissingError, f"pip install {tracker}"):
                    tenon_runs.send(run, tracker, folder=scratch() / "unsent")
        blocked = "import sys; sys.modules['wandb'] = None; from tenon_runs.command_line import main; "
        code = blocked + f"sys.exit(main(['send', {str(zoo() / 'plain')!r}, '--to', 'wandb']))"
        env = {**os.environ, "PYTHONPATH": str(Path(tenon_runs.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, encoding="utf-8")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tenon_runs: sending to wandb needs a package: pip install wandb", done.stderr)

    def test_a_run_without_end(self):
        with self.assertRaisesRegex(TenonError, "has not ended"):
            tenon_runs.send(tenon_runs.load(zoo() / "unfinished"), "mlflow")

    def test_an_unknown_tracker(self):
        with self.assertRaisesRegex(TenonError, r"no tracker 'paper' \(there are: wandb, mlflow, trackio\)"):
            tenon_runs.send(tenon_runs.load(zoo() / "plain"), "paper")

    def test_reachable(self):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            port = server.getsockname()[1]
            self.assertTrue(reachable(f"http://127.0.0.1:{port}/path"))
        self.assertFalse(reachable(f"http://127.0.0.1:{port}/path"))
        self.assertFalse(reachable("http://127.0.0.1:99999"))

    def test_nothing_is_imported_before_it_is_used(self):
        names = ("pandas", "numpy", "safetensors", "wandb", "mlflow", "trackio")
        code = f"import sys, tenon_runs; print([m for m in {names} if m in sys.modules])"
        env = {**os.environ, "PYTHONPATH": str(Path(tenon_runs.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
        self.assertEqual(subprocess.check_output([sys.executable, "-c", code], env=env, encoding="utf-8"), "[]\n")
