"""The package itself: Python 3.9, its version, and the wheel."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

import tenon_runs

from .tiny_runs import ROOT, scratch, tenon

SOURCES = sorted((ROOT / "python/tenon_runs").glob("*.py"))


class Source(unittest.TestCase):
    def test_is_python_3_9(self):
        self.assertGreater(len(SOURCES), 10)
        for path in SOURCES:
            tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
            # Annotations with | are evaluated before Python 3.10 unless they are only texts.
            if any(isinstance(node, (ast.AnnAssign, ast.arg)) for node in ast.walk(tree)):
                self.assertIn("from __future__ import annotations", path.read_text(encoding="utf-8"), path)

    @unittest.skipUnless(hasattr(sys, "stdlib_module_names"), "Python 3.10 began to name the modules of its library")
    def test_imports_only_the_standard_library_at_the_top(self):
        for path in SOURCES:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module]
                for name in names:
                    self.assertIn(name.split(".")[0], sys.stdlib_module_names, path)

    def test_version_is_the_program_s(self):
        self.assertEqual(tenon("--version").split()[1], tenon_runs.__version__)


def why_no_wheel():
    for name in ("pip", "setuptools"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    version = importlib.metadata.version("setuptools")
    new = tuple(int(n) for n in re.findall(r"\d+", version)[:2]) >= (70, 1)
    return None if new or importlib.util.find_spec("wheel") else "neither wheel nor setuptools 70.1 is installed"


class Wheel(unittest.TestCase):
    @unittest.skipIf(why_no_wheel(), why_no_wheel())
    def test_build_and_use(self):
        source, out = scratch() / "source", scratch() / "wheel"
        shutil.copytree(ROOT / "python", source, ignore=shutil.ignore_patterns("__pycache__", "tests", "*.egg-info"))
        command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-q"]
        done = subprocess.run(
            [*command, "-w", str(out), str(source)], capture_output=True, encoding="utf-8", timeout=120
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        wheels = list(out.iterdir())
        self.assertEqual([w.name for w in wheels], [f"tenon_runs-{tenon_runs.__version__}-py3-none-any.whl"])
        with zipfile.ZipFile(wheels[0]) as archive:
            names = archive.namelist()
            metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
        inside = sorted(n for n in names if n.startswith("tenon_runs/"))
        self.assertEqual(inside, sorted([f"tenon_runs/{p.name}" for p in SOURCES] + ["tenon_runs/py.typed"]))
        self.assertIn("Requires-Python: >=3.9", metadata)
        self.assertEqual(re.findall(r"^Requires-Dist: (?!.*extra)", metadata, re.M), [])
        env = {**os.environ, "PYTHONPATH": str(wheels[0]), "PYTHONDONTWRITEBYTECODE": "1"}
        text = subprocess.check_output(
            [sys.executable, "-m", "tenon_runs", "--version"], env=env, cwd=out, encoding="utf-8"
        )
        self.assertEqual(text, f"tenon_runs {tenon_runs.__version__}\n")
