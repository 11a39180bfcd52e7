"""`dpsql check --data`: exact statistics of the rows against the schema, for the data owner only.

Nothing here is private. It reads what questions will read, before bounds and lists are made true: what is not of its
type, not on its list or beyond its bounds, and how many rows and groups a person has beside how many count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpsql.display.numbers import plain, several
from dpsql.engine_sql.build import UNIT, count, select, test, when
from dpsql.engine_sql.tree import AggFunc, Alias, Constant, Field, Select, Stored
from dpsql.engine_sql.tree import Table as Source
from dpsql.errors import SchemaError, did_you_mean
from dpsql.relation.relation import Scan
from dpsql.relation.scan_sql import ROWS, scan_sql
from dpsql.schema.model import AUTO, Schema
from dpsql.schema.types import Text
from dpsql.sql.rows import declared_rows, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpsql.engine_sql.tree import Query, Term
    from dpsql.engines.base import Engine
    from dpsql.relation.relation import ScanColumn
    from dpsql.schema.model import Table

# -- completeness ------------------------------------------------------------------------------------------------------
# Whether rows are what the schema says and questions rely on: looked at when an owner opens or checks a source.
#
# A column that is not declared `nullable` should have a value in every row, and of a copied source that is relied on:
# COUNT(x) is COUNT(*) then, which saves noise. So it is counted once, in what questions will read: rows without a unit
# left out, and as NULL whatever is not of its type, or not among the declared values.
#
# A key that rows of other tables refer to, on their way to their person, must be there once, or such a row has several
# people behind it: who is taken out then decides whose it is. A database guarantees it by a constraint; of a copied
# source, whose rows nobody changes any more, it is counted. Counts are told, never values.


def check_links(engine: Engine, schema: Schema) -> None:
    """Raises SchemaError if a row may lead to several people, as far as the engine's guarantees go."""
    for table in schema.tables.values():
        unit_of(table, schema, engine.guarantees)


def check_copied(engine: Engine, schema: Schema) -> None:
    """Raises SchemaError unless the rows are what the guarantees of a copied source say of them."""
    check_complete(engine, schema)
    shared = [gap for table in schema.tables.values() for gap in _shared_keys(engine, schema, table)]
    if shared:
        raise SchemaError(
            "; ".join(shared),
            hint="a key that leads to a person must be unique: refer to another column, or add a column that "
            "identifies the person",
        )


def _shared_keys(engine: Engine, schema: Schema, table: Table) -> Iterator[str]:
    for name in sorted(schema.link_targets(table.name)):
        key = Stored(name, ROWS, table.columns[name].type)
        counted = (Alias(count(key), "_n"), Alias(AggFunc("count", (key,), distinct=True), "_keys"))
        found = engine.run(engine.render(Select(counted, Source(table.name, ROWS))))
        whole, keys = int(found["_n"][0]), int(found["_keys"][0])
        if keys < whole:
            yield f"tables.{table.name}.columns.{name}: {whole:,} rows have {keys:,} different keys"


def check_complete(engine: Engine, schema: Schema) -> None:
    """Raises SchemaError if a column that is not declared nullable is NULL in some row."""
    gaps = [gap for table in schema.tables.values() for gap in _gaps(engine, schema, table)]
    if gaps:
        raise SchemaError(
            "; ".join(gaps),
            hint="write  nullable: true  where a cell may be empty or may not match the declared type or values; "
            "text files must write dates as 2024-01-31 and numbers as 1234.5, so declare other formats as "
            "text; dpsql check --data shows the data owner more",
        )


