"""Reader of the TOML that Tenon writes: config.resolved.toml and plugins.lock.

Every key is on a line of its own, and the comment after a value of a configuration is its origin. A table of a list
has its place in the key: ``observe[0].type``. Texts of several lines and dates do not occur in these files; they are
refused.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Tuple

from .errors import UnreadableError

_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_INTEGER = re.compile(r"[+-]?(0|[1-9](_?[0-9])*)$")
_REAL = re.compile(r"[+-]?(0|[1-9](_?[0-9])*)(\.[0-9](_?[0-9])*)?([eE][+-]?[0-9](_?[0-9])*)?$")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WORD = re.compile(r"[^\s,\]}]+")


class Line(NamedTuple):
    """One value: its key from the root, the text after ``=``, the value, and the comment."""

    key: str
    text: str
    value: Any
    comment: str


class _Scanner:
    """Reads one value from the begin of a text."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def skip(self) -> str:
        while self.peek() in (" ", "\t") and self.peek():
            self.at += 1
        return self.peek()

    def take(self, expected: str) -> None:
        if self.skip() != expected:
            raise ValueError(f"expected {expected!r} in {self.text!r}")
        self.at += 1

    def string(self) -> str:
        quote = self.peek()
        self.at += 1
        out: List[str] = []
        while True:
            c = self.peek()
            self.at += 1
            if not c:
                raise ValueError(f"a text does not end: {self.text!r}")
            if c == quote:
                return "".join(out)
            if c != "\\" or quote == "'":
                out.append(c)
                continue
            kind = self.peek()
            self.at += 1
            if kind in _ESCAPES:
                out.append(_ESCAPES[kind])
            elif kind in ("u", "U"):
                digits = self.text[self.at : self.at + (4 if kind == "u" else 8)]
                out.append(chr(int(digits, 16)))
                self.at += len(digits)
            else:
                raise ValueError(f"there is no escape \\{kind}")

    def array(self) -> List[Any]:
        self.take("[")
        out: List[Any] = []
        while self.skip() != "]":
            if out:
                self.take(",")
                if self.skip() == "]":
                    break
            out.append(self.value())
        self.take("]")
        return out

    def table(self) -> Dict[str, Any]:
        self.take("{")
        out: Dict[str, Any] = {}
        while self.skip() != "}":
            if out:
                self.take(",")
                self.skip()
            key = self.key()
            self.take("=")
            out[key] = self.value()
        self.take("}")
        return out

    def key(self) -> str:
        if self.peek() in ('"', "'") and self.peek():
            return self.string()
        found = _BARE.match(self.text, self.at)
        if not found:
            raise ValueError(f"expected a key in {self.text!r}")
        self.at = found.end()
        return found.group()

    def value(self) -> Any:
        first = self.skip()
        if first in ('"', "'") and first:
            if self.text[self.at : self.at + 3] == first * 3:
                raise ValueError("texts of several lines do not occur in files of Tenon")
            return self.string()
        if first == "[":
            return self.array()
        if first == "{":
            return self.table()
        found = _WORD.match(self.text, self.at)
        word = found.group() if found else ""
        self.at += len(word)
        if word in ("true", "false"):
            return word == "true"
        if word.lstrip("+-") in ("inf", "nan") and len(word) <= 4:
            return float(word)
        if _INTEGER.match(word):
            return int(word.replace("_", ""))
        if _REAL.match(word):
            return float(word.replace("_", ""))
        raise ValueError(f"{word!r} is no value")


def parse_value(text: str) -> Any:
    """The value that a text of TOML stands for; ValueError where it is none."""
    scanner = _Scanner(text)
    value = scanner.value()
    if scanner.skip():
        raise ValueError(f"more than one value: {text!r}")
    return value


def _split_comment(line: str) -> Tuple[str, str]:
    """The line before the first ``#`` outside quotes, and the comment after it."""
    quote = ""
    i = 0
    while i < len(line):
        c = line[i]
        if quote:
            if c == "\\" and quote == '"':
                i += 1
            elif c == quote:
                quote = ""
        elif c in "\"'":
            quote = c
        elif c == "#":
            return line[:i].strip(" \t\r"), line[i + 1 :].strip(" \t\r")
        i += 1
    return line.strip(" \t\r"), ""


def parse_lines(text: str, where: str) -> List[Line]:
    """All values of a file, in its order. ``where`` names it in errors."""
    lines: List[Line] = []
    places: Dict[str, int] = {}
    table = ""
    for number, raw in enumerate(text.split("\n"), 1):
        content, comment = _split_comment(raw)
        if not content:
            continue
        if content.startswith("[[") and content.endswith("]]"):
            name = content[2:-2].strip()
            table = f"{name}[{places.get(name, 0)}]"
            places[name] = places.get(name, 0) + 1
            continue
        if content.startswith("[") and content.endswith("]"):
            table = content[1:-1].strip()
            continue
        key, equals, rest = content.partition("=")
        try:
            if not equals:
                raise ValueError("expected KEY = VALUE")
            value = parse_value(rest)
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"{where}:{number}: not TOML as Tenon writes it: {error}") from None
        name = key.strip(" \t")
        lines.append(Line(f"{table}.{name}" if table else name, rest.strip(" \t"), value, comment))
    return lines
