"""The reader of TOML against tomllib of Python 3.11, and on what tomllib must refuse, too."""

import math
import unittest

from tenon_runs.errors import UnreadableError
from tenon_runs.toml_lines import parse_lines, parse_value

from .tiny_runs import zoo

try:
    import tomllib
except ImportError:
    tomllib = None

VALUES = [
    "1", "-17", "+3", "1_000", "0", "1.0", "-0.0", "1e-05", "6.02E+23", "3.5e2", "inf", "-inf", "+inf", "nan", "true",
    "false", '"text"', '""', "'C:\\dir'", '"a \\"q\\" # \\\\ \\t \\n \\u00e9 \\U0001F600"', "[]", "[1, 2,3]",
    '["a", "b,c", "]"]', "[[1], [2, 3]]", "[1,]", "{}", '{a = 1, "b c" = [true]}', "{ x = { y = 'z' } }",
]  # fmt: skip
REFUSED = [
    "", "01", "1.", ".5", "1__0", "yes", "[1", "[1 2]", '"a', '"\\x41"', "{a 1}", "{a = 1", "1 2", "'a' b", "[,]", "--1",
]  # fmt: skip


class Values(unittest.TestCase):
    @unittest.skipIf(tomllib is None, "tomllib came with Python 3.11")
    def test_as_tomllib_reads_them(self):
        for text in VALUES:
            with self.subTest(text):
                expected = tomllib.loads("v = " + text)["v"]
                found = parse_value(text)
                self.assertIs(type(found), type(expected))
                if isinstance(expected, float) and math.isnan(expected):
                    self.assertTrue(math.isnan(found))
                else:
                    self.assertEqual(found, expected)

    def test_comments_begin_outside_quotes(self):
        cases = {
            '"a \\" # b"  # origin': ('a " # b', "origin"),
            "'a\\' # it's": ("a\\", "it's"),
            '["#", 1]#x # y': (["#", 1], "x # y"),
            "3": (3, ""),
        }
        for text, (value, comment) in cases.items():
            with self.subTest(text):
                (line,) = parse_lines(f"v = {text}\n", "file")
                self.assertEqual((line.key, line.value, line.comment), ("v", value, comment))
                if tomllib is not None:
                    self.assertEqual(tomllib.loads(f"v = {text}")["v"], value)

    def test_what_is_no_value(self):
        for text in REFUSED:
            with self.subTest(text):
                with self.assertRaises(ValueError):
                    parse_value(text)
                if tomllib is not None:
                    with self.assertRaises(tomllib.TOMLDecodeError):
                        tomllib.loads("v = " + text)

    def test_deep_nesting_is_an_error_and_no_crash(self):
        with self.assertRaisesRegex(UnreadableError, "file:1: not TOML"):
            parse_lines("v = " + "[" * 100000, "file")


@unittest.skipIf(tomllib is None, "tomllib came with Python 3.11")
class Files(unittest.TestCase):
    def flat(self, value, key, out):
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                self.flat(inner, f"{key}.{name}" if key else name, out)
        elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            for i, inner in enumerate(value):
                self.flat(inner, f"{key}[{i}]", out)
        else:
            out[key] = value
        return out

    def test_files_of_all_runs(self):
        files = [p for name in ("config.resolved.toml", "plugins.lock") for p in zoo().glob(f"*/*/{name}")]
        self.assertGreater(len(files), 8)
        for path in files:
            text = path.read_text(encoding="utf-8")
            found = {line.key: line.value for line in parse_lines(text, str(path))}
            self.assertEqual(found, self.flat(tomllib.loads(text), "", {}))
