"""Error propagation: which expressions of a SELECT are noisy, and how their bootstrap replicas are computed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

from dpsql.expressions.parser_tree import copied, nodes, nodes_of
from dpsql.sql.syntax import written

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

# -- noise in columns --------------------------------------------------------------------------------------------------
# What columns are made of: nothing noisy, noise that is bootstrapped, or noise of unknown size.

SIGN = "~"
"""In the name of every replica, and in no other."""
MARK = f"{SIGN}#{SIGN}"
"""Where the number of a replica stands in its name."""


def numbered(text: str, number: int) -> str:
    """The name of one replica, or SQL over it.

    >>> numbered('"n~#~" * 2', 7)
    '"n~7" * 2'
    """
    return text.replace(MARK, f"{SIGN}{number}")


class UnknownError(Exception):
    """A clause whose columns cannot be determined."""


class Kind(IntEnum):
    PLAIN = 0
    NOISY = 1
    LOST = 2


@dataclass(frozen=True)
class Made:
    """The origin of a column: no noise, noise that is bootstrapped under the name `replicate`, or untracked noise."""

    kind: Kind = Kind.PLAIN
    replicate: str = ""
    by_row: bool = False
    """Whether only values computed from one row can be bootstrapped, since rows share noise."""
    stepped: bool = False
    """Whether it has steps or kinks. Those of many rows may all err to one side: added up, no replica tells."""

    @property
    def lost(self) -> Made:
        return LOST if self.kind else PLAIN


PLAIN = Made()
LOST = Made(Kind.LOST)


@dataclass(frozen=True)
class NoisyRows:
    """The output of a query: its columns, in order and by name, and whether noise selected or sorted its rows."""

    columns: tuple[tuple[str, Made], ...]
    chosen: bool = False
    sorted: bool = False

    def named(self, name: str) -> Made | None:
        found = [made for own, made in self.columns if own.lower() == name.lower()]
        return found[0] if len(found) == 1 else LOST if found else None

    def renamed(self, alias: exp.Expr | None) -> NoisyRows:
        names = [] if alias is None else [part.name for part in alias.args.get("columns") or []]
        columns = [(new, made) for new, (_, made) in zip(names, self.columns, strict=False)]
        return replace(self, columns=(*columns, *self.columns[len(columns) :]))


@dataclass(frozen=True)
class NoiseScope:
    """The names that an expression may read."""

    sources: Mapping[str, NoisyRows] = field(default_factory=dict)
    aliases: Mapping[str, Made] = field(default_factory=dict)
    outer: NoiseScope | None = None

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else 1 + self.outer.depth

    def made_of(self, column: exp.Column) -> Made:
        name, table = column.name, column.table.lower()
        sources = [rows for own, rows in self.sources.items() if not table or own == table]
        found = {made for rows in sources if (made := rows.named(name)) is not None}
        if found:
            return found.pop() if len(found) == 1 else LOST
        if not table and name.lower() in self.aliases:
            return self.aliases[name.lower()]
        if self.outer is None:
            raise UnknownError(name)
        return self.outer.made_of(column)


# -- noise in expressions ----------------------------------------------------------------------------------------------

Item = TypeVar("Item")

DEEPEST = 3
"""Subqueries of expressions inside of each other take several times as long for each."""
ADDING_UP = (exp.Sum, exp.Avg, exp.Count, exp.AnyValue, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)
"""Aggregates that add rows up or take one by its place; others choose among rows by their values."""
EXTREMES = (exp.Greatest, exp.Least)
"""The largest of many noisy values is likely to be too large; of two, replicas tell."""
LIMITS = (exp.GT, exp.GTE, exp.LT, exp.LTE)
"""Tests of noise whose outcome only rises or only falls with it."""
SUMS = (exp.Sum, exp.Avg, exp.Count)
STEEP = (exp.Sqrt, exp.Ln, exp.Pow)
"""What makes much of a little noise near zero, where steps and kinks tend to be."""
EVEN = (
    *(exp.Alias, exp.Column, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Sqrt, exp.Ln, exp.Exp),
    *(exp.Pow, exp.Coalesce, exp.AggFunc, exp.Window, exp.Filter, exp.Query),
)
"""What makes neither steps nor kinks of noise; all else may turn a little of it into much, or into nothing."""
UNKNOWN_ERROR = (exp.Anonymous, exp.Rand, exp.Lambda, exp.Columns, exp.WithinGroup, exp.Distinct)


@dataclass(frozen=True)
class NoiseInExpressions:
    rows_of: Callable[[exp.Query, NoiseScope | None], NoisyRows]
    """What a subquery gives, which may read the names of a scope."""
    scope: NoiseScope
    joined: bool = False
    """Whether it reads several sources."""
    chosen: bool = False
    """Whether noise chose the rows over which aggregates and windows go."""
    grouped: bool = False
    """Whether rows meet in groups by what is noisy."""
    windows: bool = False
    """Whether a window that has a name is noisy."""
    aggregates: bool = False
    """Whether rows are aggregated."""

    def over_rows_of(self, select: exp.Select) -> NoiseInExpressions:
        noise = self._with_aliases(select)
        chosen = any(rows.chosen for rows in self.scope.sources.values()) or noise._joins(select)
        grouped = noise._groups(select)
        return replace(
            noise,
            chosen=chosen or grouped or noise.reads(select.args.get("where")),
            grouped=grouped,
            windows=noise.reads(*(select.args.get("windows") or [])),
            aggregates=select.args.get("group") is not None or any(map(_aggregates, select.expressions)),
        )

    def reads(self, *parts: exp.Expr | None) -> bool:
        """Whether it depends on a noisy value."""
        return any(made.kind for part in parts if part is not None for made in self._parts(part))

    def made(self, item: exp.Expr) -> Made:
        found = list(self._parts(item))
        across = any(True for _ in nodes_of(item, exp.AggFunc, exp.Window))
        if across and self.chosen:
            return LOST
        kind = max((made.kind for made in found), default=Kind.PLAIN)
        if kind is not Kind.NOISY:
            return Made(kind)
        by_row = any(made.by_row for made in found)
        if self.grouped or (by_row and (across or self.joined)) or not self._has_known_error(item):
            return LOST
        return Made(Kind.NOISY, by_row=by_row, stepped=self._is_stepped(item))

    def cut(self, rows: NoisyRows, node: exp.Expr) -> NoisyRows:
        """The rows after ORDER BY and LIMIT."""
        order = node.args.get("order")
        by_noise = order is not None and any(self._sorts(item.this, rows) for item in order.expressions)
        is_sorted = by_noise or (order is None and rows.sorted)
        is_cut = any(node.args.get(part) is not None for part in ("limit", "offset", "fetch"))
        return replace(rows, chosen=rows.chosen or (is_cut and is_sorted), sorted=is_sorted)

    def replicate(self, item: exp.Expr) -> exp.Expr:
        """The same over one replica of everything that is noisy in it."""
        tree = copied(item.unalias())
        for column in [part for part in _own(tree) if isinstance(part, exp.Column)]:
            made = self.scope.made_of(column)
            if made.kind is Kind.NOISY:
                column.set("this", exp.to_identifier(made.replicate, quoted=True))
        return tree

    def _with_aliases(self, select: exp.Select) -> NoiseInExpressions:
        """A name may also refer to an alias in the same SELECT, whose expression may use such names too."""
        noise = self
        for _ in select.expressions:
            known = noise._aliases(select)
            if known == noise.scope.aliases:
                break
            noise = replace(noise, scope=replace(self.scope, aliases=known))
        return noise

    def _aliases(self, select: exp.Select) -> dict[str, Made]:
        found: dict[str, Made] = {}
        for item in select.expressions:
            with suppress(UnknownError):  # it reads an alias that is not known yet
                if item.alias:
                    found[item.alias.lower()] = replace(self.made(item), replicate=f"{item.alias}{MARK}")
        return found

    def _sorts(self, by: exp.Expr, rows: NoisyRows) -> bool:
        """Whether rows are sorted by what is noisy; a number or a name is a column of the answer first."""
        numbered = _by_number(by, rows.columns)
        if numbered is not None:
            return bool(numbered[1].kind)
        named = rows.named(by.name) if isinstance(by, exp.Column) and not by.table else None
        return self.reads(by) if named is None else bool(named.kind)

    def _groups(self, select: exp.Select) -> bool:
        """Whether rows are grouped by what is noisy."""
        group, items = select.args.get("group"), select.expressions
        if group is None:
            return False
        keys = [item for item in items if not item.find(exp.AggFunc)] if group.args.get("all") else []
        for part in group.expressions:
            item = _by_number(part, items)
            keys.append(part if item is None else item)
        return self.reads(*keys)

    def _joins(self, select: exp.Select) -> bool:
        """Whether rows meet by what is noisy."""
        joins = select.args.get("joins") or []
        if any(join.method for join in joins):
            return any(made.kind for rows in self.scope.sources.values() for _, made in rows.columns)
        using = (exp.column(part.name) for join in joins for part in join.args.get("using") or [])
        return self.reads(*(join.args.get("on") for join in joins), *using)

    def _is_pulled(self, query: exp.Query) -> bool:
        """Whether its value is the same for all rows, so that it can be joined to them."""
        try:
            rows = self.rows_of(query, None)
        except UnknownError:
            return False
        return not self.aggregates and isinstance(query.unnest(), exp.Select) and len(rows.columns) == 1

    def _parts(self, node: exp.Expr) -> Iterator[Made]:
        for part in _own(node):
            if isinstance(part, exp.Column) and not part.is_star:
                yield self.scope.made_of(part)
            elif isinstance(part, exp.Query):
                yield self._subquery(part)

    def _subquery(self, query: exp.Query) -> Made:
        """The origin of its single value; if noise selects or tests, nothing can be bootstrapped."""
        if self.scope.depth == DEEPEST:
            raise UnknownError("subqueries")
        rows = self.rows_of(query, self.scope)
        if not rows.chosen and not any(made.kind for _, made in rows.columns):
            return PLAIN
        is_value = isinstance(query, exp.Subquery) and not isinstance(query.parent, exp.In | exp.Exists)
        is_one = isinstance(query.unnest(), exp.Select) and len(rows.columns) == 1
        return rows.columns[0][1] if is_value and is_one and not rows.chosen else LOST

    def _has_known_error(self, item: exp.Expr) -> bool:
        if not all(map(self._is_pulled, queries_in(item))):
            return False
        for node in nodes(item):
            if isinstance(node, UNKNOWN_ERROR):
                return False
            if isinstance(node, exp.AggFunc) and not isinstance(node, ADDING_UP):
                return False
            if isinstance(node, exp.Window) and (self.windows or self.reads(*_ordering(node))):
                return False
            if isinstance(node, exp.Filter) and self.reads(node.expression):
                return False
        own = list(_own(item))
        if sum(self.reads(part) for node in own if isinstance(node, EXTREMES) for part in node.iter_expressions()) > 2:
            return False
        from_steps = any(isinstance(node, (*SUMS, *STEEP)) and self._is_stepped(node) for node in own)
        return self._has_one_limit(own) and not from_steps

    def _has_one_limit(self, own: Sequence[exp.Expr]) -> bool:
        """At most. What is true of few numbers (n = 5) is true of next to no replica, whatever holds without noise."""
        tests = [node for node in own if isinstance(node, exp.Predicate) and self.reads(node)]
        compared = [node.this for node in own if isinstance(node, exp.Case)]
        return len(tests) <= 1 and all(isinstance(node, LIMITS) for node in tests) and not self.reads(*compared)

    def _is_stepped(self, node: exp.Expr) -> bool:
        """A CASE goes in steps where its condition does."""
        others = (part for part in _own(node) if not isinstance(part, EVEN))
        steps = [part.this if isinstance(part, exp.Case | exp.If) else part for part in others]
        return self.reads(*steps) or any(made.stepped for made in self._parts(node))


def _aggregates(item: exp.Expr) -> bool:
    """Whether it has an aggregate that is not over a window."""
    found = (node for node in _own(item) if isinstance(node, exp.AggFunc))
    return any(not isinstance(node.find_ancestor(exp.Window, exp.Select), exp.Window) for node in found)


def _by_number(number: exp.Expr, items: Sequence[Item]) -> Item | None:
    """The column that a number refers to in ORDER BY 1 or GROUP BY 1."""
    place = int(number.this) if isinstance(number, exp.Literal) and number.is_int else 0
    return items[place - 1] if 1 <= place <= len(items) else None


def queries_in(node: exp.Expr) -> list[exp.Query]:
    return [part for part in _own(node) if isinstance(part, exp.Query)]


def _ordering(window: exp.Window) -> list[exp.Expr | None]:
    return [*(window.args.get("partition_by") or []), window.args.get("order")]


def _own(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression, without what is inside of its subqueries."""
    yield node
    for child in () if isinstance(node, exp.Query) else node.iter_expressions():
        yield from _own(child)


