r"""Which regular expressions certainly compile. The engine compiles them with RE2 while it runs, when it is too late to
complain, so a pattern is read here first, and what is not in this grammar is refused:

    pattern   a|b   ^ $   .   literals   \. and other escaped signs   \d \w \s \b \D \W \S \B \t \n \r
    sets      [abc]  [a-z0-9_]  [^,;]  [[:alpha:]]  [\d\s]
    groups    (a)  (?:a)  (?i) at the very start
    repeated  * + ? {3} {2,} {2,5}, each with ? after it to take as little as possible
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpsql.limits import LONGEST_PATTERN

MOST_REPEATS = 100
LARGEST = 1_000
"""How many single characters the pattern may stand for once its repetitions are written out."""

ESCAPE = r"\\(?:[dDwWsStnrfv]|[!-/:-@\[-^`{-~])"
CLASS = r"\[:\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]"
MEMBER = rf"(?:{CLASS}|{ESCAPE}|[^\\\[\]\x00])"
TOKEN = re.compile(
    rf"""(?P<set>\[\^?+(?P<members>{MEMBER}+)\])
    |(?P<open>\((?:\?:)?(?!\?))
    |(?P<close>\))
    |(?P<either>\|)
    |(?P<repeat>(?:[*+?]|\{{(?P<least>\d{{1,3}})(?P<most>,(?:\d{{1,3}})?)?\}})\??)
    |(?P<edge>[\^$]|\\[bB])
    |(?P<one>{ESCAPE}|[^\\\[\](){{}}|*+?^$\x00])""",
    re.VERBOSE | re.DOTALL,
)
RANGE = re.compile(rf"({MEMBER})-({MEMBER})|({MEMBER})", re.DOTALL)


class BadPattern(Exception):
    """The pattern is outside of the grammar; the text says where."""


@dataclass
class Group:
    """An open group: how large it is so far, and how large its last item is, which a repetition multiplies."""

    size: int = 0
    last: int | None = None

    def add(self, size: int) -> None:
        self.size += size
        self.last = size


def check_pattern(pattern: str) -> int:
    """How many groups the pattern captures; raises BadPattern if it does not certainly compile.

    >>> check_pattern("^(a|b)+-[0-9]{2,4}$")
    1
    """
    if len(pattern) > LONGEST_PATTERN:
        raise BadPattern(f"it is longer than {LONGEST_PATTERN} characters")
    rest = pattern.removeprefix("(?i)")
    position, captured, groups = 0, 0, [Group()]
    while position < len(rest):
        token = TOKEN.match(rest, position)
        if token is None:
            raise BadPattern(f"{rest[position : position + 8]!r} is not understood")
        captured += token["open"] == "("
        _read(token, groups)
        position = token.end()
    if len(groups) > 1:
        raise BadPattern("a ( is not closed")
    return captured


def _read(token: re.Match[str], groups: list[Group]) -> None:
    match token.lastgroup:
        case "open":
            groups.append(Group())
        case "close":
            if len(groups) == 1:
                raise BadPattern("a ) was never opened")
            groups[-2].add(groups.pop().size + 1)
        case "repeat":
            _repeat(token, groups[-1])
        case "either" | "edge":
            groups[-1].last = None
        case "set":
            _check_set(token["members"])
            groups[-1].add(1)
        case _:
            groups[-1].add(1)
    if groups[0].size > LARGEST or groups[-1].size > LARGEST:
        raise BadPattern("it is too large")


def _repeat(token: re.Match[str], group: Group) -> None:
    if group.last is None:
        raise BadPattern(f"there is nothing that {token['repeat']} could repeat")
    least, most = int(token["least"] or 1), int((token["most"] or "").strip(",") or token["least"] or 1)
    if not least <= most <= MOST_REPEATS:
        raise BadPattern(f"{token['repeat']} does not count up, or counts above {MOST_REPEATS}")
    group.size += group.last * (most - 1) if most else 0
    group.last = None  # RE2 has no repetition of a repetition


def _check_set(members: str) -> None:
    for first, last, _single in RANGE.findall(members):
        if first and (len(first) > 1 or len(last) > 1 or first > last):
            raise BadPattern(f"{first}-{last} is no range of characters")