def _gaps(engine: Engine, schema: Schema, table: Table) -> list[str]:
    scan = declared_rows(table, schema, engine.guarantees).relation
    assert isinstance(scan, Scan)
    # The reports of a collected column are a column of their own; the answers that they stand for are nowhere.
    promised = [part for part in scan.columns if not part.properties.nullable and part.collected is None]
    counts = [Alias(count(Field(part.name)), f"_c{number}") for number, part in enumerate(promised)]
    if not promised:
        return []
    rows = scan_sql(scan, [part.name for part in promised])
    found = engine.run(engine.render(select([Alias(count(), "_n"), *counts], rows)))
    whole = int(found["_n"][0])
    missing = {part.declared: whole - int(found[f"_c{number}"][0]) for number, part in enumerate(promised)}
    return [
        f"tables.{table.name}.columns.{name}: {gap:,} of {whole:,} rows have no {table.columns[name].type.name} there"
        + " that is declared" * (table.columns[name].values is not None or table.columns[name].collected is not None)
        for name, gap in missing.items()
        if gap
    ]


# -- inspection --------------------------------------------------------------------------------------------------------

MOST_SPELLINGS = 3
KEPT_WHOLE = 0.99
"""The part of the people whose rows should all count."""


@dataclass(frozen=True)
class Finding:
    """A finding about the rows of a table or column that its owner may want to fix."""

    table: str
    column: str
    found: str
    suggestion: str = ""
    refused: bool = False
    """Whether the data cannot be opened as it is."""


def as_text(schema: Schema) -> Schema:
    """The same columns, each as the text that a file has there."""
    tables = {
        name: {
            "public": True,
            "csv": table.csv.model_dump(),
            "columns": {column: {"type": "text", "nullable": True} for column in table.columns},
        }
        for name, table in schema.tables.items()
    }
    return Schema.model_validate({"dataset": schema.dataset, "tables": tables})


def inspect_rows(engine: Engine, schema: Schema, text: Engine | None) -> list[Finding]:
    """All findings, table by table. `text` has the same rows as they were written, where they come from a text file."""
    return [
        finding for table in schema.tables.values() for finding in Inspection(engine, schema, table, text).findings()
    ]


