"""What a WHERE adds to what is known: `amount < 10` caps amount, `region IN ('north')` leaves one value."""

from __future__ import annotations

from dataclasses import replace
from datetime import MAXYEAR, MINYEAR, date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, test, when
from dpsql.expressions.dates import next_start, start_of, truncation
from dpsql.expressions.properties import (
    NUMBERS,
    Properties,
    bounded,
    chosen,
    midnight,
    narrowed,
    next_doubles,
    not_null,
)
from dpsql.expressions.tree import (
    Call,
    Column,
    Expression,
    Function,
    Literal,
    Misfit,
    Written,
    columns_of,
    common_type,
    compared_type,
    properties_of,
    type_properties,
    written_as,
)
from dpsql.schema.types import Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.properties import Exact, Limit, Value
    from dpsql.expressions.tree import Known
    from dpsql.schema.types import ColumnType

# -- clamp -------------------------------------------------------------------------------------------------------------
# A value clamped to two constants: bounds that an aggregate carries, or that a query finds by itself.


def clamped(value: Expression, ends: tuple[Fraction, Fraction]) -> Expression:
    """The value within ends that its type can write."""
    low, high = clamp_ends(value.type, ends)
    return Call(CLAMP, (value, low, high), value.type, value.at)


def clamp_ends(kind: ColumnType, ends: tuple[Fraction, Fraction]) -> tuple[Literal, Literal]:
    """The ends as constants of the value's own type where they fit into it."""
    kind = _kind(kind, ends)
    low, high = (Literal(int(end) if isinstance(kind, Integer) else end, kind) for end in ends)
    return low, high


def is_clamped(value: Expression) -> bool:
    return isinstance(value, Call) and value.function is CLAMP


def _kind(kind: ColumnType, ends: tuple[Fraction, Fraction]) -> ColumnType:
    if isinstance(kind, Integer) and all(end.denominator == 1 and abs(end) < 2**63 for end in ends):
        return kind
    if isinstance(kind, Decimal):
        digits = [abs(end) * 10**kind.scale for end in ends]
        if all(number.denominator == 1 and number < 10**kind.precision for number in digits):
            return kind
    return Double()


def _clamp_properties(arguments: Sequence[Properties]) -> Properties:
    value, low, high = arguments
    kind = common_type(arguments)
    if not value.is_number or kind is None:
        raise Misfit(f"bounds apply to numbers, not {value.type.name}")
    least, most = low.low, high.high
    ends = [
        bound if end is None else min(max(end, least), most)  # type: ignore[type-var]
        for end, bound in ((value.low, least), (value.high, most))
    ]
    return bounded(kind, *ends, nullable=value.nullable, whole=value.whole and low.whole and high.whole)


def _clamp_sql(arguments: Sequence[Written]) -> Term:
    """NULL stays NULL, and NaN and the infinities become it: LEAST and GREATEST would turn them into a bound."""
    kind = common_type([argument.properties for argument in arguments])
    assert kind is not None
    value, low, high = (written_as(kind, argument) for argument in arguments)
    known = test("is finite" if isinstance(kind, Double) else "is not null", value)
    return when(known, apply("least", apply("greatest", value, low, kind=kind), high, kind=kind))


CLAMP = Function("clamp", "SUM(x, contribution_bounds_per_row => (low, high))", _clamp_properties, _clamp_sql)


# -- narrow ------------------------------------------------------------------------------------------------------------

COMPARED = (NUMBERS, (Date, Timestamp))
KEPT = "_kept"
MICROSECOND = timedelta(microseconds=1)
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def narrow(known: Known, condition: Expression) -> Known:
    """Only what `column op literal` says, and only where all parts must hold; anything else adds nothing."""
    properties = dict(known)
    for part in conjuncts(condition):
        for column, wanted in _constraint(part, properties):
            properties[column] = wanted
    return properties


def kept_properties(expression: Expression, known: Known) -> Properties:
    """What is known of the expression on rows that are kept; in CASE WHEN amount < 10 THEN amount END, at most 10.

    Unlike `properties_of` this says nothing of rows that an engine may look at in passing: those of branches not taken.
    """
    if not isinstance(expression, Call):
        return properties_of(expression, known)
    kept = vars(expression).get(KEPT)
    if kept is None or kept[0] is not known:
        # Found once for all that ask with the same knowledge, which never changes.
        kept = vars(expression)[KEPT] = known, _kept_properties(expression, known)
    found: Properties = kept[1]
    return found


