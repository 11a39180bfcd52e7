"""Post-processing: the analyst's own SQL above the aggregates, over columns for keys and answers.

SELECT region, 2 * COUNT(*) AS n ... ORDER BY n      ->      SELECT _k0, 2 * _a0 AS n ... ORDER BY n
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.expressions.format import format_name
from dpsql.expressions.parser_tree import copied, nodes, nodes_of
from dpsql.expressions.tree import Column
from dpsql.schema.types import Boolean, Decimal, Double
from dpsql.sql.rows import INNER, internal_column
from dpsql.sql.syntax import (
    INTERVAL_ENDS,
    extra_clauses,
    from_nodes,
    is_aggregate,
    is_defined,
    is_grouping,
    is_interval_end,
    is_report,
    is_wrapper,
    text_of,
    unaliased,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence

    from dpsql.engines.base import PostProcessingTable
    from dpsql.relation.relation import AggregateCall, Scan
    from dpsql.schema.model import Column as DeclaredColumn
    from dpsql.schema.model import Schema
    from dpsql.sql.group_by import Groups
    from dpsql.sql.scope import Scope

DIVISIONS = (exp.Div, exp.IntDiv, exp.Mod)


@dataclass(frozen=True)
class PostProcessing:
    groups: Groups
    column: Callable[[AggregateCall], exp.Expr]
    """What stands for an aggregate."""
    subquery: Callable[[exp.Query], exp.Expr]
    """What stands for a subquery that is no part of either."""

    @property
    def scope(self) -> Scope:
        """The scope below, in which the keys and the aggregates were read."""
        return self.groups.below.scope

    def rewritten(self, node: exp.Expr, *, aliases_first: bool = False) -> exp.Expr:
        """With `aliases_first` a name that is both is an alias of the SELECT list, and not a column."""
        number = self._key(node, aliases_first=aliases_first)
        if number is not None:
            return self.key_column(number)
        if isinstance(node, exp.Column):
            return self._alias(node)
        if isinstance(node, exp.Query):
            return self.subquery(node)
        if is_interval_end(node):
            return self._interval_end(node)
        if is_grouping(node):
            return self._grouping(node)
        if is_report(node):
            return self._report(node)
        if is_aggregate(node) and id(node) in self.groups.determined:
            return internal_column(Column(self.groups.determined_name(self.groups.determined[id(node)]), Boolean()))
        if is_aggregate(node):
            return self._answer(self.groups.asked[id(node)])

        def changed(value: object) -> object:
            if isinstance(value, list):
                return [changed(part) for part in value]
            return self.rewritten(value, aliases_first=aliases_first) if isinstance(value, exp.Expr) else value

        made = type(node)(**{key: changed(value) for key, value in node.args.items()})
        made.meta.update(node.meta)  # where it is written
        if isinstance(made, DIVISIONS) and self._is_noisy(node.expression):
            # A noisy number may be 0 where none of the data is: there a quotient has no value.
            made.set("expression", exp.Nullif(this=made.expression, expression=exp.Literal.number(0)))
        return made

    def key_column(self, number: int) -> exp.Expr:
        return internal_column(Column(f"_k{number}", self.groups.keys[number].type))

    def _is_noisy(self, node: exp.Expr, propagated: frozenset[str] = frozenset()) -> bool:
        """Whether it contains an aggregate, or an alias of one."""
        for part in nodes(node):
            if is_aggregate(part):
                return True
            item = (
                self.scope.alias(part) if isinstance(part, exp.Column) and part.name.lower() not in propagated else None
            )
            if item is not None and self._is_noisy(item, propagated | {part.name.lower()}):
                return True
        return False

    def _key(self, node: exp.Expr, *, aliases_first: bool) -> int | None:
        """Which key the node is."""
        if isinstance(node, exp.Literal):
            return None  # a constant stays what it is: LIMIT 1 is not the key 1
        if isinstance(node, exp.Column) and aliases_first and self.scope.alias(node) is not None:
            return None
        return next((number for number, key in enumerate(self.groups.items) if self._is_same(node, key)), None)

    def _is_same(self, node: object, key: object) -> bool:
        """Whether both are written alike, ignoring parentheses and column qualifiers.

        Subqueries have their own names, so they are compared by their text.
        """
        if isinstance(node, list) and isinstance(key, list):
            return len(node) == len(key) and all(map(self._is_same, node, key))
        if not isinstance(node, exp.Expr) or not isinstance(key, exp.Expr):
            return (node or None) == (key or None)
        node, key = self._meant(node), self._meant(key)
        if isinstance(node, exp.Column) and isinstance(key, exp.Column):
            found = self.scope.lookup(node)
            return found is not None and found == self.scope.lookup(key)
        if isinstance(node, exp.Query):
            return isinstance(key, exp.Query) and text_of(node) == text_of(key)
        return type(node) is type(key) and all(
            self._is_same(node.args.get(clause), key.args.get(clause)) for clause in node.args.keys() | key.args.keys()
        )

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """The expression of an alias, unless the name is also a column."""
        node = unaliased(node)
        for _ in self.scope.aliases:
            if not isinstance(node, exp.Column) or self.scope.is_column(node):
                break
            node = unaliased(self.scope.alias(node) or node)
        return node

    def _answer(self, asked: AggregateCall | list[AggregateCall]) -> exp.Expr:
        return exp.Array(expressions=[*map(self.column, asked)]) if isinstance(asked, list) else self.column(asked)

    def _alias(self, node: exp.Column) -> exp.Expr:
        if self.scope.alias(node) is not None:
            return copied(node)
        if not self.scope.is_column(node):
            raise self.scope.unknown(node)
        function = node.find_ancestor(exp.Anonymous, exp.Query)
        if isinstance(function, exp.Anonymous) and not is_wrapper(function):
            raise self.scope.lowering.refuse(function)  # what is no function is said to be none, here too
        name = format_name(node.name)
        raise ProgrammingError(
            f'"{node.name}" must be in GROUP BY or inside an aggregate',
            at=self.scope.resolver.place(node),
            hint=f"add {name} to GROUP BY, or write COUNT({name}), SUM({name}), ...",
        )

    def _grouping(self, node: exp.Expr) -> exp.Expr:
        """The bits of the keys that a total leaves out, the last one's the lowest."""
        left_out: list[exp.Expr] = []
        for part in node.expressions or self.groups.items:
            number = self._key(part, aliases_first=False)
            if number is None:
                raise ProgrammingError(
                    "GROUPING takes keys of the GROUP BY",
                    at=self.scope.resolver.place(node),
                    hint="name one of them",
                )
            left_out.append(self.left_out(number))
        bits: exp.Expr = exp.Literal.number(0)
        for place, bit in enumerate(reversed(left_out)):
            bits = exp.Add(this=bits, expression=exp.Mul(this=bit, expression=exp.Literal.number(2**place)))
        return exp.Paren(this=bits)

    def _report(self, node: exp.Expr) -> exp.Expr:
        """The aggregate, its 95 % interval, and the bounds in which its values are held, as JSON."""
        (call,) = node.expressions
        asked = self.groups.asked.get(id(call))
        if asked is None or isinstance(asked, list):
            raise self.scope.resolver.refuse(
                "a report covers one aggregate", node, "write COUNT(*, report_format => JSON)"
            )
        low, high = self.groups.bounds(asked)
        ends = [exp.Anonymous(this=end, expressions=[call]) for end in INTERVAL_ENDS]
        parts = {
            "value": self._answer(asked),
            "interval": exp.Struct(
                expressions=[_named("low", self._interval_end(ends[0])), _named("high", self._interval_end(ends[1]))]
            ),
            "bounds": exp.Struct(expressions=[_named("low", low), _named("high", high)]),
        }
        report = exp.Struct(expressions=[_named(name, value) for name, value in parts.items()])
        return exp.cast(exp.Anonymous(this="to_json", expressions=[report]), "VARCHAR")

    def left_out(self, number: int) -> exp.Expr:
        """1 in the totals that leave the key out, 0 elsewhere."""
        if not self.groups.totals:
            return exp.Literal.number(0)
        column = exp.column(f"_g{number}")
        column.meta[INNER] = True
        return column

    def _interval_end(self, node: exp.Expr) -> exp.Expr:
        """DP_INTERVAL_LOW(alias), of what the alias stands for; plan_query makes a column of it."""
        (named, *more) = node.expressions or [None]
        item = (self.scope.alias(named) if isinstance(named, exp.Column) else None) or named
        if more or item is None or any(map(is_interval_end, nodes_of(item, exp.Anonymous))):
            name = node.name.upper()
            raise self.scope.resolver.refuse(f"{name} takes one aggregate", node, f"write COUNT(*) AS n, {name}(n)")
        end = exp.Anonymous(this=node.name.upper(), expressions=[self.rewritten(unaliased(item))])
        end.meta.update(node.meta | {INNER: True})
        return end


