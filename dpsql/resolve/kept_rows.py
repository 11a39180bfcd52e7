"""Public rows that an outer join keeps: a list of keys, of which every one is a group, even when nobody matches it.

    SELECT p.place, COUNT(v.id) FROM places p LEFT JOIN visits v ON v.place = p.place GROUP BY p.place

Below the release it is an inner join: the rows that nobody matches belong to nobody. They come back as groups, so what
is asked of a group must be what it is without them: keys are public columns, and an aggregate passes over the NULLs
that stand for the missing private row. docs/proofs/tracking.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.expressions.tree import Call, Column, Expression, Literal, names_read
from dpsql.relation.relation import Filter, Relation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpsql.relation.relation import AggregateCall
    from dpsql.source import Place

STRICT = frozenset(
    {
        *("=", "<>", "<", "<=", ">", ">=", "NOT", "+", "-", "*", "/", "//", "%", "negate", "LIKE", "ILIKE"),
        *("ABS", "SIGN", "FLOOR", "CEIL", "ROUND", "TRUNC", "SQRT", "LN", "LOWER", "UPPER", "LENGTH"),
        *("YEAR", "MONTH", "QUARTER", "DAY", "HOUR", "DAYOFWEEK", "DATE_TRUNC"),
    }
)
"""Functions that are NULL as soon as one argument is."""


@dataclass(frozen=True)
class Kept:
    relation: Relation
    columns: frozenset[str]
    """The inner names of its columns; the others of the join are private."""
    at: Place | None

    def refuse(self, why: str, hint: str) -> Unsupported:
        return Unsupported(f"the outer join keeps public rows that no person matches, and {why}", at=self.at, hint=hint)

    def groups(
        self, keys: Iterable[Expression], calls: Iterable[AggregateCall], conditions: Iterable[Expression]
    ) -> Relation:
        """The public rows whose keys are the groups of a release over the inner join."""
        if not all(self._is_public(key) for key in keys):
            raise self.refuse("a key is not theirs", "group by columns of the public side, or use an inner join")
        relation, inner = self.relation, False
        for condition in conditions:
            if self._is_public(condition):
                relation = Filter(relation, condition)
            elif self._never_true(condition):
                inner = True
            else:
                raise self.refuse(
                    "the WHERE may choose these", "compare columns of the private table, or use an inner join"
                )
        if not inner and not all(any(map(self._vanishes, call.arguments)) for call in calls):
            raise self.refuse(
                "an aggregate counts these too", "aggregate a column of the private table: COUNT(v.id), not COUNT(*)"
            )
        return relation

    def _is_public(self, expression: Expression) -> bool:
        return all(name in self.columns for name in names_read(expression))

    def _vanishes(self, expression: Expression) -> bool:
        """Whether it is NULL where there is no private row."""
        match expression:
            case Column(name):
                return name not in self.columns
            case Literal(value):
                return value is None
            case Call(function, (value, *_)) if function.name == "IN" or function.name.startswith("CAST"):
                return self._vanishes(value)
            case Call(function, (*branches, otherwise)) if function.name == "CASE":
                pairs = zip(branches[::2], branches[1::2], strict=True)
                taken = all(self._never_true(condition) or self._vanishes(value) for condition, value in pairs)
                return taken and self._vanishes(otherwise)
            case Call(function, arguments):
                return function.name in STRICT and any(map(self._vanishes, arguments))
        return False

    def _never_true(self, condition: Expression) -> bool:
        if isinstance(condition, Call) and condition.function.name == "AND":
            return any(map(self._never_true, condition.arguments))
        return self._vanishes(condition)
