"""The results of a subquery: private rows, public rows, or an answer computed from releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.errors import ProgrammingError, SchemaError
from dpsql.expressions.format import format_name
from dpsql.expressions.parser_tree import nodes_of
from dpsql.expressions.properties import Properties, bounded, exact_value, one_of, property_of
from dpsql.expressions.tree import Call, Column, Literal, names_read
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Project, Relation, Scan, ScanColumn, Unit, UnitHop
from dpsql.relation.reports import report_name
from dpsql.relation.units import is_tracked
from dpsql.schema.types import Boolean, Date, Decimal, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dpsql.engines.base import Guarantees
    from dpsql.errors import Place
    from dpsql.expressions.tree import Expression
    from dpsql.schema.model import Column as DeclaredColumn
    from dpsql.schema.model import Hop, Schema, Table
    from dpsql.schema.types import ColumnType
    from dpsql.sql.from_clause import NullGroup, PreservedSide

# -- inner -------------------------------------------------------------------------------------------------------------
# Names of our own making, for columns and releases, whatever analysts call theirs.

INNER = "inner"
"""The mark of a node that is such a name."""


def internal_column(column: Column) -> exp.Column:
    node = exp.column(exp.to_identifier(column.name, quoted=True))
    node.meta[INNER] = column
    return node


def release_name(number: int) -> str:
    """The table under which the post-processing reads a release."""
    return f"_release_{number}"


def reports_name(number: int) -> str:
    """The table from which the post-processing reads the estimates of exactly counted reports."""
    return f"_reports_{number}"


def reads_release(query: exp.Expr, number: int) -> bool:
    return any(table.name == release_name(number) for table in nodes_of(query, exp.Table))


# -- unit keys ---------------------------------------------------------------------------------------------------------
# Values that tell people apart: the unit itself, a key that leads to it, and what is computed from these one to one.
#
#     u                                  the unit
#     COALESCE(a.u, b.u)                 the unit of a row of  a FULL JOIN b ON a.u = b.u
#     order_id                           a declared way to the unit
#     u + 1, -u, CAST(u AS VARCHAR)      one to one: different units have different values
#
# Rows with the same such value are of the same unit, so GROUP BY it, or DISTINCT, keeps people apart as the analyst's
# own SQL would. NULL says nothing: an outer join may have put it in for many people. docs/proofs/tracking.md.

UnitKey: TypeAlias = tuple[str, ...]
"""In which sense a value tells the unit: a table and column that foreign keys refer to, or UNIT, and then the
functions that were applied. Two values of the same sense are equal if and only if they tell the same."""
UNIT: UnitKey = ("",)

CompositeKey: TypeAlias = tuple[UnitKey, tuple[str, ...]]
"""Columns that tell the unit together, in the order of the declared reference: its target, and their inner names."""

SPELLED_APART = (Integer, Decimal, Text, Boolean, Date, Timestamp)
"""Types of which different values are different texts."""


def key_of(expression: Expression, keys: Mapping[str, UnitKey]) -> UnitKey | None:
    """How the expression tells the unit where it is not NULL, from how columns do; None if it does not."""
    match expression:
        case Column(name):
            return keys.get(name)
        case Call(function, arguments) if function.name == "COALESCE":
            senses = {key_of(argument, keys) for argument in arguments}
            return senses.pop() if len(senses) == 1 else None
        case Call():
            return _one_to_one(expression, keys)
    return None


def _one_to_one(call: Call, keys: Mapping[str, UnitKey]) -> UnitKey | None:
    """One argument tells the unit, the others are constants, and the function loses nothing of it."""
    told = [argument for argument in call.arguments if not isinstance(argument, Literal)]
    constants = [argument for argument in call.arguments if isinstance(argument, Literal)]
    if len(told) != 1 or any(constant.value is None for constant in constants):
        return None
    key = key_of(told[0], keys)
    if key is None or not _loses_nothing(call, told[0], constants):
        return None
    if call.function.name.startswith("CAST") and call.type == told[0].type:
        return key
    said = [repr(part.value) if isinstance(part, Literal) else "·" for part in call.arguments]
    return (*key, f"{call.function.name}({', '.join(said)})")


def _loses_nothing(call: Call, told: Expression, constants: list[Literal]) -> bool:
    whole = all(isinstance(part.type, Integer) for part in (call, told, *constants))
    match call.function.name:
        case "+" | "-" | "negate":
            return whole
        case "*":
            return whole and all(constant.value != 0 for constant in constants)
        case "||" | "CONCAT":
            return isinstance(told.type, SPELLED_APART) and all(isinstance(part.type, Text) for part in constants)
        case name if name.startswith("CAST"):
            return whole or (isinstance(call.type, Text) and isinstance(told.type, SPELLED_APART))
    return False


# -- rows --------------------------------------------------------------------------------------------------------------

DECLARED = "_declared_rows"
LISTED_BITS = 12
"""Reports of so many bits are written down as a list of all that there can be."""


@dataclass(frozen=True, kw_only=True)
class PrivateRows:
    """A relation under the names that a query sees: lower case, with and without the table's alias."""

    relation: Relation
    columns: Mapping[str, Column]
    unit_keys: Mapping[str, UnitKey] = field(default_factory=dict)
    """Inner names of the columns that tell the unit, unless an outer join has filled them with NULL."""
    present: frozenset[frozenset[str]] = frozenset()
    """Of each of these sets of such columns at least one is not NULL, in every row."""
    composites: frozenset[CompositeKey] = frozenset()
    """Keys of several columns of one row."""
    null_group: NullGroup | None = None
    """A group of many people that is not among these rows, and must not matter."""
    unit_type: ColumnType | None = None
    kept: PreservedSide | None = None
    """Public rows that an outer join keeps besides these."""

    @property
    def is_private(self) -> bool:
        return is_tracked(self.relation)

    @property
    def all_units(self) -> frozenset[str]:
        """The columns that are the unit itself, or NULL."""
        return frozenset(name for name, key in self.unit_keys.items() if key == UNIT)

    @property
    def unit_columns(self) -> frozenset[str]:
        """The unit columns that are never NULL."""
        return frozenset(name for name in self.all_units if frozenset({name}) in self.present)

    def key_of(self, expression: Expression) -> UnitKey | None:
        """How the expression tells the unit, unless it is NULL."""
        return key_of(expression, self.unit_keys)

    def tells_unit(self, expression: Expression) -> bool:
        """Whether rows with the same value are of the same unit: the expression tells the unit of every row."""
        if self.key_of(expression) is None:
            return False
        names = names_read(expression)
        if any(columns <= names for columns in self.present):
            return True
        known = facts_of(self.relation).surviving
        return any(not known[name].nullable for name in names)

    def tell_unit(self, expressions: Collection[Expression]) -> bool:
        """Whether rows with the same values are of the same unit, by one of them or by several together."""
        known = facts_of(self.relation).surviving
        whole = {part.name for part in expressions if isinstance(part, Column) and not known[part.name].nullable}
        return any(map(self.tells_unit, expressions)) or any(whole >= {*names} for _, names in self.composites)

    def passed_on(self, columns: Mapping[str, Expression]) -> frozenset[CompositeKey]:
        """The composite keys of which all columns are passed on, by their new names."""
        names = {value.name: name for name, value in columns.items() if isinstance(value, Column)}
        return frozenset(
            (sense, tuple(names[column] for column in columns))
            for sense, columns in self.composites
            if names.keys() >= {*columns}
        )

    def is_unit(self, expression: Expression) -> bool:
        return self.key_of(expression) == UNIT and self.tells_unit(expression)

    def is_of_unit_alone(self, expression: Expression) -> bool:
        """Whether it tells the unit and is a function of it: a unit has one value."""
        key = self.key_of(expression)
        return key is not None and key[:1] == UNIT and self.tells_unit(expression)

    @property
    def plain_columns(self) -> dict[str, Column]:
        return {name: column for name, column in self.columns.items() if "." not in name}

    @property
    def unit_names(self) -> list[str]:
        """The names by which a query may refer to the unit."""
        return self.names_of(self.unit_columns)

    def names_of(self, inner: Collection[str]) -> list[str]:
        """The names by which a query may refer to these columns, with an alias if there is one."""
        names = sorted(name for name, column in self.columns.items() if column.name in inner)
        return [name for name in names if "." in name] or names

    def called(self, alias: str) -> PrivateRows:
        """The same rows under an alias: each column is known by its name, and by alias.name."""
        plain = self.plain_columns
        return replace(self, columns=plain | {f"{alias.lower()}.{name}": found for name, found in plain.items()})

    def apart_from(self, taken: Collection[str]) -> PrivateRows:
        """The same rows with inner names that are not taken yet."""
        inner = {column.name for column in self.columns.values()}
        clashing = inner & set(taken)
        if not clashing:
            return self
        new = {name: _free_name(name, {*taken, *inner}) if name in clashing else name for name in inner}
        types = {column.name: column.type for column in self.columns.values()}
        project = Project(self.relation, tuple((new[name], Column(name, types[name])) for name in sorted(inner)))
        return replace(
            self,
            relation=project,
            columns={seen: Column(new[column.name], column.type) for seen, column in self.columns.items()},
            unit_keys={new[name]: key for name, key in self.unit_keys.items()},
            present=frozenset(frozenset(new[name] for name in columns) for columns in self.present),
            composites=frozenset(
                (sense, tuple(new.get(name, name) for name in columns)) for sense, columns in self.composites
            ),
            null_group=self.null_group and self.null_group.renamed(new),
            kept=None if self.kept is None else self.kept.renamed(new, types),
        )