def _named(name: str, value: exp.Expr) -> exp.Expr:
    return exp.PropertyEQ(this=exp.to_identifier(name), expression=value)


# -- chosen rows -------------------------------------------------------------------------------------------------------
# Whether the finish leaves rows out by their noisy values, as HAVING, QUALIFY and ORDER BY ... LIMIT can.
#
# The largest of many noisy values is likely to be too large: what such rows are followed by are intervals that hold for
# all groups at once, and so for those that were chosen. docs/proofs/intervals.md.


def chooses_by_noise(finish: exp.Select, keys: Collection[str]) -> bool:
    where, order, distinct = (finish.args.get(clause) for clause in ("where", "order", "distinct"))
    cut = finish.args.get("limit") is not None or finish.args.get("offset") is not None
    return (
        finish.args.get("qualify") is not None
        or (where is not None and not is_made_of(where, keys))
        or (cut and order is not None and not all(_by_keys(item, finish, keys) for item in order.expressions))
        or (distinct is not None and distinct.args.get("on") is not None)
    )


def is_made_of(node: exp.Expr, keys: Collection[str]) -> bool:
    return all(column.name in keys for column in nodes_of(node, exp.Column))


def _by_keys(ordered: exp.Expr, finish: exp.Select, keys: Collection[str]) -> bool:
    """Resolves positions and names in ORDER BY to columns of the answer."""
    by = ordered.this
    if isinstance(by, exp.Literal) and by.is_int and 1 <= int(by.this) <= len(finish.expressions):
        return is_made_of(finish.expressions[int(by.this) - 1], keys)
    named = {item.alias_or_name: item for item in finish.expressions}
    if isinstance(by, exp.Column) and by.name in named and by.name not in keys:
        return is_made_of(named[by.name], keys)
    return is_made_of(by, keys)


