"""Sums where units with few rows count in full. docs/proofs/few_rows.md.

    _own   the rows: _unit, the keys, the values
    _many  the units that have more than a few of them

Rows keep the unit that they are joined to, so that partials are of a unit with many rows and a group or, with NULL in
the unit's place, of all other units and a group. The former are ranked and cut, the latter are what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import SumValues
from dpsql.engine_sql.build import UNIT, WIDE, any_of, apply, count, fields, integer, select, test, when
from dpsql.engine_sql.tree import Field, Joined, Named, Part, Select, Table, With, is_one_scan
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.aggregates.measure import ByUnit
    from dpsql.aggregates.write_release import Summed, Writer
    from dpsql.engine_sql.tree import Query, Term

OWN, MANY, NUMBER = "_own", "_many", "_number"


def with_many(rows: Query, few: int) -> tuple[Part, Part]:
    """The rows, and the units that have more than a few of them."""
    numbers = Select((*fields([UNIT]), Named(count(), NUMBER)), Table(OWN), group_by=(Field(UNIT),))
    many = select(fields([UNIT]), numbers, test(">", Field(NUMBER), integer(few)))
    return Part(OWN, rows, kept=False if is_one_scan(rows) else None), Part(MANY, many)


def sums_beside_few(writer: Writer, summed: Summed, rows: Query, few: int) -> Query:
    release, keys, partials = writer.release, writer.release.key_names, summed.partials
    marked = select([*fields([UNIT, *keys]), *writer.clamped(summed.values)], _marked([*keys, *summed.values]))
    by = [writer.unit, *(Field(name, kind=kind) for name, kind in release.keys)]
    found = select([*fields([UNIT, *keys]), *partials], marked, group_by=by)
    numbered = writer.in_groups(found, [UNIT, *(partial.name for partial in partials)])
    is_few = test("is null", writer.unit)
    kept = [
        Named(when(is_few, _uncut(name, part), part.bounded(name, release.rows)), name)
        for name, part in summed.measures
    ]
    ranks = [writer.group_rank("row_number")] if release.ranked else []
    bounded = select([*fields([UNIT]), *writer.shown_keys, *kept, *ranks], numbered)
    counts = any_of([is_few, writer.in_first_groups]) if ranks else None
    return With(with_many(rows, few), writer.by_keys(summed.totals, bounded, counts))


def _marked(names: list[str]) -> Query:
    """The rows, with the unit of those alone that have many."""
    same = test("=", Field(UNIT, OWN), Field(UNIT, MANY))
    columns = [Named(Field(UNIT, MANY), UNIT), *(Named(Field(name, OWN), name) for name in names)]
    return Select(tuple(columns), Joined("LEFT", Table(OWN), Table(MANY), same))


def _uncut(name: str, measure: ByUnit) -> Term:
    """The partial as it is; a sum of no values is 0."""
    if isinstance(measure, SumValues):
        return apply("coalesce", Field(name, kind=WIDE), integer(0), kind=WIDE)
    return Field(name, kind=Integer())
