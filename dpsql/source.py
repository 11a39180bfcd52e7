"""Offsets in the analyst's text, turned into a line with a caret under the offending piece."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDEST_LINE = 160
LEADING_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """The characters `start` to `end` (both included, from 0) of `text`."""

    text: str
    start: int
    end: int

    @property
    def marked(self) -> str:
        return self.text[self.start : self.end + 1]

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        return self.start - self._line_start + 1

    @property
    def _line_start(self) -> int:
        return self.text.rfind("\n", 0, self.start) + 1

    def drawn(self) -> str:
        """
        >>> print(Place("SELECT SUM(x)", 11, 11).drawn())
        LINE 1: SELECT SUM(x)
                           ^
        """
        line_end = self.text.find("\n", self.start)
        line = self.text[self._line_start : None if line_end < 0 else line_end]
        first = self.start - self._line_start
        width = max(1, min(self.end, self._line_start + len(line) - 1) - self.start + 1)
        # A very long line is cut so that the caret stays in sight.
        cut = max(0, min(first - WIDEST_LINE // 2, len(line) - WIDEST_LINE))
        shown = line[cut : cut + WIDEST_LINE].replace("\t", " ")
        label = f"LINE {self.line}: "
        carets = "^" * min(width, max(1, len(shown) - (first - cut)))
        return f"{label}{shown}\n{' ' * (len(label) + first - cut)}{carets}"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the closest known names, or all of them when there are few.

    >>> did_you_mean("amuont", ["amount", "region"])
    'did you mean "amount"?'
    """
    names = sorted(known)
    close = get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f'"{match}"' for match in close) + "?"
    if names and len(names) <= 12:
        return "there is " + ", ".join(f'"{known_name}"' for known_name in names)
    return None


def split_explain(sql: str) -> tuple[bool, str]:
    """Whether the text is EXPLAIN <query>, and the query; blanks keep its places as they are in the text.

    >>> split_explain("EXPLAIN SELECT 1")
    (True, '        SELECT 1')
    """
    found = LEADING_EXPLAIN.match(sql)
    if found is None:
        return False, sql
    blank = re.sub(r"[^\n]", " ", sql[: found.end()])
    return True, (blank + sql[found.end() :])