# -- error propagation -------------------------------------------------------------------------------------------------
# Which columns of an answer are noisy, and the same query once more over noise that is drawn again.
#
# The post-processing is all of SQL, so its error is found by running it again. Every noisy column has replicas of
# itself, from the releases up to the answer; what chooses and orders rows still reads the released values, so that a
# row and its replicas stand side by side:
#
#     SELECT k, n * 2 AS m FROM (SELECT _k0 AS k, _a0 AS n FROM _release_0) WHERE n > 5
#     SELECT k, n * 2 AS m, "n~1" * 2 AS "m~1", ...
#     FROM (SELECT _k0 AS k, _a0 AS n, "_a0~1" AS "n~1", ... FROM _release_0) WHERE n > 5
#
# What is not followed, such as the largest of many noisy values, is LOST: nothing is claimed of it.
# docs/proofs/intervals.md.

ONE_ROW = "(SELECT 1) AS _one_row"
"""What a SELECT without FROM reads."""


@dataclass(frozen=True)
class PropagatedError:
    """The columns of an answer, and its query with their replicas."""

    query: exp.Query = field(repr=False)
    tables: Mapping[str, NoisyRows] = field(repr=False)
    rows: NoisyRows

    def made(self, names: Sequence[str]) -> list[Made]:
        """The origins of columns by position, since some have no name; by name if a star produces some."""
        if len(names) == len(self.rows.columns):
            return [made for _, made in self.rows.columns]
        return [self.rows.named(name) or LOST for name in names]

    def sql(self, replicates: int) -> str:
        tree = copied(self.query)
        Walk(replicates).query(tree, self.tables)
        return written(tree)


