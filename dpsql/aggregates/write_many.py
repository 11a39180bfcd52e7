"""Which units have more than a few rows. docs/proofs/few_rows.md.

    _own     the rows: _unit, the keys, the values
    _many    the units with more than a few of them, and how many

Where a unit is found over a foreign key, rows are counted by key before it is looked up, and need not be joined to
their units at all:

    _own      the rows: the foreign key in the place of _unit, the keys, the values
    _links    each foreign key, how many rows have it, and its unit: NULL where it leads nowhere
    _units    the units with more than a few rows, and how many
    _many     the foreign keys that lead to one of these
    _nowhere  those that lead to none: their rows are nobody's, and left out
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
from dpsql.relation.write_scan import KEY, OWNERS

if TYPE_CHECKING:
    from dpsql.aggregates.summed import Summed
    from dpsql.aggregates.write_release import Writer
    from dpsql.engine_sql.tree import Query, Term
    from dpsql.relation.links import Linked

OWN, LINKS, UNITS, MANY, NOWHERE = "_own", "_links", "_units", "_many", "_nowhere"
NUMBER = "_number"


def beside_many(writer: Writer, summed: Summed, few: int, of_many: str) -> tuple[tuple[Part, ...], Query]:
    """The parts, and of all rows the keys, the values, and a column of _many: NULL unless their unit has many."""
    release = writer.release
    names = [*release.key_names, *summed.values]
    links = linked(release.aggregate.source)
    if links is None:
        return with_many(writer, value_rows(writer, summed), few), _joined(of_many, names, UNIT)
    by_key = replace(writer, release=replace(release, aggregate=replace(release.aggregate, source=links.rows)))
    rows, leads_nowhere = _joined(of_many, names, KEY), Exists(Select((), Table(NOWHERE), _is_own(KEY, NOWHERE)))
    parts = _own(writer, value_rows(by_key, summed)), *_many_keys(links, few)
    return parts, replace(rows, where=test("not", leads_nowhere))


def with_many(writer: Writer, rows: Query, few: int) -> tuple[Part, Part]:
    """The rows, and the units that have more than a few of them."""
    numbers = Select((*fields([UNIT]), Named(count(), NUMBER)), Table(OWN), group_by=(Field(UNIT),))
    return _own(writer, rows), Part(MANY, select(fields([UNIT, NUMBER]), numbers, _is_more(few)))


def _own(writer: Writer, rows: Query) -> Part:
    """The rows that are counted are those that are summed, whatever a view may read twice."""
    if any(isinstance(part, Scan) and part.is_view for part in parts_of(writer.release.aggregate.source)):
        return Part(OWN, rows, kept=True)
    return Part(OWN, rows, kept=False if is_one_scan(rows) else None)


def _many_keys(links: Linked, few: int) -> tuple[Part, ...]:
    """The links are kept, so that whoever a key belongs to is the same for all that read them."""
    numbers = Select((Named(Field(UNIT), KEY), Named(count(), NUMBER)), Table(OWN), group_by=(Field(UNIT),))
    same_key = test("=", Field(KEY, OWN), Field(KEY, OWNERS))
    owned = Joined("LEFT", Derived(numbers, OWN), Derived(links.owners, OWNERS), same_key)
    found = (Named(Field(KEY, OWN), KEY), Named(Field(UNIT, OWNERS), UNIT), *fields([NUMBER]))
    rows = Named(in_64_bits(total(Field(NUMBER))), NUMBER)
    by_unit = Select((*fields([UNIT]), rows), Table(LINKS), group_by=(Field(UNIT),))
    same_unit = test("=", Field(UNIT, LINKS), Field(UNIT, UNITS))
    many = (Named(Field(KEY, LINKS), KEY), Named(Field(UNIT, UNITS), UNIT), Named(Field(NUMBER, UNITS), NUMBER))
    return (
        Part(LINKS, Select(found, owned), kept=True),
        Part(UNITS, select(fields([UNIT, NUMBER]), by_unit, _is_more(few))),
        Part(MANY, Select(many, Joined("INNER", Table(LINKS), Table(UNITS), same_unit))),
        Part(NOWHERE, Select(tuple(fields([KEY])), Table(LINKS), test("is null", Field(UNIT)))),
    )


def _is_more(few: int) -> Term:
    return test(">", Field(NUMBER), integer(few))


def _is_own(key: str, of: str) -> Term:
    return test("=", Field(UNIT, OWN), Field(key, of))


def _joined(of_many: str, names: list[str], key: str) -> Select:
    columns = (Named(Field(of_many, MANY), of_many), *(Named(Field(name, OWN), name) for name in names))
    return Select(columns, Joined("LEFT", Table(OWN), Table(MANY), _is_own(key, MANY)))