# -- declared values ---------------------------------------------------------------------------------------------------
# Constants that no row can equal, since the schema lists the column's values: `department = 'emergency room'`.
#
# The list is public, so this is said for free; the question is answered all the same.
#
#     WHERE department = 'emergency room'  ->  no row has department 'emergency room'; did you mean 'Emergency Room'?

FEW = 8
"""So few values are all named, where none is close."""


def undeclared_constants(tree: exp.Expr, schema: Schema) -> tuple[str, ...]:
    """A sentence for each constant that is compared with a column and is not among its declared values."""
    found = (
        _sentence(column, constant.this)
        for node, constant in _compared(tree)
        for column in [declared_column(node, schema)]
        if column is not None and column.values is not None and constant.this not in column.values
    )
    return tuple(dict.fromkeys(found))


def undeclared_texts(tree: exp.Expr, values: tuple[object, ...] | None) -> list[str]:
    """The texts that a column is compared with which has these values, and none of them is."""
    return [text.this for _, text in _compared(tree) if values is not None and text.this not in values]


def _compared(tree: exp.Expr) -> Iterator[tuple[exp.Column, exp.Literal]]:
    for node in nodes_of(tree, exp.EQ, exp.NEQ, exp.In):
        sides = [node.this, *node.expressions] if isinstance(node, exp.In) else [node.this, node.expression]
        columns = [side for side in sides if isinstance(side, exp.Column)]
        texts = [side for side in sides if isinstance(side, exp.Literal) and side.is_string]
        yield from ((column, text) for column in columns for text in texts)


def declared_column(node: exp.Column, schema: Schema) -> DeclaredColumn | None:
    """The declared column that a name means, where only one table of the query's FROM has it."""
    select = node.find_ancestor(exp.Select)
    items = from_nodes(select) if select is not None else ()
    tables = [
        schema.table(item.name)
        for item in items
        if isinstance(item, exp.Table)
        and not is_defined(item)
        and (not node.table or item.alias_or_name.lower() == node.table.lower())
    ]
    columns = [column for table in tables if table is not None and (column := table.column(node.name)) is not None]
    return columns[0] if len(columns) == 1 else None


def pivoted_values(table: exp.Table, name: str, schema: Schema) -> tuple[Any, ...]:
    """What the column of a declared table can be besides NULL, for PIVOT to make columns of; nothing if not known."""
    declared = schema.table(table.name)
    column = declared.column(name) if declared is not None else None
    if column is None or isinstance(column.type, Double | Decimal):
        return ()
    return (False, True) if isinstance(column.type, Boolean) else column.values or ()


def _sentence(column: DeclaredColumn, constant: str) -> str:
    values = {str(value).lower(): str(value) for value in column.values or ()}
    close = get_close_matches(constant.lower(), values, n=1, cutoff=0.6)
    if close:
        hint = f"did you mean '{values[close[0]]}'?"
    elif len(values) <= FEW:
        hint = "it has " + ", ".join(f"'{value}'" for value in values.values())
    else:
        hint = f"it has {len(values):,} other values"
    return f"no row has {column.name} '{constant}': {hint}"


