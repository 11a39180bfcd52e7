"""Aggregates and window functions over the rows of one unit: what their results can be, and their SQL.

They are sound because they look at one unit's rows alone, and they must be *functions* of these rows: an engine may
read rows in another order when somebody else's are gone. So sums are exact (unit_sums.py), ANY_VALUE is the least
value, and a window's order is completed by all columns that are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import count
from dpsql.engine_sql.tree import Fold
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.emit import emit_value
from dpsql.expressions.properties import Properties, bounded, property_of, union
from dpsql.expressions.ranges import double_range, range_of
from dpsql.expressions.tree import Literal, properties_of
from dpsql.relation.unit_sums import Parts, sum_parts, sum_type
from dpsql.schema.types import Boolean, Decimal, Double, Integer

if TYPE_CHECKING:
    from dpsql.expressions.tree import Known
    from dpsql.relation.relation import AggregateCall

POSITIONS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "ANY_VALUE", "BOOL_OR", "BOOL_AND")
NEIGHBOURS = ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
SHARES = ("PERCENT_RANK", "CUME_DIST")
WINDOWS = (*AGGREGATES, *POSITIONS, *NEIGHBOURS, *SHARES, "NTILE")
BY_POSITION = ("ROW_NUMBER", "NTILE", *NEIGHBOURS)
ARGUMENTS = {
    **dict.fromkeys((*POSITIONS, *SHARES), (0,)),
    **dict.fromkeys(("LAG", "LEAD"), (1, 2, 3)),
    "NTH_VALUE": (2,),
}
"""How many there can be, where it is not one."""


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
    kind = asked.arguments[0].type if asked.arguments else None
    summed = asked.name in ("SUM", "AVG") and isinstance(kind, Integer) and known is AGGREGATES
    if asked.distinct and asked.name not in ("COUNT", "MIN", "MAX") and not summed:
        raise Unsupported(
            f"{asked.name}(DISTINCT ...) cannot be taken within one unit",
            at=asked.at,
            hint="of whole numbers it can; or leave DISTINCT out",
        )
    _check_constants(asked)
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


def result_type(asked: AggregateCall) -> Properties:
    """What the type alone says of the result."""
    if asked.name in ("COUNT", "NTILE", *POSITIONS):
        return property_of(Integer(), nullable=False)
    if asked.name in SHARES:
        return property_of(Double(), nullable=False)
    (value, *_) = asked.arguments
    if asked.name == "AVG":
        return property_of(Double(), nullable=True)
    return property_of(sum_type(value.type) if asked.name == "SUM" else value.type, nullable=True)


def per_unit_properties(asked: AggregateCall, known: Known, single: bool, empty: bool = False) -> Properties:
    """`single`: the unit has one row at most, so that sums are values. `empty`: a frame may hold no row.

    A group is there because it has a row, and a frame that holds its own row has one.
    """
    if asked.name == "COUNT":
        least = 0 if asked.arguments or empty else 1
        return bounded(Integer(), least, _most_counted(asked, known, single), nullable=False)
    if asked.name in POSITIONS:
        return bounded(Integer(), 1, 1 if single else None, nullable=False)
    if asked.name in SHARES:
        return bounded(Double(), 0, 1, nullable=False)
    properties = properties_of(asked.arguments[0], known)
    if asked.name == "NTILE":
        return bounded(Integer(), 1, properties.high, nullable=False)
    if len(asked.arguments) == 3:
        return replace(union([properties, properties_of(asked.arguments[2], known)], properties.type), nullable=True)
    if asked.name == "AVG":
        return bounded(Double(), *double_range(properties), nullable=True)
    if asked.name == "SUM":
        kind, (low, high) = sum_type(properties.type), range_of(properties)
        if not single:
            # Values of one sign have a sum of that sign.
            low, high = (0 if low is not None and low >= 0 else None, 0 if high is not None and high <= 0 else None)
        return bounded(kind, low, high, nullable=True, whole=properties.whole)
    return replace(properties, nullable=True)


def _most_counted(asked: AggregateCall, known: Known, single: bool) -> int | None:
    if single:
        return 1
    return properties_of(asked.arguments[0], known).size if asked.distinct else None


def per_unit_parts(asked: AggregateCall, known: Known) -> Parts:
    """The call over columns of these names."""
    arguments = [emit_value(argument, known) for argument in asked.arguments]
    match asked.name:
        case "COUNT" if not arguments:
            return _as_it_is(count())
        case "COUNT":
            return _as_it_is(Fold("count", tuple(arguments), asked.distinct, kind=Integer()))
        case "SUM" | "AVG":
            return sum_parts(asked, arguments[0], properties_of(asked.arguments[0], known))
        case "ANY_VALUE":
            return _as_it_is(Fold("min", tuple(arguments)))
        case _:
            return _as_it_is(Fold(asked.name.lower(), tuple(arguments)))


def _as_it_is(fold: Fold) -> Parts:
    return Parts((fold,), lambda parts: parts[0])
