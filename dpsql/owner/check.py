"""`dpsql check --data`: exact statistics of the rows against the schema, for the data owner only.

Nothing here is private. It reads what questions will read, before bounds and lists are made true: what is not of its
type, not on its list or beyond its bounds, and how many rows and groups a person has beside how many count.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsql.display.numbers import plain, several
from dpsql.engine_sql.build import UNIT, apply, count, select, test, when
from dpsql.engine_sql.tree import AggFunc, Alias, Constant, Field, Select, Stored, TryCast
from dpsql.engine_sql.tree import Table as Source
from dpsql.engines.registry import kind_of
from dpsql.engines.tables import DATE_FORMATS, TIMESTAMP_FORMATS
from dpsql.errors import SchemaError, did_you_mean
from dpsql.relation.relation import Scan
from dpsql.relation.scan_sql import ROWS, scan_sql
from dpsql.schema.model import AUTO, Schema
from dpsql.schema.types import Date, Decimal, Double, Integer, Text, Timestamp
from dpsql.sql.rows import declared_rows, unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dpsql.engine_sql.tree import Query, Term
    from dpsql.engines.base import Engine
    from dpsql.relation.relation import ScanColumn
    from dpsql.schema.model import Table

    OpenAsWritten = Callable[[], Engine]

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


def check_copied(engine: Engine, schema: Schema, as_written: OpenAsWritten | None = None) -> None:
    """Raises SchemaError unless the rows are what the guarantees of a copied source say of them."""
    check_complete(engine, schema, as_written)
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


def check_complete(engine: Engine, schema: Schema, as_written: OpenAsWritten | None = None) -> None:
    """Raises SchemaError if a column that is not declared nullable is NULL in some row.

    `as_written` opens a text file again, each cell as its text, to tell what is empty from what cannot be read.
    """
    gaps = [gap for table in schema.tables.values() for gap in _gaps(engine, schema, table)]
    if not gaps:
        return
    cells: dict[tuple[str, str], WrittenCells] = {}
    if as_written is not None:
        with closing(as_written()) as text:
            for name in dict.fromkeys(gap.table.name for gap in gaps):
                columns = [gap.column for gap in gaps if gap.table.name == name]
                found = read_cells(engine, text, schema.tables[name], columns)
                cells |= {(name, column): each for column, each in found.items()}
    unread = {gap: cells[gap.table.name, gap.column] for gap in gaps if (gap.table.name, gap.column) in cells}
    unread = {gap: each for gap, each in unread.items() if each.unreadable}
    raise SchemaError("; ".join(gap.told(unread.get(gap)) for gap in gaps), hint=_way_to_fill(gaps, unread))


def _way_to_fill(gaps: Sequence[Gap], unread: Mapping[Gap, WrittenCells]) -> str:
    """NULL is a way out for what is empty, not for what the file writes in another way."""
    ways = _ways_to_read([(gap.table.name, each) for gap, each in unread.items()])
    if len(unread) < len(gaps):
        listed = " or may not be among the declared values" * any(gap.listed for gap in gaps if gap not in unread)
        ways.append(f"write  nullable: true  where a cell may be empty{listed}")
    return "; ".join([*ways, "dpsql check --data shows the data owner more"])


def check_readable(engine: Engine, schema: Schema, as_written: OpenAsWritten) -> None:
    """Raises SchemaError if most of a column's cells are no values of the declared type, nullable or not."""
    with closing(as_written()) as text:
        found = {
            (name, column): cells
            for name, table in schema.tables.items()
            for column, cells in read_cells(engine, text, table, list(table.columns)).items()
            if cells.are_mostly_lost
        }
    if found:
        told = (
            f"tables.{table}.columns.{column}: {cells.unreadable:,} of {several(cells.filled, 'cell', 'cells')} cannot "
            f"be read as {schema.tables[table].columns[column].type.name}"
            for (table, column), cells in found.items()
        )
        ways = _ways_to_read([(table, cells) for (table, _), cells in found.items()])
        raise SchemaError("; ".join(told), hint="; ".join(ways))


@dataclass(frozen=True)
class WrittenCells:
    """The cells of one column of a text file: how many have a text, and how many of those texts cannot be read."""

    filled: int
    unreadable: int
    better: tuple[str, ...] = ()
    """The options of `csv` each of which reads most of them, as many as any other."""

    @property
    def are_mostly_lost(self) -> bool:
        return 2 * self.unreadable > self.filled


def _ways_to_read(unread: Sequence[tuple[str, WrittenCells]]) -> list[str]:
    """What to do about the columns of these tables, each way once."""
    ways = []
    for table in dict.fromkeys(name for name, _ in unread):
        better = dict.fromkeys(cells.better for name, cells in unread if name == table and cells.better)
        if better:
            others = dict.fromkeys(other for _, *rest in better for other in rest)
            first = ", ".join(dict.fromkeys(first for first, *_ in better))
            or_else = f"; or is it  {' or '.join(others)}?" if others else ""
            ways.append(f"say how the file writes them:  csv: {{{first}}}  in tables.{table}{or_else}")
    unknown = [cells for _, cells in unread if not cells.better]
    if any(cells.are_mostly_lost for cells in unknown):
        ways.append('declare the column as text, or its format as in  csv: {date_format: "%d.%m.%Y", decimal: ","}')
    if not all(cells.are_mostly_lost for cells in unknown):
        ways.append("correct the cells that cannot be read, or declare the column as text")
    return ways


