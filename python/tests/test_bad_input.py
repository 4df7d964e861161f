"""Damaged and foreign files: what Python refuses, the program refuses, and the other way round."""

import json
import shutil
import subprocess
import unittest
import warnings

import tenon_runs
from tenon_runs.errors import RunWarning, UnreadableError
from tenon_runs.json_lines import parse_metrics

from .tiny_runs import PROGRAM, copy_of, scratch, zoo

GOOD = {"step": 4, "split": "x", "name": "y", "value": 1.5, "wall_s": 1, "samples": 1, "tokens": 1, "bytes_sent": 0}


def line(**changes):
    return json.dumps({k: v for k, v in {**GOOD, **changes}.items() if v != "absent"})


# Name of the case -> a line before the last one, and what the error says; None: it is read.
LINES = {
    "foreign object": ('{"loss": 3, "epoch": 1}', '"split" is missing or no text'),
    "list": ("[1, 2]", "expected an object"),
    "no JSON": ("step 3 loss 4", "not a metric line"),
    "cut": ('{"step": 4, "spl', "not a metric line"),
    "two on a line": (line() + line(), "not a metric line"),
    "no step": (line(step="absent"), '"step" is missing'),
    "no bytes": (line(bytes_sent="absent"), '"bytes_sent" is missing'),
    "name is a number": (line(name=3), '"name" is missing or no text'),
    "value is a word": (line(value="high"), "expected a number"),
    "value is a truth": (line(value=True), "expected a number"),
    "huge step": (line(step=1e16), '"step" is not a count'),
    "step is NaN": (line(step=None), '"step" is not a count'),
    "bare NaN": (line().replace("1.5", "NaN"), "no JSON"),
    "too large": (line().replace("1.5", "1e999"), "too large"),
    "deep": ("[" * 100000, "not a metric line"),
    "text NaN": (line(value="NaN"), None),
    "text infinity": (line(value="Infinity"), None),
    "null": (line(value=None), None),
    "more keys": (line(unit="m", rank=[1]), None),
    "empty line": (" \t", None),
    "carriage return": (line() + "\r", None),
    "whole number": (line(value=3), None),
}


class Lines(unittest.TestCase):
    def test_every_case_as_the_program_judges_it(self):
        run = copy_of("plain", "lines")
        path = run / "2/metrics.jsonl"
        text = path.read_text()
        for name, (broken, expected) in LINES.items():
            with self.subTest(name):
                path.write_text(broken + "\n" + text)
                done = subprocess.run([PROGRAM, "report", str(run), "--json"], capture_output=True, encoding="utf-8")
                if expected is None:
                    tenon_runs.load(run)
                    self.assertEqual(done.returncode, 0, done.stderr)
                else:
                    with self.assertRaisesRegex(UnreadableError, r"metrics\.jsonl:1: not a metric line: .*"):
                        tenon_runs.load(run)
                    with self.assertRaisesRegex(UnreadableError, expected):
                        tenon_runs.load(run)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn("metrics.jsonl:1: not a metric line", done.stderr)

    def test_a_last_line_with_its_end_is_not_cut_short(self):
        run = copy_of("plain", "last-line")
        with open(run / "2/metrics.jsonl", "ab") as file:
            file.write(b'{"step": 5, "spl\n')
        with self.assertRaisesRegex(UnreadableError, "not a metric line"):
            tenon_runs.load(run)
        done = subprocess.run([PROGRAM, "report", str(run), "--json"], capture_output=True, encoding="utf-8")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("not a metric line", done.stderr)

    def test_bytes_that_are_no_text(self):
        run = copy_of("plain", "bytes")
        path = run / "2/metrics.jsonl"
        path.write_bytes(b"\xff\xfe\x00\n" + path.read_bytes())
        with self.assertRaisesRegex(UnreadableError, r"metrics\.jsonl:1: not a metric line"):
            tenon_runs.load(run)

    def test_a_file_cut_at_every_byte_of_its_last_line_is_read(self):
        text = (zoo() / "plain/2/metrics.jsonl").read_bytes()
        whole, _ = parse_metrics(text, "file")
        lines = text.count(b"\n")
        begin = text.rstrip(b"\n").rfind(b"\n") + 1
        for cut in range(begin + 1, len(text) - 1):
            series, notes = parse_metrics(text[:cut], "file")
            self.assertEqual(notes, [f"file:{lines}: the last line is cut short and was dropped"])
            self.assertEqual(sum(map(len, series.values())), lines - 1)
        series, notes = parse_metrics(text[:-1], "file")  # only the newline is missing
        self.assertEqual((series, notes), (whole, []))


class Files(unittest.TestCase):
    def refused(self, folder, pattern):
        with self.assertRaisesRegex(UnreadableError, pattern):
            tenon_runs.load(folder)

    def test_no_run(self):
        self.refused(scratch() / "nowhere", "is no folder")
        self.refused(zoo() / "empty", "is no run")
        with self.assertRaisesRegex(UnreadableError, "there is no run below"):
            tenon_runs.runs(zoo() / "empty")
        with self.assertRaisesRegex(UnreadableError, "is no folder"):
            tenon_runs.runs(scratch() / "nowhere")

    def test_damaged_files(self):
        cases = [
            ("summary.json", b"{", r"summary\.json: not valid JSON"),
            ("summary.json", b"[]", r"summary\.json: expected an object"),
            ("summary.json", b"{}", r'summary\.json: "status" is missing or no text'),
            ("summary.json", b'{"status": "completed", "steps": "many"}', r"summary\.json: expected a number"),
            ("manifest.json", b"\xff", r"manifest\.json: not valid JSON"),
            ("manifest.json", None, r"cannot read manifest\.json \(provenance\).*log\.rank0\.txt"),
            ("config.resolved.toml", b"[run]\nname = ", r"config\.resolved\.toml:2: not TOML"),
            ("config.resolved.toml", b"nonsense", r"config\.resolved\.toml:1: .*KEY = VALUE"),
            ("plugins.lock", b"\xff", r"plugins\.lock: not UTF-8"),
        ]
        for number, (name, content, pattern) in enumerate(cases):
            with self.subTest(name=name, content=content):
                run = copy_of("plain", f"damaged{number}")
                path = run / "2" / name
                path.unlink() if content is None else path.write_bytes(content)
                self.refused(run, pattern)
                done = subprocess.run([PROGRAM, "report", str(run), "--json"], capture_output=True)
                self.assertNotEqual(done.returncode, 0)

    def test_a_run_without_lock_is_read_with_a_note(self):
        run = copy_of("plain", "unlocked")
        (run / "2/plugins.lock").unlink()
        self.assertIn("the plugins cannot be verified", tenon_runs.load(run).notes[0])

    def test_one_bad_run_among_others_is_left_out_with_a_warning(self):
        run = copy_of("plain", "mixed")
        copy = run.parent / "bad"
        shutil.copytree(run, copy, symlinks=True)
        (copy / "2/summary.json").write_text("{")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = tenon_runs.runs(run.parent)
        self.assertEqual([r.label for r in found], ["run/2"])
        self.assertEqual([w.category for w in caught], [RunWarning])
        self.assertIn("bad/2/summary.json", str(caught[0].message))
