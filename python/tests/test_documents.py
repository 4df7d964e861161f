"""docs/python.md and docs/runs.ipynb: their code runs, and prints what they show."""

import json
import unittest

from .documents import blocks, cells, run_python, run_shell, same, workplace
from .tiny_runs import ROOT, scratch

PAGE = ROOT / "docs/python.md"
NOTEBOOK = ROOT / "docs/runs.ipynb"


class Page(unittest.TestCase):
    def test_every_block(self):
        missing = set()
        printed = None
        names = {}
        languages = []
        with workplace(scratch() / "page") as environment:
            for block in blocks(PAGE.read_text(encoding="utf-8")):
                where = f"docs/python.md:{block.line}"
                languages.append(block.language)
                if block.language == "text":
                    if printed is not None:
                        self.assertTrue(same(block.text, printed), f"{where}: the block before printed\n{printed}")
                    printed = None
                elif block.missing():
                    missing.update(block.missing())
                    printed = None
                elif block.language == "toml":
                    with open(block.file, "w", encoding="utf-8") as file:
                        file.write(block.text)
                elif block.language == "python":
                    printed = run_python(block.text, names, where)
                elif block.language == "sh":
                    printed = run_shell(block.text, environment)
                else:
                    self.fail(f"{where}: a block of the language '{block.language}', which nothing runs")
        self.assertGreaterEqual(languages.count("python"), 6)
        self.assertGreaterEqual(languages.count("sh"), 5)
        if missing:
            self.skipTest(f"all other blocks ran; some need packages that are absent: {', '.join(sorted(missing))}")


class Notebook(unittest.TestCase):
    def test_every_cell(self):
        notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
        self.assertEqual((notebook["nbformat"], notebook["nbformat_minor"]), (4, 5))
        found = cells(notebook)
        self.assertGreaterEqual(sum(bool(cell.stored) and not cell.varies for cell in found), 3)
        names = {}
        with workplace(scratch() / "notebook"):
            for number, cell in enumerate(found, 1):
                text = run_python(cell.source, names, f"runs.ipynb, cell {number}")
                if not cell.varies:
                    self.assertEqual(text, cell.stored, f"cell {number}; python3 -m tests.documents writes it anew")
                self.assertEqual(bool(text), bool(cell.stored))


class Machinery(unittest.TestCase):
    """That a wrong document fails."""

    def test_a_wrong_output_is_seen(self):
        self.assertTrue(same("a ... c\n", "a b c\n"))
        self.assertFalse(same("a b\n", "a c\n"))
        self.assertFalse(same("a\n", ""))

    def test_an_error_in_a_block_is_seen(self):
        with self.assertRaises(NameError):
            run_python("print(nothing)", {}, "x")
        with self.assertRaisesRegex(AssertionError, "exit status 3"):
            run_shell("exit 3; true", {})

    def test_the_last_expression_of_a_cell_is_shown(self):
        self.assertEqual(run_python("a = 1\nprint('x')\na + 1", {}, "x"), "x\n2\n")