@dataclass(frozen=True)
class Inspection:
    engine: Engine
    schema: Schema
    table: Table
    text: Engine | None

    def findings(self) -> Iterator[Finding]:
        scan = declared_rows(self.table, self.schema, self.engine.guarantees).relation
        assert isinstance(scan, Scan)
        looked_at = [part for part in scan.columns if part.collected is None]
        # Typed, and not yet moved into bounds and lists.
        loose = replace(scan, columns=tuple(replace(part, properties=_loose(part)) for part in looked_at))
        rows = scan_sql(loose, [part.name for part in looked_at])
        yield from self._of_nobody(scan, rows)
        yield from self._shared_keys()
        yield from self._cells(looked_at, rows)
        if scan.unit is not None:
            yield from self._rows_per_person(rows)
            yield from self._groups_per_person(looked_at, rows)

    def _of_nobody(self, scan: Scan, rows: Query) -> Iterator[Finding]:
        whole = self._number(Select((Alias(count(), "_n"),), Source(self.table.name, ROWS)))
        if scan.unit is None:
            yield self._about("", f"{several(whole, 'row', 'rows')}, not about people")
            return
        owned = self._number(select([Alias(count(), "_n")], rows))
        people = self._number(select([Alias(AggFunc("count", (Field(UNIT),), distinct=True), "_n")], rows))
        yield self._about("", f"{several(owned, 'row', 'rows')} of {several(people, 'person', 'people')}")
        if whole > owned:
            of = "the unit is NULL, or leads to no person"
            yield self._about(
                self.table.unit_column or scan.unit.path[0].column,
                f"{several(whole - owned, 'row', 'rows')}: {of}",
                "these rows are ignored; fix them, or leave them as they are",
            )

    def _shared_keys(self) -> Iterator[Finding]:
        """In a database, shared keys are refused without reading rows, unless a constraint forbids them."""
        for name in sorted(self.schema.link_targets(self.table.name)) if self.engine.copied else ():
            key = Stored(name, ROWS, self.table.columns[name].type)
            numbers = (Alias(count(key), "rows"), Alias(AggFunc("count", (key,), distinct=True), "keys"))
            found = _row(self.engine, Select(numbers, Source(self.table.name, ROWS)))
            if found["keys"] < found["rows"]:
                yield self._about(
                    name,
                    f"{found['rows']:,} rows have {found['keys']:,} different keys, but another table reaches its "
                    "person through this key",
                    "refer to a unique column, or give the other table a column that identifies the person",
                    refused=True,
                )

    def _unreadable(self, columns: list[ScanColumn]) -> dict[str, int]:
        """The number of non-empty cells of a text file that are not of the declared type."""
        if self.text is None:
            return {part.declared: 0 for part in columns}
        source = Source(self.table.name, ROWS)
        written, typed = (
            Select(tuple(Alias(count(Stored(p.declared, ROWS, kind(p))), p.declared) for p in columns), source)
            for kind in (lambda _: Text(), lambda part: part.properties.type)
        )
        filled, read = _row(self.text, written), _row(self.engine, typed)
        return {name: filled[name] - read[name] for name in filled}

    def _cells(self, columns: list[ScanColumn], rows: Query) -> Iterator[Finding]:
        parts = {part.declared: self._measured(part) for part in columns}
        named = [Alias(term, f"{kind}_{name}") for name, terms in parts.items() for kind, term in terms.items()]
        found = _row(self.engine, select([Alias(count(), "_n"), *named], rows))
        unreadable = self._unreadable(columns)
        for part in columns:
            counts = {kind: found[f"{kind}_{part.declared}"] for kind in parts[part.declared]}
            lost = unreadable[part.declared]
            empty = max(0, found["_n"] - counts["filled"] - lost)
            yield from self._column(part, rows, {**counts, "unreadable": lost, "empty": empty})

    def _measured(self, part: ScanColumn) -> dict[str, Term]:
        """The counts for a column, by name."""
        value, known = Field(part.name), part.properties
        terms: dict[str, Term] = {"filled": count(value)}
        if known.values is not None:
            terms["listed"] = count(when(_listed(part), value))
        elif known.low is not None and known.high is not None:
            terms["below"] = count(when(test("<", value, Constant(known.low, known.type)), value))
            terms["above"] = count(when(test(">", value, Constant(known.high, known.type)), value))
        return terms

    def _column(self, part: ScanColumn, rows: Query, found: Mapping[str, int]) -> Iterator[Finding]:
        name, known = part.declared, part.properties
        may_be_empty = f"write  nullable: true  in tables.{self.table.name}.columns.{name}"
        refused = self.engine.copied and not known.nullable
        if lost := found["unreadable"]:
            yield self._about(
                name,
                f"{several(lost, 'cell holds', 'cells hold')} no {known.type.name}, and would be NULL",
                "write dates as 2024-01-31 and numbers as 1234.5 in the file, or declare the column as text; or "
                + (may_be_empty if refused else "leave it so"),
                refused=refused,
            )
        if not known.nullable and (empty := found["empty"]):
            yield self._about(name, f"{several(empty, 'cell is', 'cells are')} empty", may_be_empty, refused=refused)
        if "listed" in found and (strange := found["filled"] - found["listed"]):
            yield self._about(
                name,
                f"{several(strange, 'value is', 'values are')} not on the list: {self._spellings(part, rows)}",
                "fix the spelling, or add public values to  values; with  nullable: true  the rest is NULL",
                refused=refused,
            )
        for side, bound in (("below", known.low), ("above", known.high)):
            if beyond := found.get(side, 0):
                yield self._about(
                    name,
                    f"{several(beyond, 'value', 'values')} of {found['filled']:,} {side} {plain(bound)}, which would "
                    f"count as {plain(bound)}",
                    "if there are many and they are ordinary, move the bound",
                )

    def _spellings(self, part: ScanColumn, rows: Query) -> str:
        """The commonest of them, and what they may have been meant to be."""
        value, times = Field(part.name), Alias(count(), "_n")
        strange = test("not", _listed(part))
        found = self.engine.run(
            self.engine.render(select([Alias(value, "_value"), times], rows, strange, group_by=[value]))
        )
        counted = sorted(zip(found["_n"].tolist(), found["_value"].tolist(), strict=True), key=lambda one: -one[0])
        known = [value for value in part.properties.values or () if isinstance(value, str)]
        shown = [f"{each!r} {several(int(n), 'time', 'times')}{_meant(each, known)}" for n, each in counted]
        return ", ".join(shown[:MOST_SPELLINGS]) + ", ..." * (len(shown) > MOST_SPELLINGS)

    def _rows_per_person(self, rows: Query) -> Iterator[Finding]:
        having = self._histogram(count(), rows)
        most = self.table.contribution.max_rows_per_group
        if self.table.unique:
            if more := sum(people for n, people in having.items() if n > 1):
                yield self._about(
                    self.table.unit_column or "",
                    f"{several(more, 'person has', 'people have')} more than one row",
                    f"remove  unique: true  from tables.{self.table.name}",
                )
        elif most != AUTO and (more := sum(people for n, people in having.items() if n > most)):
            lost = sum((n - most) * people for n, people in having.items() if n > most)
            yield self._about(
                "",
                f"{_part(more, having)} have more than {several(most, 'row', 'rows')}: if all rows were in one "
                f"group, {lost:,} would not count",
                f"max_rows_per_group: {_keeping(having)} would count all rows of 99 % of them",
            )

    def _groups_per_person(self, columns: list[ScanColumn], rows: Query) -> Iterator[Finding]:
        """The number of groups per person, for every column with public groups."""
        most = self.table.contribution.max_groups
        for part in columns if not self.table.unique else []:
            if most == AUTO or part.properties.values is None or len(part.properties.values) <= most:
                continue
            declared = when(_listed(part), Field(part.name))
            having = self._histogram(AggFunc("count", (declared,), distinct=True), rows)
            if more := sum(people for n, people in having.items() if n > most):
                yield self._about(
                    part.declared,
                    f"{_part(more, having)} are in more than {several(most, 'group', 'groups')} of it",
                    f"max_groups: {_keeping(having)} would count all groups of 99 % of them",
                )

    def _histogram(self, measure: Term, rows: Query) -> dict[int, int]:
        """The number of people for each number of rows or groups."""
        each = select([Alias(measure, "_each")], rows, group_by=[Field(UNIT)])
        found = self.engine.run(
            self.engine.render(
                select([Alias(Field("_each"), "_each"), Alias(count(), "_n")], each, group_by=[Field("_each")])
            )
        )
        return {int(n): int(people) for n, people in zip(found["_each"], found["_n"], strict=True)}

    def _about(self, column: str, found: str, suggestion: str = "", *, refused: bool = False) -> Finding:
        return Finding(self.table.name, column, found, suggestion, refused)

    def _number(self, query: Query) -> int:
        (number,) = _row(self.engine, query).values()
        return number


def _loose(part: ScanColumn) -> Any:
    return replace(part.properties, low=None, high=None, values=None, nullable=True)


def _listed(part: ScanColumn) -> Term:
    known = part.properties
    return test("in", Field(part.name), *(Constant(value, known.type) for value in known.values or ()))


def _row(engine: Engine, query: Query) -> dict[str, int]:
    """The one row of a query that counts."""
    return {name: int(values[0]) for name, values in engine.run(engine.render(query)).items()}


def _meant(value: object, known: list[str]) -> str:
    hint = did_you_mean(value, known) if isinstance(value, str) else None
    return f" ({hint})" if hint and hint.startswith("did you mean") else ""


def _part(some: int, having: Mapping[int, int]) -> str:
    everybody = sum(having.values())
    return f"{some:,} of {several(everybody, 'person', 'people')}"


def _keeping(having: Mapping[int, int]) -> int:
    """The least number that nearly all people stay within."""
    wanted, within = KEPT_WHOLE * sum(having.values()), 0
    for n in sorted(having):
        within += having[n]
        if within >= wanted:
            return n
    return max(having)
