"""Aggregates and window functions over the rows of one unit: what their results can be, and their SQL.

They are sound because they look at one unit's rows alone, and they must be *functions* of these rows: an engine may
read rows in another order when somebody else's are gone. So numbers with fractions are summed as whole quanta,
ANY_VALUE is the least value, and a window's order is completed by all columns that are read.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError, UnboundedColumn, Unsupported
from dpsql.expressions.emit import emit_value
from dpsql.expressions.facts import Facts, bounded, fact_of, union
from dpsql.expressions.quanta import in_quanta, quantum_for
from dpsql.expressions.tree import Literal, facts_of
from dpsql.expressions.write import Sql, binary, call, cast, literal, try_cast
from dpsql.schema.types import Boolean, Decimal, Double, Integer

if TYPE_CHECKING:
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import AggregateCall

POSITIONS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "ANY_VALUE", "BOOL_OR", "BOOL_AND")
NEIGHBOURS = ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
SHARES = ("PERCENT_RANK", "CUME_DIST")
WINDOWS = (*AGGREGATES, *POSITIONS, *NEIGHBOURS, *SHARES, "NTILE")
BY_POSITION = ("ROW_NUMBER", "NTILE", *NEIGHBOURS)


def check_per_unit(asked: AggregateCall, known: tuple[str, ...]) -> None:
    """Refuses a function that has no meaning within one unit."""
    if asked.name not in known:
        raise Unsupported(
            f"{asked.name} cannot be taken within one unit", at=asked.at, hint="these can: " + ", ".join(known)
        )
    if asked.group_bounds is not None:
        raise Unsupported(
            "bounds per group are for aggregates over many people, not within one unit",
            at=asked.at,
            hint="give bounds to the aggregate outside, or per row: contribution_bounds_per_row",
        )
    if asked.distinct and asked.name != "COUNT":
        raise Unsupported(
            f"{asked.name}(DISTINCT ...) cannot be taken within one unit", at=asked.at, hint="leave DISTINCT out"
        )
    _check_constants(asked)
    kind = asked.arguments[0].type if asked.arguments else None
    if asked.name.startswith("BOOL") and not isinstance(kind, Boolean):
        raise ProgrammingError(f"{asked.name} takes a condition", at=asked.at, hint="compare the value with something")
    if asked.name in ("SUM", "AVG") and not isinstance(kind, Integer | Double | Decimal):
        raise ProgrammingError(f"{asked.name} takes a number", at=asked.at, hint="to count rows, write COUNT(*)")


def _check_constants(asked: AggregateCall) -> None:
    """The numbers in NTILE(4), LAG(x, 2, default) and NTH_VALUE(x, 3)."""
    numbers = asked.arguments[:1] if asked.name == "NTILE" else asked.arguments[1:2]
    least = 0 if asked.name in ("LAG", "LEAD") else 1
    for number in numbers:
        if not isinstance(number, Literal) or not isinstance(number.value, int) or not least <= number.value < 2**31:
            raise ProgrammingError(
                f"{asked.name} takes a constant number from {least} on", at=asked.at, hint="write LAG(x, 2), NTILE(4)"
            )
    if len(asked.arguments) == 3 and asked.arguments[2].type != asked.arguments[0].type:
        raise ProgrammingError(
            f"the default of {asked.name} has another type than its value", at=asked.at, hint="CAST one of them"
        )


def result_type(asked: AggregateCall) -> Facts:
    """What the type alone says of the result."""
    if asked.name in ("COUNT", "NTILE", *POSITIONS):
        return fact_of(Integer(), nullable=False)
    if asked.name in SHARES:
        return fact_of(Double(), nullable=False)
    (value, *_) = asked.arguments
    if asked.name == "AVG" or (asked.name == "SUM" and not isinstance(value.type, Integer)):
        return fact_of(Double(), nullable=True)
    return fact_of(value.type, nullable=True)


def per_unit_facts(asked: AggregateCall, known: Known, single: bool) -> Facts:
    """`single`: the unit has one row at most, so that sums are values."""
    if asked.name == "COUNT":
        # A group is there because it has a row.
        return bounded(Integer(), 0 if asked.arguments else 1, _most_counted(asked, known, single), nullable=False)
    if asked.name in POSITIONS:
        return bounded(Integer(), 1, 1 if single else None, nullable=False)
    if asked.name in SHARES:
        return bounded(Double(), 0, 1, nullable=False)
    facts = facts_of(asked.arguments[0], known)
    if asked.name == "NTILE":
        return bounded(Integer(), 1, facts.high, nullable=False)
    if len(asked.arguments) == 3:
        return replace(union([facts, facts_of(asked.arguments[2], known)], facts.type), nullable=True)
    if asked.name == "AVG":
        return bounded(Double(), facts.low, facts.high, nullable=True)
    if asked.name == "SUM":
        kind = result_type(asked).type
        if single:
            return bounded(kind, facts.low, facts.high, nullable=True)
        # Values of one sign have a sum of that sign.
        low = 0 if isinstance(facts.low, int | Fraction) and facts.low >= 0 else None
        high = 0 if isinstance(facts.high, int | Fraction) and facts.high <= 0 else None
        return bounded(kind, low, high, nullable=True)
    return replace(facts, nullable=True)


def _most_counted(asked: AggregateCall, known: Known, single: bool) -> int | None:
    if single:
        return 1
    return facts_of(asked.arguments[0], known).size if asked.distinct else None


def per_unit_sql(asked: AggregateCall, known: Known, over: str = "") -> Sql:
    """The call over columns of these names; with `over` it is a window function."""
    arguments = [emit_value(argument, known) for argument in asked.arguments]
    match asked.name:
        case "COUNT" if not arguments:
            return Sql(f"count(*){over}")
        case "COUNT":
            return Sql(f"count({'DISTINCT ' if asked.distinct else ''}{arguments[0]}){over}")
        case "SUM" | "AVG":
            return _sum_sql(asked, asked.arguments[0], arguments[0], known, over)
        case "ANY_VALUE":
            return Sql(f"{call('min', *arguments)}{over}")
        case _:
            return Sql(f"{call(asked.name.lower(), *arguments)}{over}")


def _sum_sql(asked: AggregateCall, value: Expression, sql: Sql, known: Known, over: str) -> Sql:
    facts = facts_of(value, known)
    whole = isinstance(value.type, Integer)
    quanta, quantum = (sql, Fraction(1)) if whole else _quanta(asked, value, sql, facts)
    total = Sql(f"sum({quanta}){over}")
    if whole and asked.name == "SUM":
        return try_cast(total, Integer())
    worth = binary(cast(total, Double()), "*", literal(quantum, Double()))
    return worth if asked.name == "SUM" else Sql(f"({worth} / nullif(count({sql}){over}, 0))")


def _quanta(asked: AggregateCall, value: Expression, sql: Sql, facts: Facts) -> tuple[Sql, Fraction]:
    """The value as a whole number of quanta, and what a quantum is worth."""
    low, high = facts.low, facts.high
    if isinstance(low, int | Fraction) and isinstance(high, int | Fraction):
        quantum = quantum_for(value.type, Fraction(low), Fraction(high))
        if quantum is not None:
            return in_quanta(sql, value.type, quantum, int(low // quantum), -int(-high // quantum)), quantum
    raise UnboundedColumn(
        f"{asked.name} within one unit needs a bounded value, so that its sum is exact",
        at=asked.at,
        hint="declare bounds on the column, or hold it: LEAST(GREATEST(..., 0), 500)",
    )
