"""Totals over a join of different people: FROM visits a JOIN visits b ON a.place = b.place.

One unit can match any number of others, so the global sensitivity is unbounded. The local sensitivity follows from the
frequency of the most frequent join key. docs/proofs/local_sensitivity.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.estimate import Answer, Linear
from dpsql.aggregates.measure import CountRows, CountValues, Matched, SumValues
from dpsql.aggregates.table import AGGREGATES
from dpsql.engine_sql.build import SALT, UNIT, all_of, apply, count, fields, select, test
from dpsql.engine_sql.tree import (
    CTE,
    AggFunc,
    Alias,
    Blank,
    Field,
    Joined,
    Ordered,
    Scalar,
    Select,
    Subquery,
    Table,
    WindowFunc,
    With,
)
from dpsql.errors import Unsupported
from dpsql.expressions.casts import saturated
from dpsql.expressions.emit import emit
from dpsql.expressions.tree import names_read
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Filter, Project
from dpsql.relation.sql import LEFTS, RIGHTS, domain_sql, relation_sql
from dpsql.relation.units import one_row_per_unit, parts_of
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.aggregates.measure import Statistic
    from dpsql.aggregates.release import Drawn
    from dpsql.aggregates.release_sql import ReleaseWriter
    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import AggregateCall, CrossUnitJoin, Relation


def matched(
    call: AggregateCall,
    known: Known,
    across: CrossUnitJoin,
    bounds: tuple[int, ...],
    drawn_as: Callable[[Statistic], str],
) -> Answer:
    """`bounds`: the rows of a unit on either side, and the groups."""
    function = AGGREGATES.get(call.name)
    if function is None or function.over_pairs is None or call.distinct or call.group_bounds is not None:
        possible = " and ".join(name for name, row in AGGREGATES.items() if row.over_pairs)
        raise Unsupported(
            f"{call.name} is not supported in a join across people",
            at=call.at,
            hint=f"{possible} over all rows or values are supported; for an average, divide a SUM by a COUNT",
        )
    statistic = Matched(across, function.over_pairs(call, known), *bounds)
    kind = function.read_as(call.arguments[0].type if call.arguments else Integer())
    estimate = Linear(((drawn_as(statistic), statistic.grid.quantum),))
    return Answer(estimate, kind, wide=function.wide or call.wide)


# -- write cross unit --------------------------------------------------------------------------------------------------
# The engine SQL of a total over pairs of people.
#
# Each side is bounded per unit first; beside the total of every group stands how often the most frequent key occurs.

PLACE = "_place"
MOST, TOTALS, GROUPS = "_most", "_totals", "_groups"


def matched_sql(writer: ReleaseWriter, drawn: Drawn, statistic: Matched) -> Query:
    summed, left, right = drawn.profile
    across = statistic.across
    lefts, rights = (tuple(pair[side] for pair in across.pairs) for side in (0, 1))
    most = (Alias(_most(LEFTS, lefts, across.left), left), Alias(_most(RIGHTS, rights, across.right), right))
    parts = (
        CTE(LEFTS, _bounded(writer, across.left, statistic.left_rows, statistic)),
        CTE(RIGHTS, _bounded(writer, across.right, statistic.right_rows, statistic)),
        CTE(MOST, Select(most)),
        CTE(TOTALS, _totals(writer, statistic.measure, summed)),
    )
    return With(parts, _every_group(writer, [summed, left, right]))


def _totals(writer: ReleaseWriter, measure: CountRows | CountValues | SumValues, name: str) -> Query:
    if isinstance(measure, CountRows):
        return writer.by_keys([Alias(count(), name)], writer.rows([], []))
    value = Alias(measure.input(emit(measure.argument, writer.release.facts.any_row)), name)
    folded = measure.total(Field(name, kind=measure.decimal)) if isinstance(measure, SumValues) else count(Field(name))
    return writer.by_keys([Alias(saturated(folded), name)], writer.rows([value], [measure.argument]))


def _bounded(writer: ReleaseWriter, side: Relation, rows: int, statistic: Matched) -> Query:
    """The rows of each unit with the smallest keyed hashes, up to a number."""
    names = sorted(_read(writer, statistic) & set(facts_of(side).any_row))
    below, columns = relation_sql(side, names), [Field(name) for name in names]
    if one_row_per_unit(side):
        return below
    unit = Field(UNIT)  # of this side's own type
    hashed = apply("keyed hash", Blank(SALT), unit, *columns)
    place = Alias(WindowFunc(AggFunc("row_number"), (unit,), (Ordered(hashed), *map(Ordered, columns))), PLACE)
    return select(fields(names), select([*fields(names), place], below), writer.is_first(PLACE, rows))


def _read(writer: ReleaseWriter, statistic: Matched) -> set[str]:
    """The columns of either side that are read above the join."""
    aggregate, measure = writer.release.aggregate, statistic.measure
    read = [statistic.across.condition, *aggregate.keys]
    read += [] if isinstance(measure, CountRows) else [measure.argument]
    for part in parts_of(aggregate.source):
        if isinstance(part, Filter):
            read.append(part.condition)
        elif isinstance(part, Project):
            read += [expression for _, expression in part.columns]
    return names_read(*read)


def _most(rows: str, keys: tuple[Expression, ...], side: Relation) -> Term:
    """The frequency of the most frequent key; NULL matches nothing. Without a key, all rows may match each other."""
    known = facts_of(side).any_row
    written = tuple(emit(key, known) for key in keys)
    present = all_of([test("is not null", key) for key in written])
    counts = Select((Alias(count(), "_count"),), Table(rows), present, written)
    most = saturated(AggFunc("max", (Field("_count"),)))
    return Scalar(select([Alias(most, "_most")], counts))


def _every_group(writer: ReleaseWriter, names: list[str]) -> Query:
    domain = writer.release.domain
    if not writer.keys or domain is None:
        return Select(tuple(fields(names)), Joined("CROSS", Table(TOTALS), Table(MOST)))
    keys = [Alias(Field(name, GROUPS), name) for name in writer.release.key_names]
    groups = Subquery(domain_sql(domain, writer.release.key_names), GROUPS)
    found: Source = Joined("LEFT", groups, Table(TOTALS), writer.same_keys(GROUPS, TOTALS))
    return Select((*keys, *fields(names)), Joined("CROSS", found, Table(MOST)))