def propagate_error(query: exp.Query, tables: Mapping[str, NoisyRows]) -> PropagatedError | None:
    """None where the query has clauses that are not followed; `tables` are the releases and the public ones."""
    if any(SIGN in node.name for node in nodes_of(query, exp.Identifier, exp.Literal)):
        return None  # it could be taken for the name of a replica
    try:
        return PropagatedError(query, tables, _rows_of(tables, query))
    except UnknownError:
        return None


def _rows_of(tables: Mapping[str, NoisyRows], query: exp.Query, outer: NoiseScope | None = None) -> NoisyRows:
    """The output of a query, without writing replicas into it."""
    return Walk().query(copied(query), tables, outer)


@dataclass(frozen=True)
class Walk:
    """Adds replicas to the queries that it visits: this many, or one whose name contains MARK."""

    replicates: int | None = None

    def query(
        self,
        node: exp.Expr,
        tables: Mapping[str, NoisyRows],
        outer: NoiseScope | None = None,
        places: Collection[int] | None = None,
    ) -> NoisyRows:
        """With `places`, the columns there have replicas, and no others."""
        node = node.unnest()
        tables = self._with(node, tables, outer)
        if isinstance(node, exp.Select):
            return self._select(node, tables, outer, places)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, tables, outer, places)
        raise UnknownError(node.key)

    def _with(
        self, node: exp.Expr, tables: Mapping[str, NoisyRows], outer: NoiseScope | None
    ) -> Mapping[str, NoisyRows]:
        clause = node.args.get("with_")
        if clause is None:
            return tables
        if clause.args.get("recursive"):
            raise UnknownError("RECURSIVE")
        for part in clause.expressions:
            found = self.query(part.this, tables, outer).renamed(part.args["alias"])
            tables = {**tables, part.alias.lower(): found}
        return tables

    def _set_operation(
        self,
        node: exp.SetOperation,
        tables: Mapping[str, NoisyRows],
        outer: NoiseScope | None,
        places: Collection[int] | None,
    ) -> NoisyRows:
        if places is None:
            # Both sides need replicas of the same columns: first it is seen which ones are noisy on either.
            rows = Walk().query(copied(node), tables, outer, ())
            places = [place for place, (_, made) in enumerate(rows.columns) if made.kind is Kind.NOISY]
        left, right = (self.query(side, tables, outer, places) for side in (node.left, node.right))
        if len(left.columns) != len(right.columns) or node.args.get("by_name"):
            raise UnknownError("BY NAME")
        pairs = zip(left.columns, right.columns, strict=True)
        both = [(name, _either(one, other)) for (name, one), (_, other) in pairs]
        kept = isinstance(node, exp.Union) and not node.args.get("distinct")
        if not kept:
            both = [(name, made.lost) for name, made in both]
        chosen = left.chosen or right.chosen or (not kept and any(made.kind for _, made in both))
        return NoiseInExpressions(partial(_rows_of, tables), NoiseScope()).cut(NoisyRows(tuple(both), chosen), node)

    def _select(
        self,
        select: exp.Select,
        tables: Mapping[str, NoisyRows],
        outer: NoiseScope | None,
        places: Collection[int] | None,
    ) -> NoisyRows:
        sources = self._sources(select, tables, outer)
        scope = NoiseScope(sources, {}, outer)
        noise = NoiseInExpressions(partial(_rows_of, tables), scope, joined=len(sources) > 1).over_rows_of(select)
        distinct = select.args.get("distinct")
        is_compared = distinct is not None and distinct.args.get("on") is None
        columns, added = _columns(select, noise, places, is_compared)
        joins = list(self._pulled(added, tables))
        if joins and select.args.get("from_") is None:
            select.from_(ONE_ROW, copy=False)
        for join in joins:
            select.append("joins", join)
        select.set("expressions", [*select.expressions, *self._numbered(added)])
        chosen = noise.chosen or noise.reads(select.args.get("having"), select.args.get("qualify"))
        chosen |= distinct is not None and not is_compared
        is_sorted = any(rows.sorted for rows in sources.values())
        return noise.cut(NoisyRows(tuple(columns), chosen, is_sorted), select)

    def _pulled(self, added: Sequence[exp.Expr], tables: Mapping[str, NoisyRows]) -> Iterator[exp.Join]:
        """Subqueries in replicas, as rows to join: read once, where each replica would have read its own."""
        for number, query in enumerate([query for item in added for query in queries_in(item)]):
            name, select = f"_value{number}", copied(query).unnest()
            select.set("expressions", [_renamed(select.expressions[0].unalias(), name)])
            self.query(select, tables, None, (0,))
            select.set("expressions", select.expressions[1:])
            query.replace(exp.column(exp.to_identifier(f"{name}{MARK}", quoted=True), name))
            rows = exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(name)))
            yield exp.Join(this=rows, side="LEFT", on=exp.true())

    def _numbered(self, added: Sequence[exp.Expr]) -> list[exp.Expr]:
        """The SQL of all replicas, from one template: they differ only in their numbers."""
        if self.replicates is None or not added:
            return list(added)
        texts = [written(item) for item in added]
        return [exp.Var(this=", ".join(numbered(text, number) for text in texts for number in range(self.replicates)))]

    def _sources(
        self, select: exp.Select, tables: Mapping[str, NoisyRows], outer: NoiseScope | None
    ) -> dict[str, NoisyRows]:
        if select.args.get("laterals") or select.args.get("pivots"):
            raise UnknownError("LATERAL")
        clause = select.args.get("from_")
        found = [clause.this] if clause is not None else []
        found += [join.this for join in select.args.get("joins") or []]
        rows: dict[str, NoisyRows] = {}
        for place, source in enumerate(found):
            name = source.alias_or_name or f"_source{place}"
            rows[name.lower()] = self._source(source, tables, outer).renamed(source.args.get("alias"))
        return rows

    def _source(self, source: exp.Expr, tables: Mapping[str, NoisyRows], outer: NoiseScope | None) -> NoisyRows:
        if source.args.get("pivots") or source.args.get("sample"):
            raise UnknownError("PIVOT")
        if isinstance(source, exp.Subquery):
            return self.query(source.this, tables, outer)
        if isinstance(source, exp.Values) and source.args.get("alias") is not None:
            return NoisyRows(tuple((part.name, PLAIN) for part in source.args["alias"].args.get("columns") or []))
        if isinstance(source, exp.Table) and source.name.lower() in tables:
            return tables[source.name.lower()]
        raise UnknownError(source.key)


