"""An aggregate over everybody, correlated by a public key: computed first, grouped by the key, then joined.

    quantity < (SELECT 0.2 * AVG(quantity) FROM lines WHERE lines.part = parts.part)

    ->  SELECT parts.part AS k0, AVG(quantity) AS a0 FROM lines RIGHT JOIN parts ON lines.part = parts.part GROUP BY k0
        quantity < 0.2 * a0, of the row where k0 = parts.part

Where the key is one of a public table, its rows list the groups; else it is a key like any other, and rare ones are not
shown. Over nothing a SUM is NULL, as it is in SQL: the noisy count of the values tells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.schema.types import Text
from dpsql.sql.rows import PrivateRows
from dpsql.sql.scope import is_qualified
from dpsql.sql.syntax import (
    conditions_of,
    extra_clauses,
    free_name,
    from_nodes,
    is_aggregate,
    is_defined,
    is_star,
    output_name,
    unaliased,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from dpsql.schema.model import Schema, Table
    from dpsql.sql.rows import Named

# -- free columns ------------------------------------------------------------------------------------------------------
# Which columns of a query are not of its own tables: by their names alone, before anything is resolved.
#
# (SELECT COUNT(*) FROM visits v WHERE v.person = p.pid)      p.pid, which only a query around it can have

Names: TypeAlias = "tuple[str, ...] | None"
"""The columns of a table or query; None where they are not known, and any name may be one."""


def free_columns(query: exp.Expr, named: Named, schema: Schema) -> Iterator[exp.Column]:
    return _free(query, _Tables(schema, named, {}))


@dataclass(frozen=True)
class _Tables:
    """The tables that can be read by name: declared tables and WITH queries, around the query and in it."""

    schema: Schema
    named: Named
    own: Mapping[str, Names]

    def names(self, table: str, *, qualified: bool) -> Names:
        if table in self.own and not qualified:
            return self.own[table]
        if table in self.named and not qualified:
            item = self.named[table]
            rows = item if isinstance(item, PrivateRows) else item.rows
            return None if rows is None else tuple(rows.plain_columns)
        declared = self.schema.table(table)
        return None if declared is None else tuple(name.lower() for name in declared.columns)

    def with_own(self, query: exp.Expr) -> _Tables:
        clause, tables = query.args.get("with_"), self
        for part in clause.expressions if clause is not None else ():
            names = _renamed(_outputs(part.this, tables), part)
            tables = replace(tables, own={**tables.own, part.alias.lower(): names})
        return tables


def _free(query: exp.Expr, tables: _Tables) -> Iterator[exp.Column]:
    query = query.this if isinstance(query, exp.Subquery) else query
    tables = tables.with_own(query)
    if isinstance(query, exp.SetOperation):
        yield from _free(query.left, tables)
        yield from _free(query.right, tables)
    elif isinstance(query, exp.Select):
        items = [(node.alias_or_name.lower(), _item_names(node, tables)) for node in from_nodes(query)]
        aliases = {item.alias.lower() for item in query.selects if isinstance(item, exp.Alias)}
        for column in _columns(query, tables):
            is_alias = not column.table and column.name.lower() in aliases
            if not is_alias and not any(_has(alias, names, column) for alias, names in items):
                yield column


def _columns(select: exp.Select, tables: _Tables) -> Iterator[exp.Column]:
    """The columns in the query's own clauses, and the free columns of its subqueries."""
    elsewhere = {id(part) for part in (select.args.get("with_"), *from_nodes(select))}
    pending: list[exp.Expr] = [select]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Column):
            yield node
        elif isinstance(node, exp.Query) and node is not select:
            yield from _free(node, tables)
        else:
            pending.extend(reversed([part for part in node.iter_expressions() if id(part) not in elsewhere]))


def _has(alias: str, names: Names, column: exp.Column) -> bool:
    if column.table and column.table.lower() != alias:
        return False
    return names is None or column.name.lower() in names