# -- passed on ---------------------------------------------------------------------------------------------------------
# Post-processing that surely makes sense: columns of one table are passed on, at most fewer of them and in order.
#
#     SELECT "_k0" AS region, _a0 AS n FROM _release_0 WHERE _a0 > 100 ORDER BY _a1 DESC LIMIT 3
#
# Most questions end so. What else stands above the aggregates may be a mistake, and is described by the engine, which
# takes longer than to write the rest of a plan.

CLAUSES = {"expressions", "from_", "where", "order", "limit"}
NUMBERS = ("BIGINT", "HUGEINT", "DOUBLE")
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
LONGEST_LIMIT = 18
"""Digits that a number of rows has for sure."""


def passthrough(query: exp.Query, tables: Sequence[PostProcessingTable]) -> tuple[tuple[str, str], ...] | None:
    """The names and types of the columns, as the engine would give them; None if only the engine can tell."""
    if not isinstance(query, exp.Select) or extra_clauses(query, CLAUSES) or len(tables) != 1:
        return None
    types = {name: kind.replace(", ", ",") for name, (kind, _) in tables[0].columns.items()}  # DECIMAL(38,2)
    items = {item.alias_or_name: item.unalias() for item in query.expressions}
    is_sound = (
        _is_table(query, tables[0].name)
        and all(items)
        and len({name.lower() for name in items}) == len(query.expressions)
        and all(_is_column(item, types) for item in items.values())
        and _is_filter(query.args.get("where"), [name for name, kind in types.items() if kind in NUMBERS])
        and _is_order(query.args.get("order"), {*types, *items})
        and _is_limit(query.args.get("limit"))
    )
    return tuple((name, types[item.name]) for name, item in items.items()) if is_sound else None


def _is_table(query: exp.Select, name: str) -> bool:
    source = query.args.get("from_")
    return source is not None and isinstance(source.this, exp.Table) and _is_named(source.this, (name,))


def _is_column(node: exp.Expr, names: Container[str]) -> bool:
    return isinstance(node, exp.Column) and _is_named(node, names)


def _is_named(node: exp.Expr, names: Container[str]) -> bool:
    return node.name in names and not extra_clauses(node, {"this"})


def _is_filter(where: exp.Expr | None, numbers: Container[str]) -> bool:
    """Whether there is none, or it compares numbers; a chain of conditions may be long."""
    pending = [] if where is None else [where.this]
    for part in pending:  # which grows on the way
        node = part.unnest()
        if isinstance(node, exp.And | exp.Or):
            pending += [node.left, node.right]
        elif not isinstance(node, COMPARISONS) or not _are_numbers((node.left, node.right), numbers):
            return False
    return True


def _are_numbers(nodes: Iterable[exp.Expr], numbers: Container[str]) -> bool:
    return all(_is_column(node, numbers) or (isinstance(node, exp.Literal) and node.is_number) for node in nodes)


def _is_order(order: exp.Expr | None, names: Container[str]) -> bool:
    return order is None or all(
        isinstance(part, exp.Ordered)
        and not extra_clauses(part, {"this", "desc", "nulls_first"})
        and _is_column(part.this, names)
        for part in order.expressions
    )


def _is_limit(limit: exp.Expr | None) -> bool:
    """Whether there is none, or it is a number of rows."""
    if limit is None:
        return True
    rows = limit.expression
    is_number = isinstance(rows, exp.Literal) and rows.is_int and len(rows.name) <= LONGEST_LIMIT
    return isinstance(limit, exp.Limit) and is_number and not extra_clauses(limit, {"expression"})


# -- public columns ----------------------------------------------------------------------------------------------------
# Which columns of a public table a finished query may read: the others need not be copied for it.
#
# Names alone decide. Too many columns are only slow, so whatever speaks of columns without their names reads all of
# them.


def columns_read(scan: Scan, query: exp.Expr) -> tuple[str, ...]:
    """The declared names of the columns that the query may read, and one at least."""
    declared = tuple(column.declared for column in scan.columns)
    if _speaks_of_all(query, scan.table.lower()):
        return declared
    names = {identifier.name.lower() for identifier in nodes_of(query, exp.Identifier)}
    return tuple(name for name in declared if name.lower() in names) or declared[:1]


def _speaks_of_all(query: exp.Expr, table: str) -> bool:
    """By a star, by columns in common, by their order, or by the whole row."""
    stars = (star for star in nodes_of(query, exp.Star) if not isinstance(star.parent, exp.Count))
    rows = {table, *(alias.name.lower() for alias in nodes_of(query, exp.TableAlias))}
    return (
        any(True for _ in stars)
        or any(True for _ in nodes_of(query, exp.Columns))
        or any(join.method for join in nodes_of(query, exp.Join))
        or any(alias.args.get("columns") for alias in nodes_of(query, exp.TableAlias))
        or any(not column.table and column.name.lower() in rows for column in nodes_of(query, exp.Column))
    )
