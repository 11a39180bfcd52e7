"""Why a function is not in the table, said so that the analyst knows what to write instead."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Unsupported
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
NO_OTHER = "the functions that can be are listed in docs/sql.md"

VOLATILE = {
    CHANCE: "RAND RANDOM UUID GEN_RANDOM_UUID UUIDV4 UUIDV7 SETSEED",
    CLOCK: "NOW TODAY CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_DATETIME LOCALTIME LOCALTIMESTAMP AGE "
    "GET_CURRENT_TIME GET_CURRENT_TIMESTAMP TRANSACTION_TIMESTAMP",
    STATE: "NEXTVAL CURRVAL TXID_CURRENT GETVARIABLE",
    SESSION: "CURRENT_USER CURRENT_VERSION CURRENT_SCHEMA CURRENT_DATABASE CURRENT_SETTING GETENV VERSION",
    TIMES: "INTERVAL",
}
REASONS = {name: reason for reason, names in VOLATILE.items() for name in names.split()}


def refusal(node: exp.Expr, place: Place | None) -> Unsupported:
    name = spoken(node)
    if name in REASONS:
        reason, hint = REASONS[name]
        return Unsupported(f"{name} cannot be used below an aggregate: {reason}", at=place, hint=hint)
    close = get_close_matches(name, FUNCTIONS, n=3, cutoff=0.5)
    hint = "close to it: " + ", ".join(FUNCTIONS[match].takes for match in close) if close else NO_OTHER
    return Unsupported(f"{name} cannot be used below an aggregate", at=place, hint=hint)


def spoken(node: exp.Expr) -> str:
    """The name that the analyst wrote, as far as the parser has kept it."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    return node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
