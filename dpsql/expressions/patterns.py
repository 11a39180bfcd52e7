"""LIKE, ILIKE, SIMILAR TO and regular expressions. Patterns are constants that are known to compile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import test
from dpsql.expressions.logic import truth
from dpsql.expressions.text import call_sql, grown, need_length, need_text
from dpsql.expressions.tree import Function, Misfit, Written
from dpsql.limits import LONGEST_PATTERN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.properties import Properties

# -- regex -------------------------------------------------------------------------------------------------------------
# Which regular expressions certainly compile. The engine compiles them with RE2 while it runs, when it is too late to
# complain, so a pattern is read here first, and what is not in this grammar is refused:
#
#     pattern   a|b   ^ $   .   literals   \. and other escaped signs   \d \w \s \b \D \W \S \B \t \n \r
#     sets      [abc]  [a-z0-9_]  [^,;]  [[:alpha:]]  [\d\s]
#     groups    (a)  (?:a)  (?i) at the very start
#     repeated  * + ? {3} {2,} {2,5}, each with ? after it to take as little as possible

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
    """The pattern is outside the supported grammar; the message says where."""


@dataclass
class Group:
    """An open group: how large it is so far, and how large its last item is, which a repetition multiplies."""

    size: int = 0
    last: int | None = None

    def add(self, size: int) -> None:
        self.size += size
        self.last = size


def check_pattern(pattern: str) -> int:
    """The number of groups that the pattern captures; raises BadPattern unless it is certain to compile.

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
            raise BadPattern(f"{rest[position : position + 8]!r} is not supported")
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
        raise BadPattern(f"there is nothing for {token['repeat']} to repeat")
    least, most = int(token["least"] or 1), int((token["most"] or "").strip(",") or token["least"] or 1)
    if not least <= most <= MOST_REPEATS:
        raise BadPattern(f"{token['repeat']} has its limits reversed, or repeats more than {MOST_REPEATS} times")
    group.size += group.last * (most - 1) if most else 0
    group.last = None  # RE2 has no repetition of a repetition


def _check_set(members: str) -> None:
    for first, last, _single in RANGE.findall(members):
        if first and (len(first) > 1 or len(last) > 1 or first > last):
            raise BadPattern(f"{first}-{last} is not a range of characters")


# -- patterns ----------------------------------------------------------------------------------------------------------

FLAGS = ("c", "i", "s", "m")
"""Case-sensitive or not, `.` matches a new line too, ^ and $ match at lines."""


def like_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    text, *constants = arguments
    need_text(name, text)
    if len(constants) not in (1, 2) or not all(isinstance(properties.constant, str) for properties in constants):
        raise Misfit(f"{name} takes a text and a constant pattern")
    need_length(name, constants[0], LONGEST_PATTERN)
    if len(constants) == 2:
        check_escapes(name, *(str(properties.constant) for properties in constants))
    return truth(nullable=text.nullable)


def check_escapes(name: str, pattern: str, escape: str) -> None:
    """The engine finds a lone escape at the end only when a row gets that far."""
    if len(escape) != 1 or not escape.isascii():
        raise Misfit(f"{name} takes one plain character after ESCAPE")
    if pattern.replace(escape * 2, "").endswith(escape):
        raise Misfit(f"the pattern of {name} ends with {escape}, which escapes nothing")


def like_sql(operator: str, arguments: Sequence[Written]) -> Term:
    return test(operator, *(argument.sql for argument in arguments))


def regex_properties(name: str, arguments: Sequence[Properties]) -> Properties:
    check_regex(name, arguments[:2])
    flags = arguments[2].constant if len(arguments) == 3 else ""
    if len(arguments) > 3 or not isinstance(flags, str) or not set(flags) <= set(FLAGS):
        raise Misfit(f"{name} takes a text, a constant pattern and the flags {', '.join(FLAGS)}")
    return truth(nullable=arguments[0].nullable)


def check_regex(name: str, arguments: Sequence[Properties]) -> int:
    """How many groups the constant pattern captures."""
    text, pattern = arguments
    need_text(name, text)
    if not isinstance(pattern.constant, str):
        raise Misfit(f"{name} takes a text and a constant pattern")
    try:
        return check_pattern(pattern.constant)
    except BadPattern as problem:
        raise Misfit(f"{name} cannot use this pattern: {problem}") from None


def extract_properties(arguments: Sequence[Properties]) -> Properties:
    captured = check_regex("REGEXP_EXTRACT", arguments[:2])
    group = arguments[2].constant if len(arguments) == 3 else 0
    if len(arguments) > 3 or not isinstance(group, int) or not 0 <= group <= captured:
        raise Misfit(f"REGEXP_EXTRACT takes the number of a group of the pattern, up to {captured}")
    return grown(arguments[0].nullable, arguments[0].growth)


def extract_sql(arguments: Sequence[Written]) -> Term:
    return call_sql("regexp_extract", arguments)


def glob_properties(arguments: Sequence[Properties]) -> Properties:
    """Only * and ? are read as the engine reads them; sets and escapes have rules of their own."""
    text, pattern = arguments
    need_text("GLOB", text)
    if not isinstance(pattern.constant, str) or set(pattern.constant) & set("[]\\"):
        raise Misfit("GLOB takes a text and a constant pattern of * and ?")
    need_length("GLOB", pattern, LONGEST_PATTERN)
    return truth(nullable=text.nullable)


def glob_sql(arguments: Sequence[Written]) -> Term:
    return test("glob", *(argument.sql for argument in arguments))


def replace_properties(arguments: Sequence[Properties]) -> Properties:
    check_regex("REGEXP_REPLACE", arguments[:2])
    new = arguments[2].constant if len(arguments) > 2 else None
    flags = arguments[3].constant if len(arguments) == 4 else ""
    known = isinstance(flags, str) and set(flags) <= {*FLAGS, "g"}
    if len(arguments) > 4 or not isinstance(new, str) or "\\" in new or not known:
        raise Misfit("REGEXP_REPLACE takes a text, a constant pattern and a constant text without \\, and flags")
    # At every character, before it and behind it, there may be something to put in.
    return grown(arguments[0].nullable, arguments[0].growth * (1 + 2 * len(new.encode())))


def _like(name: str) -> Function:
    return Function(name, f"text {name} 'pattern'", partial(like_properties, name), partial(like_sql, name.lower()))


def _regex(name: str, engine: str, takes: str) -> Function:
    return Function(name, takes, partial(regex_properties, name), partial(call_sql, engine))


FUNCTIONS = (
    _like("LIKE"),
    _like("ILIKE"),
    _regex("SIMILAR TO", "regexp_full_match", "text SIMILAR TO 'pattern'"),
    _regex("REGEXP_MATCHES", "regexp_matches", "REGEXP_MATCHES(text, 'pattern' [, 'flags'])"),
    _regex("REGEXP_FULL_MATCH", "regexp_full_match", "REGEXP_FULL_MATCH(text, 'pattern' [, 'flags'])"),
    Function("GLOB", "text GLOB 'pattern'", glob_properties, glob_sql),
    Function(
        "REGEXP_REPLACE",
        "REGEXP_REPLACE(text, 'pattern', 'new' [, 'flags'])",
        replace_properties,
        partial(call_sql, "regexp_replace"),
    ),
    Function("REGEXP_EXTRACT", "REGEXP_EXTRACT(text, 'pattern' [, group])", extract_properties, extract_sql),
)