def _item_names(node: exp.Expr, tables: _Tables) -> Names:
    """The columns of an item of FROM."""
    if isinstance(node, exp.Table):
        return _renamed(tables.names(node.name.lower(), qualified=is_qualified(node)), node)
    return _renamed(_outputs(node.this, tables), node) if isinstance(node, exp.Subquery) else None


def _renamed(names: Names, node: exp.Expr) -> Names:
    """t(a, b): the first columns have these names."""
    alias = node.args.get("alias")
    given = alias.args.get("columns") if alias is not None else None
    if not given or names is None:
        return names
    return (*(name.name.lower() for name in given), *names[len(given) :])


def _outputs(query: exp.Expr, tables: _Tables) -> Names:
    tables = tables.with_own(query)
    if isinstance(query, exp.Subquery | exp.SetOperation):
        return _outputs(query.this, tables)
    if not isinstance(query, exp.Select):
        return None
    found: list[str] = []
    for item in query.selects:
        shown = _star(item, query, tables) if item.is_star else (output_name(item).lower(),)
        if shown is None:
            return None
        for name in shown:
            found.append(free_name(name, found))
    return tuple(found)


def _star(item: exp.Expr, select: exp.Select, tables: _Tables) -> Names:
    """The columns of *, t.* or * EXCLUDE (a)."""
    table = item.table.lower() if isinstance(item, exp.Column) else ""
    star = item.this if isinstance(item, exp.Column) else item
    left_out = {part.name.lower() for part in star.args.get("except_") or ()}
    found: list[str] = []
    for node in from_nodes(select):
        if table in ("", node.alias_or_name.lower()):
            names = _item_names(node, tables)
            if names is None:
                return None
            found += [name for name in names if name not in left_out]
    return tuple(found)


# -- per key -----------------------------------------------------------------------------------------------------------

CLAUSES = {"expressions", "from_", "joins", "where"}


@dataclass(frozen=True)
class PerKey:
    """The grouped query, and the expression over its columns that replaces the subquery."""

    grouped: exp.Select
    keys: tuple[tuple[str, exp.Expr], ...]
    """The names of the grouped query's keys, and what each is equal to outside."""
    value: exp.Expr
    complete: bool
    """Whether every key of the row outside has a group."""


def grouped_by_key(select: exp.Expr, outside: Collection[int], public: PublicTables, name: str) -> PerKey | None:
    """The subquery in this form, if it can be; `outside` are the ids of its columns that are of the row outside."""
    if not isinstance(select, exp.Select) or extra_clauses(select, CLAUSES) or len(select.selects) != 1:
        return None
    parts = conditions_of(select.args.get("where"))
    links = [_link(part, outside) for part in parts if _reads(part, outside)]
    pairs = [link for link in links if link is not None]
    if not pairs or len(pairs) < len(links) or _reads(select.selects[0], outside):
        return None
    own = [part for part in parts if not _reads(part, outside)]
    listed = public.listing([its for _, its in pairs], name)
    value, calls = _named_calls(unaliased(select.selects[0]), pairs[0][0], name)
    if not calls:
        return None  # whether there is a row is not a value
    names = [f"{name}_k{number}" for number in range(len(pairs))]
    keys = [mine for mine, _ in pairs] if listed is None else [exp.column(key, listed.alias) for key in names]
    grouped = exp.Select(
        expressions=[exp.alias_(copied(key), alias) for key, alias in zip(keys, names, strict=True)]
        + [exp.alias_(call, f"{name}_{number}") for number, call in enumerate(calls)],
        from_=copied(select.args["from_"]),
        joins=[copied(join) for join in select.args.get("joins") or ()],
        group=exp.Group(expressions=[exp.Literal.number(number + 1) for number in range(len(keys))]),
    )
    if listed is not None:
        meets = [exp.EQ(this=copied(mine), expression=copied(key)) for (mine, _), key in zip(pairs, keys, strict=True)]
        grouped.append("joins", exp.Join(this=listed, side="RIGHT", on=exp.and_(*meets, *own)))
    elif own:
        grouped.set("where", exp.Where(this=exp.and_(*own)))
    return PerKey(grouped, tuple(zip(names, (its for _, its in pairs), strict=True)), value, listed is not None)


