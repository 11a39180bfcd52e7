"""Why a function is not in the table, said so that the analyst knows what to write instead."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.elsewhere import INSTEAD, written_instead
from dpsql.expressions.table import FUNCTIONS

if TYPE_CHECKING:
    from dpsql.source import Place

CHANCE = ("the answer would depend on chance", "leave it out; dpsql adds the noise itself")
CLOCK = ("the answer would depend on when it is asked", "write the date itself: DATE '2024-01-31'")
STATE = ("the answer would depend on what was asked before", "leave it out")
SESSION = ("the answer would depend on who asks and where", "write the value itself")
TIMES = (
    "an interval is only added to a date or taken from one",
    "write  day + INTERVAL 3 MONTH  or  DATE_DIFF('day', a, b)",
)
WINDOW = "compute it in a subquery, PARTITION BY the unit; or above an aggregate, where every window can be used"
AGGREGATED = frozenset(("COUNT", "SUM", "AVG", "MIN", "MAX", "MEDIAN", "COUNT_IF", "STDDEV", "VARIANCE", "MODE"))
IN_WHERE = (
    "and WHERE looks at one row at a time",
    "to choose groups write HAVING COUNT(*) > 10; to compare rows with it ask for it first: x > (SELECT AVG(x) FROM t)",
)
IN_AGGREGATE = (
    "and cannot be aggregated in the same SELECT",
    "aggregate first, then again: WITH c AS (SELECT key, COUNT(*) AS n FROM t GROUP BY key) SELECT AVG(n) FROM c",
)
SIMILAR = 0.75
"""So alike is a misspelt name; what is less alike means something else."""
NO_OTHER = "the functions that can be are listed in docs/sql.md"

VOLATILE = {
    CHANCE: "RAND RANDOM UUID GEN_RANDOM_UUID UUIDV4 UUIDV7 SETSEED",
    CLOCK: "NOW TODAY CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_DATETIME LOCALTIME LOCALTIMESTAMP AGE AGO "
    "GET_CURRENT_TIME GET_CURRENT_TIMESTAMP TRANSACTION_TIMESTAMP",
    STATE: "NEXTVAL CURRVAL TXID_CURRENT GETVARIABLE",
    SESSION: "CURRENT_USER CURRENT_VERSION CURRENT_SCHEMA CURRENT_DATABASE CURRENT_SETTING GETENV VERSION",
    TIMES: "INTERVAL",
}
REASONS = {name: reason for reason, names in VOLATILE.items() for name in names.split()}


def refusal(node: exp.Expr, place: Place | None) -> Unsupported:
    name = spoken(node, place)
    if name in REASONS:
        reason, hint = REASONS[name]
        return Unsupported(f"{name} cannot be used below an aggregate: {reason}", at=place, hint=hint)
    if name in AGGREGATED:
        inside = node.find_ancestor(exp.Where) is not None or _is_named_in_where(node)
        problem, hint = IN_WHERE if inside else IN_AGGREGATE
        return Unsupported(f"{name} is an aggregate, {problem}", at=place, hint=hint)
    if name in INSTEAD:
        return Unsupported(f"there is no {name}", at=place, hint=f"write  {written_instead(name, node)}")
    if isinstance(node, exp.Window):
        return Unsupported("a window cannot be used there", at=place, hint=WINDOW)
    close = get_close_matches(name, FUNCTIONS, n=2, cutoff=SIMILAR)
    hint = "did you mean " + " or ".join(FUNCTIONS[match].takes for match in close) + "?" if close else NO_OTHER
    return Unsupported(f"{name} cannot be used below an aggregate", at=place, hint=hint)


def _is_named_in_where(node: exp.Expr) -> bool:
    """SELECT COUNT(*) AS n ... WHERE n > 10: the name stands for the aggregate there too."""
    select, named = node.find_ancestor(exp.Select), node.find_ancestor(exp.Alias)
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or named is None:
        return False
    return any(column.name.lower() == named.alias.lower() for column in where.find_all(exp.Column))


SIGNS: dict[type[exp.Expr], str] = {
    **dict.fromkeys((exp.Bracket, exp.Array, exp.Slice), "[...]"),
    exp.Struct: "{...}",
    exp.Any: "ANY",
    exp.All: "ALL",
    exp.Star: "*",
    exp.Tuple: "a list in parentheses",
    exp.Lambda: "a lambda",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    **dict.fromkeys((exp.Subquery, exp.Select, exp.Exists, exp.In), "this subquery"),
    exp.AtTimeZone: "AT TIME ZONE",
    exp.Interval: "INTERVAL",
    exp.BitwiseNot: "~",
    **dict.fromkeys((exp.Map, exp.ToMap, exp.VarMap), "MAP {...}"),
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBContains: "@>",
    exp.Dot: "a.b",
}
"""What people call nodes that have no name: a name of the parser's is nobody's word."""
UNNAMED = "this expression"


def spoken(node: exp.Expr, place: Place | None) -> str:
    """The name that the analyst wrote; the parser has one name for several functions."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    name = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
    if place is not None and re.search(rf"\b{name}\b", place.text, re.IGNORECASE):
        return name
    if type(node) in SIGNS:
        return SIGNS[type(node)]
    if not isinstance(node, exp.Func):
        return UNNAMED
    if place is None:
        return name
    before, after = place.text[: place.start], place.text[place.start :]
    written = re.match(r"(\w+)\s*\(", after) or re.search(r"(\w+)\s*\(\s*$", before)
    if written:
        return written[1].upper()
    return name if name in REASONS else UNNAMED
