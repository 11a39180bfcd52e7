"""Noise in the expressions of one SELECT: what each is made of, and the same over a replica of what is noisy in it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

from dpsql.expressions.parser_tree import copied, nodes, nodes_of
from dpsql.resolve.noise_in_columns import LOST, MARK, PLAIN, Kind, Made, NotFollowed, Rows, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
NOT_FOLLOWED = (exp.Anonymous, exp.Rand, exp.Lambda, exp.Columns, exp.WithinGroup, exp.Distinct)


@dataclass(frozen=True)
class NoiseInExpressions:
    rows_of: Callable[[exp.Query, Scope | None], Rows]
    """What a subquery gives, which may read the names of a scope."""
    scope: Scope
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
        """Whether what is noisy has a say."""
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
        if self.grouped or (by_row and (across or self.joined)) or not self._is_followed(item):
            return LOST
        return Made(Kind.NOISY, by_row=by_row, stepped=self._is_stepped(item))

    def cut(self, rows: Rows, node: exp.Expr) -> Rows:
        """The rows after ORDER BY and LIMIT."""
        order = node.args.get("order")
        by_noise = order is not None and any(self._sorts(item.this, rows) for item in order.expressions)
        is_sorted = by_noise or (order is None and rows.sorted)
        is_cut = any(node.args.get(part) is not None for part in ("limit", "offset", "fetch"))
        return replace(rows, chosen=rows.chosen or (is_cut and is_sorted), sorted=is_sorted)

    def replica(self, item: exp.Expr) -> exp.Expr:
        """The same over one replica of everything that is noisy in it."""
        tree = copied(item.unalias())
        for column in [part for part in _own(tree) if isinstance(part, exp.Column)]:
            made = self.scope.made_of(column)
            if made.kind is Kind.NOISY:
                column.set("this", exp.to_identifier(made.replica, quoted=True))
        return tree

    def _with_aliases(self, select: exp.Select) -> NoiseInExpressions:
        """A name may also stand for a column of the same SELECT, which may be made of such names itself."""
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
            with suppress(NotFollowed):  # it reads an alias that is not known yet
                if item.alias:
                    found[item.alias.lower()] = replace(self.made(item), replica=f"{item.alias}{MARK}")
        return found

    def _sorts(self, by: exp.Expr, rows: Rows) -> bool:
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
        """Whether its value is the same for all rows, and can stand beside them."""
        try:
            rows = self.rows_of(query, None)
        except NotFollowed:
            return False
        return not self.aggregates and isinstance(query.unnest(), exp.Select) and len(rows.columns) == 1

    def _parts(self, node: exp.Expr) -> Iterator[Made]:
        for part in _own(node):
            if isinstance(part, exp.Column) and not part.is_star:
                yield self.scope.made_of(part)
            elif isinstance(part, exp.Query):
                yield self._subquery(part)

    def _subquery(self, query: exp.Query) -> Made:
        """Of its one value; where noise chooses, or tests, there is nothing to replay."""
        if self.scope.depth == DEEPEST:
            raise NotFollowed("subqueries")
        rows = self.rows_of(query, self.scope)
        if not rows.chosen and not any(made.kind for _, made in rows.columns):
            return PLAIN
        is_value = isinstance(query, exp.Subquery) and not isinstance(query.parent, exp.In | exp.Exists)
        is_one = isinstance(query.unnest(), exp.Select) and len(rows.columns) == 1
        return rows.columns[0][1] if is_value and is_one and not rows.chosen else LOST

    def _is_followed(self, item: exp.Expr) -> bool:
        if not all(map(self._is_pulled, queries_in(item))):
            return False
        for node in nodes(item):
            if isinstance(node, NOT_FOLLOWED):
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
    """What it stands for in ORDER BY 1 or GROUP BY 1."""
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
