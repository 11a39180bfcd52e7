"""The engine SQL of a total over pairs of people.

Each side is bounded per unit first; beside the total of every group stands how often the most frequent key occurs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.aggregates.measure import CountRows, CountValues, SumValues
from dpsql.expressions.emit import emit
from dpsql.expressions.quanta import saturated
from dpsql.expressions.tree import names_read
from dpsql.expressions.write import Sql, call, column, integer, listed, named
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.relation import Filter, Project
from dpsql.relation.units import one_row_per_unit, parts_of
from dpsql.relation.write import LEFTS, RIGHTS, relation_sql, select
from dpsql.relation.write_domain import domain_sql
from dpsql.relation.write_scan import UNIT

if TYPE_CHECKING:
    from dpsql.aggregates.release import Drawn
    from dpsql.aggregates.statistic import Matched
    from dpsql.aggregates.write_release import Writer
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation

PLACE = "_place"


def matched_sql(writer: Writer, drawn: Drawn, statistic: Matched) -> Sql:
    total, left, right = drawn.profile
    across = statistic.across
    lefts, rights = zip(*across.pairs, strict=True)
    most = [
        named(_most(LEFTS, lefts, across.left), left),
        named(_most(RIGHTS, rights, across.right), right),
    ]
    parts = {
        LEFTS: _bounded(writer, across.left, statistic.left_rows, statistic),
        RIGHTS: _bounded(writer, across.right, statistic.right_rows, statistic),
        "_most": f"SELECT {listed(most)}",
        "_totals": _totals(writer, statistic.measure, total),
    }
    before = ", ".join(f"{name} AS ({sql})" for name, sql in parts.items())
    return Sql(f"WITH {before} {_every_group(writer, [total, left, right])}")


def _totals(writer: Writer, measure: CountRows | CountValues | SumValues, name: str) -> Sql:
    if isinstance(measure, CountRows):
        return writer.by_keys([*writer.keys, named(Sql("count(*)"), name)], writer.rows([], []))
    value = named(measure.input(emit(measure.argument, writer.release.knowledge.always)), name)
    function = "sum" if isinstance(measure, SumValues) else "count"
    total = named(saturated(call(function, column(name))), name)
    return writer.by_keys([*writer.keys, total], writer.rows([value], [measure.argument]))


def _bounded(writer: Writer, side: Relation, rows: int, statistic: Matched) -> Sql:
    """At most so many rows of each unit, those whose keyed hash is least."""
    names = sorted(_read(writer, statistic) & set(knowledge_of(side).always))
    below, columns = relation_sql(side, names), [column(name) for name in names]
    if one_row_per_unit(side):
        return below
    order = listed([writer.hashed(columns), *columns])
    place = named(Sql(f"row_number() OVER (PARTITION BY {column(UNIT)} ORDER BY {order})"), PLACE)
    placed = select([*columns, place], below)
    return Sql(f"{select(columns, placed)} WHERE {column(PLACE)} BETWEEN 1 AND {integer(rows)}")


def _read(writer: Writer, statistic: Matched) -> set[str]:
    """Every column that is read above the two sides."""
    aggregate, measure = writer.release.aggregate, statistic.measure
    read = [statistic.across.condition, *aggregate.keys]
    read += [] if isinstance(measure, CountRows) else [measure.argument]
    for part in parts_of(aggregate.source):
        if isinstance(part, Filter):
            read.append(part.condition)
        elif isinstance(part, Project):
            read += [expression for _, expression in part.columns]
    return names_read(*read)


def _most(rows: Sql, keys: tuple[Expression, ...], side: Relation) -> Sql:
    """How often the most frequent key occurs; NULL matches nothing."""
    known = knowledge_of(side).always
    written = [emit(key, known) for key in keys]
    present = " AND ".join(f"{key} IS NOT NULL" for key in written)
    counts = f"SELECT count(*) AS _count FROM {rows} WHERE {present} GROUP BY {listed(written)}"
    return Sql(f"(SELECT {saturated(call('max', column('_count')))} FROM ({counts}) AS _counts)")


def _every_group(writer: Writer, names: list[str]) -> Sql:
    columns = [column(name) for name in names]
    domain = writer.release.domain
    if not writer.keys or domain is None:
        return Sql(f"SELECT {listed(columns)} FROM _totals CROSS JOIN _most")
    keys = [column(name, "_groups") for name in writer.release.key_names]
    groups = domain_sql(domain, writer.release.key_names)
    same = writer.same_keys("_groups", "_totals")
    return Sql(
        f"SELECT {listed([*keys, *columns])} FROM ({groups}) AS _groups LEFT JOIN _totals ON {same} CROSS JOIN _most"
    )