@dataclass(frozen=True)
class PublicQuery:
    """A query over releases and public tables only: all of SQL may be used on it.

    Where it is nothing but rows of public tables, `rows` are these, so that it may be joined with rows of people.
    """

    tree: exp.Query | None
    rows: PrivateRows | None = None
    definition: tuple[exp.CTE, Named] | None = None
    """The WITH query that it is, and the names that are known there."""


Item: TypeAlias = PrivateRows | PublicQuery
"""What a name in FROM can stand for. `PrivateRows` are of people here; public ones are in an `PublicQuery`."""
Named: TypeAlias = Mapping[str, Item]
"""The names that WITH defines."""


def with_column_names(item: Item, alias: exp.Expr, at: Place | None) -> Item:
    """Renames the first columns, as in FROM orders AS o(a, b)."""
    names = [name.name.lower() for name in alias.args.get("columns") or ()]
    rows = item if isinstance(item, PrivateRows) else item.rows
    if not names or rows is None:
        return item
    old = rows.plain_columns
    if len(names) > len(old) or len(set(names)) < len(names):
        raise ProgrammingError(
            f"the names {', '.join(names)} do not fit {len(old)} columns", at=at, hint="give each column one name"
        )
    columns = dict(zip([*names, *list(old)[len(names) :]], old.values(), strict=True))
    if len(columns) < len(old):
        raise ProgrammingError("two columns have the same name", at=at, hint="rename one")
    renamed = replace(rows, columns=columns)
    return renamed if isinstance(item, PrivateRows) else replace(item, rows=renamed)