def _reads(node: exp.Expr, outside: Collection[int]) -> bool:
    return any(id(column) in outside for column in nodes_of(node, exp.Column))


def _link(part: exp.Expr, outside: Collection[int]) -> tuple[exp.Expr, exp.Expr] | None:
    """expression inside = expression outside, in this order."""
    if not isinstance(part, exp.EQ):
        return None
    for mine, its in ((part.this, part.expression), (part.expression, part.this)):
        columns = nodes_of(its, exp.Column)
        if columns and all(id(column) in outside for column in columns) and not _reads(mine, outside):
            return mine, its
    return None


def _named_calls(value: exp.Expr, present: exp.Expr, name: str) -> tuple[exp.Expr, list[exp.Expr]]:
    """The value over columns that hold its aggregates, and these; `present` is never NULL in a row that counts."""
    calls: list[exp.Expr] = []

    def column(call: exp.Expr) -> exp.Expr:
        if call not in calls:
            calls.append(call)
        return exp.column(f"{name}_{calls.index(call)}")

    def replaced(node: exp.Expr) -> exp.Expr:
        if not is_aggregate(node):
            return node
        if isinstance(node, exp.Count):
            counted = exp.Count(this=copied(present)) if is_star(node) else copied(node)
            return exp.Coalesce(this=column(counted), expressions=[exp.Literal.number(0)])
        if isinstance(node, exp.Sum):
            there = exp.GT(this=column(exp.Count(this=copied(node.this))), expression=exp.Literal.number(0))
            return exp.Case(ifs=[exp.If(this=there, true=column(copied(node)))])
        return column(copied(node))

    return copied(value).transform(replaced), calls


@dataclass(frozen=True)
class PublicTables:
    """The public tables that the query around a subquery reads."""

    select: exp.Select | None
    schema: Schema

    def listing(self, keys: Sequence[exp.Expr], name: str) -> exp.Subquery | None:
        """Each combination of keys once, by what WHERE says of the table: where all are columns of one public table."""
        columns = [unaliased(key) for key in keys]
        owners = [self.owner(column) if isinstance(column, exp.Column) else None for column in columns]
        table = owners[0]
        if self.select is None or table is None or any(owner is not table for owner in owners):
            return None
        told = [part for part in conditions_of(self.select.args.get("where")) if self._is_of(part, table)]
        listing = exp.Select(
            expressions=[exp.alias_(copied(column), f"{name}_k{number}") for number, column in enumerate(columns)],
            from_=exp.From(this=copied(table)),
            distinct=exp.Distinct(),
        )
        if told:
            listing.set("where", exp.Where(this=exp.and_(*(copied(part) for part in told))))
        return exp.Subquery(this=listing, alias=exp.TableAlias(this=exp.to_identifier(f"{name}_keys")))

    def _is_of(self, part: exp.Expr, table: exp.Expr) -> bool:
        """Whether a condition reads nothing but one table."""
        alone = not any(isinstance(node, exp.Query) for node in part.walk())
        columns = nodes_of(part, exp.Column)
        return alone and bool(columns) and all(self.owner(column) is table for column in columns)

    def owner(self, column: exp.Column) -> exp.Expr | None:
        """The public table that a column is of; None if it is of another item of FROM, or may be."""
        owners = [item for item in from_nodes(self.select) if self._may_have(item, column)] if self.select else []
        return owners[0] if len(owners) == 1 and self.declared(owners[0]) is not None else None

    def _may_have(self, item: exp.Expr, column: exp.Column) -> bool:
        if column.table:
            return item.alias_or_name.lower() == column.table.lower()
        table = self.schema.table(item.name) if isinstance(item, exp.Table) and not is_defined(item) else None
        return table is None or table.column(column.name) is not None

    def declared(self, item: exp.Expr) -> Table | None:
        plain = isinstance(item, exp.Table) and not is_defined(item) and isinstance(item.this, exp.Identifier)
        table = self.schema.table(item.name) if plain else None
        return table if table is not None and table.is_public else None