def read_cells(engine: Engine, text: Engine, table: Table, columns: Sequence[str]) -> dict[str, WrittenCells]:
    """`engine` has the rows as declared, `text` as they are written."""
    source = Source(table.name, ROWS)
    plain = [name for name in columns if table.columns[name].collected is None]
    if not plain:
        return {}
    kinds = {name: table.columns[name].type for name in plain}
    written = Select(tuple(Alias(count(Stored(name, ROWS, Text())), name) for name in plain), source)
    typed = Select(tuple(Alias(count(Stored(name, ROWS, kinds[name])), name) for name in plain), source)
    filled, read = _row(text, written), _row(engine, typed)
    return {
        name: WrittenCells(filled[name], lost, _better(text, table, name, read[name]) if lost else ())
        for name in plain
        for lost in [filled[name] - read[name]]
    }


def _better(text: Engine, table: Table, column: str, read: int) -> tuple[str, ...]:
    """The options of `csv` that read the most cells, if they read most and more than what is declared."""
    value, kind = Stored(column, ROWS, Text()), table.columns[column].type
    ways: dict[str, Term] = {}
    if isinstance(kind, Date | Timestamp):
        key, formats = (
            ("date_format", DATE_FORMATS) if isinstance(kind, Date) else ("timestamp_format", TIMESTAMP_FORMATS)
        )
        ways = {f"{key}: {json.dumps(pattern)}": _parsed(value, pattern, kind) for pattern in formats}
    elif isinstance(kind, Integer | Double | Decimal):
        comma = apply("replace", value, Constant(",", Text()), Constant(".", Text()), kind=Text())
        no_point = test("not", test("contains", value, Constant(".", Text())))
        ways = {
            'decimal: ","': TryCast(when(no_point, comma), kind),
            'decimal: "."': TryCast(value, kind),
        }
    if not ways:
        return ()
    counts = [Alias(count(value), "_n"), *(Alias(count(way), f"_w{place}") for place, way in enumerate(ways.values()))]
    whole, *found = _row(text, Select(tuple(counts), Source(table.name, ROWS))).values()
    best = max(found)
    return tuple(way for way, n in zip(ways, found, strict=True) if n == best > read and 2 * best > whole)


def _parsed(value: Term, pattern: str | None, kind: Date | Timestamp) -> Term:
    """As `written_as` reads the cells of a file."""
    if pattern is None:
        return TryCast(value, kind)
    digits = Constant("[0-9]{4}" if "%Y" in pattern else "[0-9]", Text())
    moment = apply("strptime", value, Constant(pattern, Text()), kind=Timestamp())
    return TryCast(when(test("regexp_matches", value, digits), moment), kind)


@dataclass(frozen=True, eq=False)
class Gap:
    """A column that is not declared nullable, and is NULL in some rows."""

    table: Table
    column: str
    rows: int
    whole: int

    @property
    def listed(self) -> bool:
        declared = self.table.columns[self.column]
        return declared.values is not None or declared.collected is not None

    def told(self, cells: WrittenCells | None) -> str:
        kind = self.table.columns[self.column].type.name
        unread = "" if cells is None else f", and {several(cells.unreadable, 'cell', 'cells')} cannot be read as one"
        return (
            f"tables.{self.table.name}.columns.{self.column}: {self.rows:,} of {self.whole:,} rows have no {kind} there"
            + " that is declared" * self.listed
            + unread
        )


def _gaps(engine: Engine, schema: Schema, table: Table) -> list[Gap]:
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
    return [Gap(table, name, gap, whole) for name, gap in missing.items() if gap]


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


def opener_as_written(database: object, schema: Schema) -> OpenAsWritten | None:
    """Opens the same rows with each cell as its text, if they are in text files."""
    kind = kind_of(database)
    return partial(kind.open, database, as_text(schema)) if kind.reads_text(database) else None


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

    def _cells(self, columns: list[ScanColumn], rows: Query) -> Iterator[Finding]:
        parts = {part.declared: self._measured(part) for part in columns}
        named = [Alias(term, f"{kind}_{name}") for name, terms in parts.items() for kind, term in terms.items()]
        found = _row(self.engine, select([Alias(count(), "_n"), *named], rows))
        names = [part.declared for part in columns]
        written = {} if self.text is None else read_cells(self.engine, self.text, self.table, names)
        for part in columns:
            counts = {kind: found[f"{kind}_{part.declared}"] for kind in parts[part.declared]}
            cells = written.get(part.declared, WrittenCells(0, 0))
            counts["empty"] = max(0, found["_n"] - counts["filled"] - cells.unreadable)
            yield from self._column(part, rows, counts, cells)

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

    def _column(
        self, part: ScanColumn, rows: Query, found: Mapping[str, int], cells: WrittenCells
    ) -> Iterator[Finding]:
        name, known = part.declared, part.properties
        may_be_empty = f"write  nullable: true  in tables.{self.table.name}.columns.{name}"
        refused = self.engine.copied and not known.nullable
        if lost := cells.unreadable:
            accept = f"; or {may_be_empty if refused else 'leave it so'}" * (not cells.are_mostly_lost)
            yield self._about(
                name,
                f"{several(lost, 'cell holds', 'cells hold')} no {known.type.name}, and would be NULL",
                "; ".join(_ways_to_read([(self.table.name, cells)])) + accept,
                refused=refused or cells.are_mostly_lost,
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