def _free_name(name: str, taken: Collection[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def internal_name(name: str) -> str:
    """A column's name in the engine SQL. dpsql's own names start with one underscore, so no other name may.

    Engines compare names without regard to case, quoted ones too, so all are in lower case.

    >>> internal_name("Amount"), internal_name("_unit")
    ('amount', '__unit')
    """
    return f"_{name.lower()}" if name.startswith("_") else name.lower()


def declared_rows(table: Table, schema: Schema, engine: Guarantees, *, reports: bool = True) -> PrivateRows:
    """A table as declared. Its unit is a column of its own, or is reached over foreign keys; a public one has none.

    Without `reports` collected columns are left out. Neither schema nor guarantees change, so queries share what is
    found, and with it all that is known of its scan.
    """
    found = vars(engine).setdefault(DECLARED, {})
    key = id(schema), table.name, reports
    if key not in found:
        found[key] = schema, _declared_rows(table, schema, engine, reports)
    rows: PrivateRows = found[key][1]
    return rows


def _declared_rows(table: Table, schema: Schema, engine: Guarantees, reports: bool) -> PrivateRows:
    unit = unit_of(table, schema, engine)
    own = None if unit is None else unit.path[0].column if unit.path else unit.column
    declared = {name: column for name, column in table.columns.items() if reports or column.collected is None}
    answers = tuple(
        ScanColumn(
            internal_name(name),
            name,
            declared_properties(column),
            engine.never_null(table.name, name) or (name == own and _is_whole_as_unit(column)),
            column.collected,
            _is_as_stored(column) and engine.is_unique(table.name, name, column.type),
            column.auto,
        )
        for name, column in declared.items()
    )
    is_view = any(part.view is not None for part in (table, *_owners(table, schema)))
    scan = Scan(
        table=table.name,
        unit=unit,
        columns=answers + tuple(_reports(column) for column in declared.values() if column.collected is not None),
        contribution=table.contribution,
        one_row_per_unit=unit is not None and not unit.path and engine.is_unique(table.name, unit.column, unit.type),
        declared_unique=table.unique,
        is_view=is_view,
        immutable=engine.immutable and not is_view,
    )
    columns = {column.declared.lower(): Column(column.name, column.properties.type) for column in answers}
    if unit is None or own is None:
        return PrivateRows(relation=scan, columns=columns)
    keys = _unit_keys(table, schema)
    if not unit.path:
        keys[internal_name(own)] = UNIT
    return PrivateRows(
        relation=scan,
        columns=columns,
        unit_keys=keys,
        present=frozenset({frozenset({internal_name(own)})}),
        composites=frozenset(_composite_keys(table, schema)),
        unit_type=unit.type,
    )


def _reports(column: DeclaredColumn) -> ScanColumn:
    """The reports of a collected column, under a name that no query can use."""
    assert column.collected is not None
    bits = len(column.collected.values) if column.collected.is_bits else 0
    if bits > LISTED_BITS:
        properties = property_of(column.stored_type, nullable=False)
    else:
        possible = range(2**bits) if bits else map(exact_value, column.collected.values)
        properties = one_of(column.stored_type, possible, nullable=False)
    return ScanColumn(report_name(internal_name(column.name)), column.name, properties)


def unit_of(table: Table, schema: Schema, engine: Guarantees) -> Unit | None:
    """Raises SchemaError if a row may lead to several people."""
    if table.is_public:
        return None
    hops, owner = [], table
    for hop in schema.unit_path(table.name):
        kind = owner.columns[hop.column].type
        if not engine.is_unique(hop.to_table, hop.to_column, kind):
            raise _several_people(owner, hop)
        hops.append(UnitHop(*hop, kind))
        owner = schema.tables[hop.to_table]
    assert owner.unit_column is not None
    return Unit(tuple(hops), owner.name, owner.unit_column, owner.columns[owner.unit_column].type)


def _several_people(table: Table, hop: Hop) -> SchemaError:
    there = ".".join(map(format_name, hop.to_table.split(".")))
    return SchemaError(
        f'tables.{table.name}.unit: nothing enforces that "{hop.to_table}.{hop.to_column}" is unique, so a row may '
        "belong to several people",
        hint=f"ALTER TABLE {there} ADD PRIMARY KEY ({format_name(hop.to_column)}); or refer to a column with a PRIMARY "
        f"KEY or UNIQUE constraint; where nothing enforces one (Spark, views), give {table.name} a column that "
        "identifies the person",
    )


def _owners(table: Table, schema: Schema) -> list[Table]:
    """The tables that lead from a row to its unit."""
    return [schema.tables[hop.to_table] for hop in schema.unit_path(table.name)]


def _is_whole_as_unit(column: DeclaredColumn) -> bool:
    """Rows without a unit are left out. As a column it is never NULL then, unless its declaration leaves out more."""
    return column.values is None and isinstance(column.type, Integer | Decimal | Text)


def _is_as_stored(column: DeclaredColumn) -> bool:
    """Whether different values stay different when they are read: clamping would make some of them equal."""
    return _is_whole_as_unit(column) and column.bounds is None


def _unit_keys(table: Table, schema: Schema) -> dict[str, UnitKey]:
    """The table's own foreign keys to rows of the same unit, and its columns that others' foreign keys refer to."""
    links = [link for name in schema.tables for link in schema.links(name)]
    columns = {link.to_column for link in links if link.to_table == table.name}
    columns |= {link.column for link in schema.links(table.name)}
    # A reference is not the unit itself, whatever it refers to: nothing makes it so.
    return {internal_name(name): sense for name in columns if (sense := _sense(table, name, schema)) is not None}


def _sense(table: Table, column: str, schema: Schema) -> UnitKey | None:
    """The column that foreign keys lead to in the end, or UNIT over the declared path to it."""
    seen = [(table.name, column)]
    is_path = True
    while schema.tables[seen[-1][0]].unit_column != seen[-1][1]:
        links = {link.column: link for link in schema.links(seen[-1][0])}
        if seen[-1][1] not in links:
            return seen[-1]
        link = links[seen[-1][1]]
        is_path = is_path and link in schema.unit_path(seen[-1][0])[:1]
        if (link.to_table, link.to_column) in seen:
            return min(seen[seen.index((link.to_table, link.to_column)) :])
        seen.append((link.to_table, link.to_column))
    return UNIT if is_path else None


def _composite_keys(table: Table, schema: Schema) -> Iterator[CompositeKey]:
    for name, other in schema.tables.items():
        for reference in other.references:
            if len(reference.through) > 1:
                sense = (reference.to_table, *reference.to_columns)
                if name == table.name:
                    yield sense, tuple(map(internal_name, reference.through))
                if reference.to_table == table.name:
                    yield sense, tuple(map(internal_name, reference.to_columns))


def declared_properties(column: DeclaredColumn) -> Properties:
    """The declared facts of a column; the scan enforces them."""
    if column.collected is not None:
        return one_of(column.type, map(exact_value, column.collected.values), nullable=False)
    if column.values is not None:
        return one_of(column.type, (exact_value(value) for value in column.values), nullable=column.nullable)
    if column.bounds is not None:
        low, high = (exact_value(end) for end in column.bounds)
        return bounded(column.type, low, high, nullable=column.nullable)  # type: ignore[arg-type]
    return property_of(column.type, nullable=column.nullable)