def _kept_properties(expression: Call, known: Known) -> Properties:
    arguments = expression.arguments
    if expression.function.name != "CASE":
        return expression.function.properties([kept_properties(argument, known) for argument in arguments])
    branches = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    narrowed_branches = [
        properties
        for condition, value in branches
        for properties in (kept_properties(condition, known), kept_properties(value, narrow(known, condition)))
    ]
    return expression.function.properties([*narrowed_branches, kept_properties(arguments[-1], known)])


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """The parts of a condition that must all hold."""
    if isinstance(condition, Call) and condition.function.name == "AND":
        for part in condition.arguments:
            yield from conjuncts(part)
    else:
        yield condition


def _constraint(part: Expression, known: Known) -> Iterator[tuple[str, Properties]]:
    match _with_constants(part):
        case Column(name, _):
            yield name, chosen(known[name], (True,))
        case Call(function, (Column(name, _), *rest), _) if function.name == "IN":
            values = [choice.value for choice in rest if isinstance(choice, Literal) and choice.value is not None]
            if len(values) == len(rest) and _comparable(known[name], *rest):
                yield name, _chosen(known[name], values, rest)
        case Call(function, (Column(name, _), Literal(value, _) as literal), _) if function.name in MIRRORED:
            if value is not None and _comparable(known[name], literal):
                yield name, _compared(known[name], function.name, value, literal)
        case Call(function, (Literal(value, _) as literal, Column(name, _)), _) if function.name in MIRRORED:
            if value is not None and _comparable(known[name], literal):
                yield name, _compared(known[name], MIRRORED[function.name], value, literal)
        case Call(function, (Call(inner, (Column(name, _),), _),), _):
            if function.name == "NOT" and inner.name == "IS NULL":
                yield name, not_null(known[name])
        case Call(function, (Call() as call, *rest), _) if function.name in (*MIRRORED, "IN"):
            yield from _truncated(call, function.name, rest, known)
        case Call(function, (Literal() as literal, Call() as call), _) if function.name in MIRRORED:
            yield from _truncated(call, MIRRORED[function.name], [literal], known)


def _with_constants(part: Expression) -> Expression:
    """A comparison with constants computed: DATE_TRUNC('month', DATE '2024-03-05') is the first of March."""
    if not isinstance(part, Call) or part.function.name not in MIRRORED:
        return part
    return replace(part, arguments=tuple(map(_computed, part.arguments)))


def _computed(side: Expression) -> Expression:
    if not isinstance(side, Call) or any(True for _ in columns_of(side)) or not isinstance(side.type, Date | Timestamp):
        return side
    constant = properties_of(side, {}).constant
    return side if constant is None else Literal(constant, side.type, side.at)


def _truncated(
    call: Call, operator: str, others: Sequence[Expression], known: Known
) -> Iterator[tuple[str, Properties]]:
    """What a comparison of DATE_TRUNC('month', moment), CAST(moment AS DATE) or YEAR(moment) says about the moment."""
    unit, moment = truncation(call)
    limits = [_start(call, other.value) for other in others if isinstance(other, Literal)]
    if unit is None or not isinstance(moment, Column) or None in limits or len(limits) < len(others):
        return
    ranges = [_moments(unit, operator, limit) for limit in limits if limit is not None]
    for end, bounds in (("<", [high for _, high in ranges]), (">=", [low for low, _ in ranges])):
        if bounds and None not in bounds:
            bound = (max if end == "<" else min)(bound for bound in bounds if bound is not None)
            yield moment.name, _compared(known[moment.name], end, bound, Literal(bound, Timestamp()))


def _start(call: Call, value: Value | None) -> datetime | None:
    """The moment that a comparison with this value is about: of years the first of January."""
    if isinstance(value, date):
        return midnight(value) if isinstance(call.type, Date | Timestamp) else None
    if call.function.name == "YEAR" and isinstance(value, int) and MINYEAR <= value <= MAXYEAR:
        return datetime(value, 1, 1)
    return None


def _moments(unit: str, operator: str, limit: datetime) -> tuple[datetime | None, datetime | None]:
    """The first moment whose unit's start compares like this with the limit, and the first one after them."""
    start = start_of(unit, limit)
    following = next_start(unit, start)
    at_or_after = start if start == limit else following
    match operator:
        case "<":
            return None, at_or_after
        case "<=":
            return None, following
        case ">":
            return following, None
        case ">=":
            return at_or_after, None
    return at_or_after, following


