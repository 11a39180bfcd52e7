"""TIME_BUCKET(width, timestamp) for any number of seconds: steps of that width, counted from Monday 2000-01-03.

Its values are known as DATE_TRUNC's are: where few steps lie within the bounds of the moment, they are public groups.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import apply, arithmetic, integer
from dpsql.expressions.function import Function, Misfit, Written
from dpsql.expressions.properties import MOST_VALUES, Properties, bounded, midnight, one_of
from dpsql.expressions.temporal.difference import EPOCH
from dpsql.expressions.temporal.parts import in_calendar
from dpsql.schema.types import Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Term

FIRST_MONDAY = datetime(2000, 1, 3)
SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
LONGEST = 100 * 366 * 86_400
"""A step is shorter than a century, in seconds."""


def bucket_properties(arguments: Sequence[Properties]) -> Properties:
    width, moment = arguments
    if not isinstance(moment.type, Timestamp):
        raise Misfit(f"TIME_BUCKET of other than whole days takes a timestamp, not {moment.type.name}")
    if not isinstance(width.constant, int) or not 0 < width.constant <= LONGEST:
        raise Misfit("TIME_BUCKET takes a constant width of a second to a century")
    step = width.constant * SECOND
    if moment.low is None or moment.high is None:
        return bounded(Timestamp(), None, None, nullable=True)
    low, high = midnight(moment.low), midnight(moment.high)
    first = max(low - datetime.min - (low - FIRST_MONDAY) % step, timedelta()) + datetime.min
    begins_before = (low - FIRST_MONDAY) % step > low - datetime.min
    nullable = moment.nullable or begins_before
    if begins_before or (high - first) // step >= MOST_VALUES:
        return bounded(Timestamp(), first, high, nullable=nullable)
    return one_of(Timestamp(), [first + n * step for n in range((high - first) // step + 1)], nullable=nullable)


def bucket_sql(arguments: Sequence[Written]) -> Term:
    width, moment = arguments
    assert isinstance(width.properties.constant, int)
    step = integer(width.properties.constant * SECOND // MICROSECOND)
    point = apply("epoch microseconds", moment.sql, kind=Integer())
    since = arithmetic("-", point, integer((FIRST_MONDAY - EPOCH) // MICROSECOND))
    # The remainder has the sign of the dividend, which lies before the first Monday for half of the calendar.
    rest = arithmetic("%", arithmetic("+", arithmetic("%", since, step), step), step)
    return in_calendar(apply("from epoch microseconds", arithmetic("-", point, rest), kind=Timestamp()), Timestamp())


FUNCTIONS = (Function("TIME_BUCKET", "TIME_BUCKET(INTERVAL 6 HOUR, timestamp)", bucket_properties, bucket_sql),)
