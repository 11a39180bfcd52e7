"""MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MIN and MAX: a point of a public grid over the declared range.

MIN and MAX are the quantiles 0 and 1 of one value per unit, its own extreme. Doubles have a finer grid than their
sums; a date is a whole number of days, a timestamp of microseconds. docs/proofs/exponential.md.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.aggregates.count_sum import finite_range, unbounded
from dpsql.aggregates.estimate import Answer, Context, Formula, Linear
from dpsql.aggregates.function import AggregateFunction, ErrorBars, Word, number_as_double
from dpsql.aggregates.measure import Grid, Mode, Quantile
from dpsql.engine_sql.build import NULL, integer, test
from dpsql.engine_sql.tree import Case, Constant, Field
from dpsql.errors import Unsupported
from dpsql.expressions.casts import GRID_BITS, from_fixed_point, quantum_for
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.properties import midnight
from dpsql.schema.types import WIDEST_DECIMAL, Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType

# -- mode --------------------------------------------------------------------------------------------------------------
# MODE(x): the most frequent of the values that x can have, which must be public. docs/proofs/permute_and_flip.md.


def mode(call: AggregateCall, context: Context) -> Answer:
    (value,) = call.arguments
    values = kept_properties(value, context.known).listed()
    if values is None or call.distinct:
        raise Unsupported(
            "MODE needs a column whose possible values are public",
            at=call.at,
            hint="the data owner can declare  values: [...]  for it, or narrow bounds for an integer; or GROUP BY "
            "it, ORDER BY COUNT(*) DESC LIMIT 1",
        )
    place = Field(context.drawn_as(Mode(value, values)))
    cases = tuple(
        (test("=", place, integer(number)), Constant(choice, value.type)) for number, choice in enumerate(values)
    )
    return Answer(Formula(Case(cases, NULL) if values else NULL), value.type)


MODE = AggregateFunction(
    name="MODE",
    of="columns with public values",
    error=ErrorBars.UNKNOWN,
    answer=mode,
    words=(Word("mode", "MODE({})", "The most frequent value."),),
)


# -- quantile ----------------------------------------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)


def quantile(call: AggregateCall, context: Context, *, continuous: bool) -> Answer:
    assert call.fraction is not None
    if call.distinct:
        raise Unsupported(f"{call.said}(DISTINCT ...) is not supported", at=call.at, hint="leave DISTINCT out")
    return _at(call.fraction, call, context, continuous)


def extreme(call: AggregateCall, context: Context, *, fraction: Fraction) -> Answer:
    return _at(fraction, call, context)


def _at(fraction: Fraction, call: AggregateCall, context: Context, continuous: bool = False) -> Answer:
    (value,) = call.arguments
    if not isinstance(value.type, Integer | Double | Decimal | Date | Timestamp):
        raise Unsupported(
            f"{call.said} of {value.type.name} over many people is not supported",
            at=call.at,
            hint="it takes numbers, dates and timestamps; for text, use MODE or GROUP BY it",
        )
    grid = grid_of(call, value, context)
    column = context.drawn_as(Quantile(value, grid, fraction))
    if isinstance(value.type, Date | Timestamp):
        # Between two days lies a moment, so a continuous quantile of dates is one.
        return Answer(Formula(from_fixed_point(column, value.type)), Timestamp() if continuous else value.type)
    return Answer(Linear(((column, grid.quantum),)), _answer_type(value.type, grid, continuous))


def _answer_type(kind: ColumnType, grid: Grid, continuous: bool) -> ColumnType:
    if isinstance(kind, Integer) and continuous:
        return Double()
    if isinstance(kind, Decimal) and grid.quantum * 10**kind.scale != 1:
        return Decimal(WIDEST_DECIMAL, kind.scale)  # the ends of a coarser grid may have one digit more
    return kind


def grid_of(call: AggregateCall, value: Expression, context: Context) -> Grid:
    """The grid of possible answers, from the declared range of the value."""
    properties = kept_properties(value, context.known)
    if isinstance(properties.type, Date | Timestamp):
        return Grid(Fraction(1), *_days_or_microseconds(call, value, properties, context.known))
    low, high = finite_range(call, value, properties, context.known)
    quantum = quantum_for(value.type, low, high, GRID_BITS)
    if quantum is None:
        raise unbounded(call, value, context.known)
    if properties.whole:
        # Who rounds asks for no finer answer, and fewer points are told apart with fewer people.
        quantum = max(quantum, Fraction(1))
    return Grid(quantum, low // quantum, -(-high // quantum))


def _days_or_microseconds(
    call: AggregateCall, value: Expression, properties: Properties, known: Known
) -> tuple[int, int]:
    low, high = properties.low, properties.high
    if not isinstance(low, date) or not isinstance(high, date):
        raise unbounded(call, value, known)
    unit = timedelta(days=1) if isinstance(properties.type, Date) else timedelta(microseconds=1)
    return (midnight(low) - EPOCH) // unit, (midnight(high) - EPOCH) // unit


def _continuous(kind: ColumnType) -> ColumnType:
    return Timestamp() if isinstance(kind, Date) else number_as_double(kind)


RANGED = "bounded numbers, dates, timestamps"
INSIDE = f"{RANGED}; stops a few people short of the extreme"

QUANTILES = (
    AggregateFunction(
        name="QUANTILE_CONT",
        of=RANGED,
        error=ErrorBars.RANKS,
        answer=partial(quantile, continuous=True),
        spellings=("MEDIAN(x)", "PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY x)"),
        by_fraction=True,
        words=(Word("median", "MEDIAN({})", "The median of the values."),),
        read_as=_continuous,
    ),
    AggregateFunction(
        name="QUANTILE_DISC",
        of=RANGED,
        error=ErrorBars.RANKS,
        answer=partial(quantile, continuous=False),
        spellings=("QUANTILE(x, p)", "APPROX_QUANTILE(x, p)", "APPROX_QUANTILES(x, n)"),
        by_fraction=True,
    ),
    AggregateFunction(
        name="MIN",
        of=INSIDE,
        error=ErrorBars.RANKS,
        answer=partial(extreme, fraction=Fraction(0)),
        one_per_unit=True,
        words=(Word("min", "MIN({})", "The minimum, less a few people at that end."),),
    ),
    AggregateFunction(
        name="MAX",
        of=INSIDE,
        error=ErrorBars.RANKS,
        answer=partial(extreme, fraction=Fraction(1)),
        one_per_unit=True,
        words=(Word("max", "MAX({})", "The maximum, less a few people at that end."),),
    ),
)