# -- determined values -------------------------------------------------------------------------------------------------
# A column of a public table that the key of the group determines: it is looked up there, with no noise and at no cost.
#
#     SELECT i.sk, ANY_VALUE(i.code), COUNT(*) FROM sales s JOIN items i ON s.item_sk = i.sk GROUP BY i.sk
#     groups LEFT JOIN (SELECT sk, ANY_VALUE(code) AS code FROM items GROUP BY sk) ON sk IS NOT DISTINCT FROM _k0
#
# That the key determines it is counted in the public rows before the charge; it is refused where it does not.

ANY = (exp.AnyValue, exp.First, exp.Last)
EXTREMES = (exp.Min, exp.Max)
"""Of texts they are supported in no other way."""


@dataclass(frozen=True)
class Determined:
    table: str
    keys: tuple[str, ...]
    """The columns that determine it, in the order of `numbers`."""
    numbers: tuple[int, ...]
    """The keys of the group that are equal to these."""
    value: str
    at: exp.Expr

    def joined(self, name: str, key: Callable[[int], exp.Expr]) -> exp.Join:
        """The table with one row for each key, beside the groups."""
        columns = [exp.alias_(exp.column(column), f"{name}_{place}") for place, column in enumerate(self.keys)]
        value = exp.alias_(exp.AnyValue(this=exp.column(self.value)), name)
        group = exp.Group(expressions=[exp.Literal.number(place + 1) for place in range(len(columns))])
        rows = exp.Select(expressions=[*columns, value], from_=exp.From(this=exp.to_table(self.table)), group=group)
        same = [
            exp.NullSafeEQ(this=exp.column(f"{name}_{place}", f"{name}_rows"), expression=key(number))
            for place, number in enumerate(self.numbers)
        ]
        alias = exp.TableAlias(this=exp.to_identifier(f"{name}_rows"))
        return exp.Join(this=exp.Subquery(this=rows, alias=alias), side="LEFT", on=exp.and_(*same))


def determined_by(keys: Sequence[exp.Expr], node: exp.Expr, select: exp.Select, schema: Schema) -> Determined | None:
    """What the aggregate is if the keys determine it: any value of a column of a public table."""
    call = node.this if isinstance(node, exp.IgnoreNulls) else node
    column = unaliased(call.this) if isinstance(call, (*ANY, *EXTREMES)) else None
    if not isinstance(column, exp.Column) or call.args.get("expressions"):
        return None
    tables = PublicTables(select, schema)
    owner = tables.owner(column)
    if owner is None or not _is_never_missing(owner, select):
        return None
    declared = tables.declared(owner)
    value = None if declared is None else declared.column(column.name)
    if declared is None or value is None or (isinstance(call, EXTREMES) and not isinstance(value.type, Text)):
        return None
    found: dict[str, int] = {}
    for number, key in enumerate(keys):
        for equal in _equal_to(key, select):
            its = declared.column(equal.name) if tables.owner(equal) is owner else None
            if its is not None:
                found.setdefault(its.name, number)
    return Determined(declared.name, tuple(found), tuple(found.values()), value.name, node) if found else None


def _is_never_missing(owner: exp.Expr, select: exp.Select) -> bool:
    """Whether no outer join leaves out its rows."""
    sides = {join.side for join in select.args.get("joins") or []}
    return sides <= {""} or (sides <= {"", "LEFT"} and from_nodes(select)[0] is owner)


def _equal_to(key: exp.Expr, select: exp.Select) -> Iterator[exp.Column]:
    """The key, if it is a column, and the columns that a condition of the query equates with it."""
    if not isinstance(key, exp.Column):
        return
    yield key
    ons = [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
    conditions = [part for on in ons for part in conditions_of(exp.Where(this=copied(on)))]
    for part in [*conditions_of(select.args.get("where")), *conditions]:
        if isinstance(part, exp.EQ):
            for mine, its in ((part.this, part.expression), (part.expression, part.this)):
                if mine == key and isinstance(its, exp.Column):
                    yield its
