"""What stands above groups: the analyst's own tree, with columns in place of the keys and the aggregates.

SELECT region, 2 * COUNT(*) AS n ... ORDER BY n      ->      SELECT _k0, 2 * _a0 AS n ... ORDER BY n
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.expressions.parser_tree import copied, nodes, nodes_of
from dpsql.expressions.tree import Column
from dpsql.resolve.bounds import is_wrapper
from dpsql.resolve.inner import INNER, inner_column
from dpsql.resolve.syntax import (
    INTERVAL_ENDS,
    is_aggregate,
    is_grouping,
    is_interval_end,
    is_report,
    text_of,
    unaliased,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.relation.relation import AggregateCall
    from dpsql.resolve.groups import Groups
    from dpsql.resolve.scope import Scope

DIVISIONS = (exp.Div, exp.IntDiv, exp.Mod)


@dataclass(frozen=True)
class Above:
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
            return inner_column(Column(f"_k{number}", self.groups.keys[number].type))
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

    def _is_noisy(self, node: exp.Expr, followed: frozenset[str] = frozenset()) -> bool:
        """Whether it is made of an aggregate, or of an alias that stands for one."""
        for part in nodes(node):
            if is_aggregate(part):
                return True
            item = (
                self.scope.alias(part) if isinstance(part, exp.Column) and part.name.lower() not in followed else None
            )
            if item is not None and self._is_noisy(item, followed | {part.name.lower()}):
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
        """Whether both are written alike, but for parentheses and the names by which columns are called.

        A subquery, whose names are its own, is the same where its text is.
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
        """What an alias stands for, unless it is (also) a column."""
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
        raise ProgrammingError(
            f'"{node.name}" must be in GROUP BY or inside an aggregate',
            at=self.scope.resolver.place(node),
            hint=f"add {node.name} to GROUP BY, or write COUNT({node.name}), SUM({node.name}), ...",
        )

    def _grouping(self, node: exp.Expr) -> exp.Expr:
        """The bits of the keys that a total leaves out, the last one's the lowest."""
        bits: exp.Expr = exp.Literal.number(0)
        for part in node.expressions or self.groups.items:
            number = self._key(part, aliases_first=False)
            if number is None:
                raise ProgrammingError(
                    "GROUPING takes keys of the GROUP BY",
                    at=self.scope.resolver.place(node),
                    hint="name one of them",
                )
            left_out = self.left_out(number)
            bits = exp.Add(this=exp.Mul(this=bits, expression=exp.Literal.number(2)), expression=left_out)
        return exp.Paren(this=bits)

    def _report(self, node: exp.Expr) -> exp.Expr:
        """The aggregate, its 95 % interval, and the bounds in which its values are held, as JSON."""
        (call,) = node.expressions
        asked = self.groups.asked.get(id(call))
        if asked is None or isinstance(asked, list):
            raise self.scope.resolver.refuse(
                "a report is about one aggregate", node, "write COUNT(*, report_format => JSON)"
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