def _comparable(properties: Properties, *literals: Expression) -> bool:
    """Whether these are compared as what they are: numbers with numbers, dates with dates or timestamps.

    A long decimal beside doubles is compared as one of the doubles near it.
    """
    return all(
        literal.type == properties.type
        or (
            any(isinstance(properties.type, k) and isinstance(literal.type, k) for k in COMPARED)
            and not (isinstance(properties.type, Double) and isinstance(literal.type, Decimal))
        )
        for literal in literals
    )


def _as_compared(properties: Properties, value: Value) -> Value:
    """A number beside doubles is the nearest of them; a date beside timestamps is its midnight; a timestamp beside
    dates is its day, which leaves no date out.
    """
    if isinstance(properties.type, Double) and isinstance(value, int | Fraction):
        return Fraction(float(value))
    if isinstance(properties.type, Timestamp) and isinstance(value, date):
        return midnight(value)
    return value.date() if isinstance(properties.type, Date) and isinstance(value, datetime) else value


def _chosen(properties: Properties, values: Sequence[Value], literals: Sequence[Expression]) -> Properties:
    if not _in_doubles(properties, *literals):
        return chosen(properties, (_as_compared(properties, value) for value in values))
    ranges = [_around(properties, value) for value in values]
    if all(least >= most for least, most in ranges):
        return chosen(properties, (least for least, most in ranges if least == most))
    return narrowed(properties, low=min(least for least, _ in ranges), high=max(most for _, most in ranges))


def _compared(properties: Properties, operator: str, value: Value, literal: Expression) -> Properties:
    if operator == "=":
        return _chosen(properties, (value,), (literal,))
    if _in_doubles(properties, literal):
        least, most = _around(properties, value)
        return narrowed(properties, high=most) if "<" in operator else narrowed(properties, low=least)
    if isinstance(value, str | bool):
        return not_null(properties)
    if operator in ("<", "<="):
        return narrowed(properties, high=_greatest(properties, value, below=operator == "<"))
    return narrowed(properties, low=_least(properties, value, above=operator == ">"))


def _in_doubles(properties: Properties, *literals: Expression) -> bool:
    """Whether the column is rounded to doubles before it is compared: what is equal then need not be equal."""
    compared = compared_type([properties, *map(type_properties, literals)])
    return isinstance(compared, Double) and not isinstance(properties.type, Double)


def _around(properties: Properties, value: Value) -> tuple[Exact, Exact]:
    """The least and the greatest number of the column's type that may be equal to this one as doubles.

    There may be one, several, or none: then the first is above the second.
    """
    assert isinstance(value, int | Fraction)
    nearest = Fraction(float(value))
    least, most = (nearest if end is None else end for end in next_doubles((nearest, nearest)))
    step = Fraction(1, 10**properties.type.scale) if isinstance(properties.type, Decimal) else 1
    return -(-least // step) * step, most // step * step


def _greatest(properties: Properties, value: Limit, *, below: bool) -> Limit:
    """The greatest of the column's values up to this one, or below it; of doubles the value itself.

    >>> _greatest(Properties(Date()), datetime(2023, 1, 1), below=True)
    datetime.date(2022, 12, 31)
    >>> _greatest(Properties(Decimal(8, 2)), 5, below=True)
    Fraction(499, 100)
    """
    step, point = _step(properties.type), _point(value)
    if step is None:
        return _as_compared(properties, value)  # type: ignore[return-value]
    steps = point // step
    return _value(properties.type, (steps - (below and steps * step == point)) * step)


def _least(properties: Properties, value: Limit, *, above: bool) -> Limit:
    """The least of the column's values from this one on, or above it."""
    step, point = _step(properties.type), _point(value)
    if step is None:
        return _as_compared(properties, value)  # type: ignore[return-value]
    steps = -(-point // step)
    return _value(properties.type, (steps + (above and steps * step == point)) * step)


def _step(kind: ColumnType) -> Exact | None:
    """How far apart neighbouring values are; None for doubles, whose neighbours are too near to matter."""
    match kind:
        case Integer() | Timestamp():
            return 1
        case Decimal():
            return Fraction(1, 10**kind.scale)
        case Date():
            return timedelta(days=1) // MICROSECOND
    return None


def _point(value: Limit) -> Exact:
    """A number as it is, a moment in microseconds of the calendar."""
    return (midnight(value) - datetime.min) // MICROSECOND if isinstance(value, date) else value


def _value(kind: ColumnType, point: Exact) -> Limit:
    if not isinstance(kind, Date | Timestamp):
        return point
    last = (datetime.max - datetime.min) // MICROSECOND
    moment = datetime.min + MICROSECOND * int(max(0, min(point, last)))
    return moment.date() if isinstance(kind, Date) else moment
