"""Units with many rows, which is more than `few` of them: their contribution is bounded. docs/proofs/few_rows.md.

Rows are read twice: once to be counted by unit, once beside the units that have many.

    _own      the rows: _unit, the keys of their group, the values
    _many     the units with many rows, and the number of these

Where the unit is that of the row which a foreign key refers to (relation/links.py), rows are counted by that key first,
and the unit is looked up for each key. Rows are then put beside the keys whose unit has many, and never joined to
their units:

    _own      the rows: the foreign key as _unit, the keys of their group, the values
    _links    each foreign key, the number of its rows, and its unit: NULL where it leads nowhere
    _units    the units with many rows, and the number of these
    _many     the foreign keys of these units, the unit, and the number of the unit's rows
    _nowhere  the foreign keys without a unit: their rows are nobody's, and left out
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.aggregates.summed import value_rows
from dpsql.engine_sql.build import UNIT, count, fields, in_64_bits, integer, select, test, total
from dpsql.engine_sql.tree import Derived, Exists, Field, Joined, Named, Part, Select, Table, is_one_scan
from dpsql.relation.links import linked
from dpsql.relation.relation import Scan
from dpsql.relation.units import parts_of
from dpsql.relation.write import relation_sql
from dpsql.relation.write_scan import KEY, OWNERS

if TYPE_CHECKING:
    from dpsql.aggregates.summed import Summed
    from dpsql.aggregates.write_release import Writer
    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.relation.links import Linked
    from dpsql.relation.relation import Relation

OWN, LINKS, UNITS, MANY, NOWHERE = "_own", "_links", "_units", "_many", "_nowhere"
NUMBER = "_number"
"""How many rows a unit or a foreign key has."""


def beside_many(writer: Writer, summed: Summed, few: int, of_many: str) -> tuple[tuple[Part, ...], Query]:
    """These parts, and over them all rows: a column of _many, NULL unless their unit has many, the keys, the values."""
    release = writer.release
    names = [*release.key_names, *summed.values]
    links = linked(release.aggregate.source)
    if links is None:
        return with_many(writer, value_rows(writer, summed), few), _joined(of_many, names, UNIT)
    by_key = replace(writer, release=replace(release, aggregate=replace(release.aggregate, source=links.rows)))
    own, counted = _own(value_rows(by_key, summed), links.rows)
    leads_nowhere = Exists(Select((), Table(NOWHERE), _same_unit(KEY, NOWHERE)))
    owned = replace(_joined(of_many, names, KEY), where=test("not", leads_nowhere))
    return (own, *_linked_parts(links, counted, few)), owned


def with_many(writer: Writer, rows: Query, few: int) -> tuple[Part, Part]:
    """The rows, and the units that have many."""
    own, counted = _own(rows, writer.release.aggregate.source)
    numbers = Select((*fields([UNIT]), Named(count(), NUMBER)), counted, group_by=(Field(UNIT),))
    return own, Part(MANY, select(fields([UNIT, NUMBER]), numbers, _has_many(few)))


def _own(rows: Query, relation: Relation) -> tuple[Part, Source]:
    """The rows, and what is counted of them.

    Of a view the same rows are counted, since it may not read the same twice. Of one table only whose rows they are is
    read to count them, and so those that are in no group are counted too.
    """
    if any(isinstance(part, Scan) and part.is_view for part in parts_of(relation)):
        return Part(OWN, rows, kept=True), Table(OWN)
    if is_one_scan(rows):
        return Part(OWN, rows, kept=False), Derived(relation_sql(relation, ()), OWN)
    return Part(OWN, rows), Table(OWN)


def _linked_parts(links: Linked, counted: Source, few: int) -> tuple[Part, ...]:
    """_links are kept: a key belongs to the same unit wherever they are read."""
    numbers = Select((Named(Field(UNIT), KEY), Named(count(), NUMBER)), counted, group_by=(Field(UNIT),))
    same_key = test("=", Field(KEY, OWN), Field(KEY, OWNERS))
    owned = Joined("LEFT", Derived(numbers, OWN), Derived(links.owners, OWNERS), same_key)
    found = (Named(Field(KEY, OWN), KEY), Named(Field(UNIT, OWNERS), UNIT), *fields([NUMBER]))
    rows = Named(in_64_bits(total(Field(NUMBER))), NUMBER)
    by_unit = Select((*fields([UNIT]), rows), Table(LINKS), group_by=(Field(UNIT),))
    same_unit = test("=", Field(UNIT, LINKS), Field(UNIT, UNITS))
    many = (Named(Field(KEY, LINKS), KEY), Named(Field(UNIT, UNITS), UNIT), Named(Field(NUMBER, UNITS), NUMBER))
    return (
        Part(LINKS, Select(found, owned), kept=True),
        Part(UNITS, select(fields([UNIT, NUMBER]), by_unit, _has_many(few))),
        Part(MANY, Select(many, Joined("INNER", Table(LINKS), Table(UNITS), same_unit))),
        Part(NOWHERE, Select(tuple(fields([KEY])), Table(LINKS), test("is null", Field(UNIT)))),
    )


def _has_many(few: int) -> Term:
    return test(">", Field(NUMBER), integer(few))


def _same_unit(column: str, part: str) -> Term:
    """Whether the unit of a row, or its foreign key, is in this column of a part."""
    return test("=", Field(UNIT, OWN), Field(column, part))


def _joined(of_many: str, names: list[str], key: str) -> Select:
    """All rows, each beside the one of _many with its key, if there is one."""
    columns = (Named(Field(of_many, MANY), of_many), *(Named(Field(name, OWN), name) for name in names))
    return Select(columns, Joined("LEFT", Table(OWN), Table(MANY), _same_unit(key, MANY)))
