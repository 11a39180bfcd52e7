"""Light units, which have few rows in all, and heavy units, whose contribution is bounded. docs/proofs/light_units.md.

Rows are counted by unit, and then labelled:

    _unit_rows      the rows: _unit, the keys of their group, the values
    _rows_per_unit  the units, and how many rows each has
    _heavy_units    the heavy units as _key and _unit, and the number of their rows
    _labelled_rows  the rows: with unit and number if the unit is heavy, with NULL if it is light

Where the unit is that of the row which a foreign key refers to (relation/scan_sql.py), rows are counted by that key
first, and the unit is looked up for each key. Rows are then compared with the keys of heavy units, and never joined to
their units:

    _unit_rows      the rows: the foreign key as _unit, the keys of their group, the values
    _rows_per_unit  the units, and how many rows each has; without a unit, each foreign key that leads nowhere
    _heavy_units    the foreign keys of heavy units, the unit, and the number of its rows
    _nowhere        the foreign keys without a unit: their rows are nobody's, and left out

Where the rows of a table are immutable, _rows_per_unit is about the whole table and is kept for later questions. Only
units that are heavy in the whole table can be heavy among some of its rows:

    _heavy_keys     as _heavy_units, of the whole table
    _units          the heavy units among the rows of the question: only rows of _heavy_keys are counted
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import CountRows, CountValues, Disjoint, DownWeighted, SumValues
from dpsql.aggregates.partials import value_rows
from dpsql.engine_sql.build import (
    UNIT,
    count,
    fields,
    in_64_bits,
    integer,
    select,
    test,
    total,
    when,
)
from dpsql.engine_sql.tree import (
    CTE,
    Alias,
    Exists,
    Field,
    Joined,
    Materialized,
    Select,
    Subquery,
    Table,
    is_one_scan,
)
from dpsql.relation.facts import facts_of, has_all_rows, whole_table
from dpsql.relation.relation import Scan
from dpsql.relation.scan_sql import KEY, OWNERS, linked, with_key
from dpsql.relation.sql import relation_sql, unlisted
from dpsql.relation.units import parts_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from dpsql.aggregates.measure import Measure
    from dpsql.aggregates.partials import Summed
    from dpsql.aggregates.release_sql import ReleaseWriter
    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation
    from dpsql.relation.scan_sql import Linked

# -- few rows ----------------------------------------------------------------------------------------------------------
# Units with few rows count in full, wherever these are: neither ranked nor summed by group. docs/proofs/light_units.md.
#
# Noise hides what `groups` groups of `rows` rows can do: in L1 as much as groups * rows rows, in L2 as much as
# sqrt(groups) * rows. A unit with no more rows than that, in all, can do no more, however they are spread. Where the L1
# norm is all that matters, every row of a unit with more counts for a part, and none is left out.

FINE_BITS = 32
"""Where rows count in parts, what a unit may add has at least so many bits: of a million rows little is cut off, and
what a billion units add to one group fits into 64 bits."""
LEAST = 16
"""Where so many rows are few, most units have no more, and the time to count them is well spent."""


def light_rows(groups: int, rows: int, measures: Collection[Measure]) -> int | None:
    """The largest number with few^2 <= groups * rows^2; None if it is not worth it, or not all measures add up."""
    few = isqrt(groups * rows * rows)
    return few if few >= LEAST and measures and all(map(adds_up, measures)) else None


def down_weighted(measure: Measure, most: int) -> DownWeighted:
    """The measure on a grid that is fine enough for parts of it."""
    assert isinstance(measure, CountRows | CountValues | SumValues | Disjoint)
    return DownWeighted(measure, most, 1 << max(0, FINE_BITS - measure.linf(most).bit_length()))


def adds_up(measure: Measure) -> bool:
    """Whether a unit adds to a group what its rows there add, each by itself, as long as none is cut."""
    match measure:
        case CountRows(most=most) | CountValues(most=most):
            return most is None
        case SumValues(group=group, mean=mean):
            return group is None and not mean
        case _:
            return False


# -- light and heavy rows ----------------------------------------------------------------------------------------------

UNIT_ROWS, ROWS_PER_UNIT, LABELLED_ROWS = "_unit_rows", "_rows_per_unit", "_labelled_rows"
HEAVY_KEYS, HEAVY_UNITS, UNITS, NOWHERE = "_heavy_keys", "_heavy_units", "_units", "_nowhere"
NUMBER = "_number"
"""How many rows a unit or a foreign key has."""


@dataclass(frozen=True)
class LightAndHeavy:
    parts: tuple[CTE, ...]
    light: Query
    """The rows of light units: the keys, the values."""
    heavy: Query
    """The rows of heavy units: _unit, _number, the keys, the values."""


def light_and_heavy(writer: ReleaseWriter, summed: Summed, few: int) -> LightAndHeavy:
    release = writer.release
    names = [*release.key_names, *summed.values]
    columns = [Alias(Field(name, HEAVY_UNITS), name) for name in (UNIT, NUMBER)]
    columns += [Alias(Field(name, UNIT_ROWS), name) for name in names]
    told = Select(tuple(columns), Joined("LEFT", Table(UNIT_ROWS), Table(HEAVY_UNITS), _is_own(KEY, HEAVY_UNITS)))
    source = release.aggregate.source
    reading = _without_list(writer) if whole_table(source) is not None else writer
    links = linked(source)
    if links is None:
        parts = with_heavy_units(value_rows(reading, summed), source, few)
    else:
        rows = with_key(reading.release.aggregate.source)
        assert rows is not None
        by_key = _over(reading, rows)
        nowhere = CTE(NOWHERE, Select(tuple(fields([KEY])), Table(ROWS_PER_UNIT), test("is null", Field(UNIT))))
        parts = (*with_heavy_units(value_rows(by_key, summed), links.rows, few, links), nowhere)
        told = replace(told, where=test("not", Exists(Select((), Table(NOWHERE), _is_own(KEY, NOWHERE)))))
    return LightAndHeavy(
        (*parts, CTE(LABELLED_ROWS, told, kept=False)),
        Select(tuple(fields(names)), Table(LABELLED_ROWS), test("is null", Field(UNIT))),
        Select(tuple(fields([UNIT, NUMBER, *names])), Table(LABELLED_ROWS), test("is not null", Field(UNIT))),
    )


def _without_list(writer: ReleaseWriter) -> ReleaseWriter:
    """Rows that are summed need not be joined to the list of groups; those that are counted again still are.

    Not where these are the same (`_unit_rows`): rows of groups that are not listed would be counted too.
    """
    aggregate = writer.release.aggregate
    if aggregate.listed is None:
        return writer
    arguments = [argument for call in aggregate.calls for argument in call.arguments]
    found = unlisted(aggregate.source, aggregate.keys, aggregate.listed, arguments)
    if found is None or not is_one_scan(relation_sql(with_key(found[0]) or found[0], ())):
        return writer
    return _over(writer, *found)


def _over(writer: ReleaseWriter, source: Relation, keys: tuple[Expression, ...] | None = None) -> ReleaseWriter:
    """The same of the rows of another relation."""
    release = writer.release
    aggregate = replace(release.aggregate, source=source, keys=keys or release.aggregate.keys)
    return replace(writer, release=replace(release, aggregate=aggregate, facts=facts_of(source)))


def with_heavy_units(rows: Query, relation: Relation, few: int, links: Linked | None = None) -> tuple[CTE, ...]:
    """The rows, and the units that have many."""
    own, counted = _own(rows, relation)
    whole = whole_table(relation)
    if whole is None:
        return own, _known(_rows_by_unit(counted, links), links), CTE(HEAVY_UNITS, _keys_of_heavy_units(few, links))
    table = Subquery(relation_sql(whole, ()), UNIT_ROWS)
    parts = own, _known(Materialized(_rows_by_unit(table, links)), links)
    if has_all_rows(relation):
        return *parts, CTE(HEAVY_UNITS, _keys_of_heavy_units(few, links))
    return *parts, CTE(HEAVY_KEYS, _keys_of_heavy_units(few, links)), *_counted_again(counted, few)


def _own(rows: Query, relation: Relation) -> tuple[CTE, Source]:
    """The rows, and the rows to count.

    For a view the same rows are counted, because two reads may differ. For one table only the unit is read to count
    rows, so rows that are in no group are counted too.
    """
    if any(isinstance(part, Scan) and part.is_view for part in parts_of(relation)):
        return CTE(UNIT_ROWS, rows, kept=True), Table(UNIT_ROWS)
    if is_one_scan(rows):
        return CTE(UNIT_ROWS, rows, kept=False), Subquery(relation_sql(relation, ()), UNIT_ROWS)
    return CTE(UNIT_ROWS, rows), Table(UNIT_ROWS)


def _known(rows_by_unit: Query, links: Linked | None) -> CTE:
    """The number of rows per unit. With a foreign key it is read twice, so it is materialized."""
    return CTE(ROWS_PER_UNIT, rows_by_unit, None if links is None else True)


def _rows_by_unit(counted: Source, links: Linked | None) -> Select:
    """The number of rows of each unit, or of each foreign key without a unit."""
    if links is None:
        return Select((*fields([UNIT]), Alias(count(), NUMBER)), counted, group_by=(Field(UNIT),))
    numbers = Select((Alias(Field(UNIT), KEY), Alias(count(), NUMBER)), counted, group_by=(Field(UNIT),))
    same_key = test("=", Field(KEY, UNIT_ROWS), Field(KEY, OWNERS))
    owned = Joined("LEFT", Subquery(numbers, UNIT_ROWS), Subquery(links.owners, OWNERS), same_key)
    unit = Field(UNIT, OWNERS)
    key = when(test("is null", unit), Field(KEY, UNIT_ROWS))
    columns = Alias(unit, UNIT), Alias(key, KEY), Alias(in_64_bits(total(Field(NUMBER))), NUMBER)
    return Select(columns, owned, group_by=(unit, key))


def _keys_of_heavy_units(few: int, links: Linked | None) -> Select:
    """The units with many rows, each by all keys that rows may know it by."""
    if links is None:
        return Select((Alias(Field(UNIT), KEY), *fields([UNIT, NUMBER])), Table(ROWS_PER_UNIT), _has_heavy_units(few))
    units = Select(tuple(fields([UNIT, NUMBER])), Table(ROWS_PER_UNIT), _has_heavy_units(few))
    return _with_numbers(Subquery(links.owners, OWNERS), OWNERS, Subquery(units, UNITS))


def _counted_again(counted: Source, few: int) -> tuple[CTE, CTE]:
    """Among the units with many rows in the whole table, those with many of these rows."""
    unit = Field(UNIT, HEAVY_KEYS)
    rows = Joined("INNER", counted, Table(HEAVY_KEYS), _is_own(KEY, HEAVY_KEYS))
    numbers = Select((Alias(unit, UNIT), Alias(count(), NUMBER)), rows, group_by=(unit,))
    units = CTE(UNITS, select(fields([UNIT, NUMBER]), numbers, _has_heavy_units(few)))
    return units, CTE(HEAVY_UNITS, _with_numbers(Table(HEAVY_KEYS), HEAVY_KEYS, Table(UNITS)))


def _with_numbers(keys: Source, name: str, units: Source) -> Select:
    """The keys of units, with the units' numbers of rows."""
    columns = Alias(Field(KEY, name), KEY), Alias(Field(UNIT, UNITS), UNIT), Alias(Field(NUMBER, UNITS), NUMBER)
    return Select(columns, Joined("INNER", keys, units, test("=", Field(UNIT, name), Field(UNIT, UNITS))))


def _has_heavy_units(few: int) -> Term:
    return test(">", Field(NUMBER), integer(few))


def _is_own(column: str, part: str) -> Term:
    """Whether the unit of a row, or its foreign key, is in this column of a part."""
    return test("=", Field(UNIT, UNIT_ROWS), Field(column, part))