def _either(one: Made, other: Made) -> Made:
    """The origin of a column with rows from both sides; replicas have the names of the left side."""
    worst = max(one, other, key=lambda made: made.kind)
    return Made(worst.kind, one.replicate or worst.replicate, one.by_row or other.by_row, one.stepped or other.stepped)


def _columns(
    select: exp.Select, noise: NoiseInExpressions, places: Collection[int] | None, is_compared: bool
) -> tuple[list[tuple[str, Made]], list[exp.Expr]]:
    """The columns of a SELECT, and the replicas to add."""
    columns: list[tuple[str, Made]] = []
    added: list[exp.Expr] = []
    for place, item in enumerate(select.expressions):
        if item.is_star:
            columns += _all_columns(item, noise.scope.sources, is_compared or places is not None)
            continue
        name, made = item.alias_or_name or f"_column{place}", noise.made(item)
        if is_compared:
            made = made.lost
        if made.kind is Kind.NOISY if places is None else place in places:
            made = replace(made, replicate=f"{name}{MARK}")
            added.append(_renamed(noise.replicate(item), made.replicate))
        columns.append((name, made))
    return columns, added


def _all_columns(item: exp.Expr, sources: Mapping[str, NoisyRows], by_place: bool) -> list[tuple[str, Made]]:
    """The columns of a star, with their replicas."""
    star, table = item.find(exp.Star), item.args.get("table")
    if star is None or any(star.args.values()) or (table is not None and table.name.lower() not in sources):
        raise UnknownError("*")
    chosen = sources.values() if table is None else [sources[table.name.lower()]]
    columns = [column for rows in chosen for column in rows.columns]
    if by_place and any(made.kind for _, made in columns):
        raise UnknownError("*")
    return columns


def _renamed(tree: exp.Expr, name: str) -> exp.Expr:
    return exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True))
