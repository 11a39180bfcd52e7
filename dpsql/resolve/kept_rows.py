"""Public rows that an outer join keeps: a list of keys, of which every one is a group, even when nobody matches it.

    SELECT p.place, COUNT(v.id) FROM places p LEFT JOIN visits v ON v.place = p.place GROUP BY p.place

Below the release it is an inner join: the rows that nobody matches belong to nobody. They come back as groups, so what
is asked of a group must be what it is without them: keys are public columns, and an aggregate passes over the NULLs
that stand for the missing private row, or adds 0 for them. COUNT(*) does not: where each group is one public row, it is
1 of an empty group, and else the number of its pairs. docs/proofs/tracking.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpsql.errors import Unsupported
from dpsql.expressions.tree import Call, Column, Expression, names_read
from dpsql.expressions.tree import Literal as Constant
from dpsql.relation.relation import Filter, Join, Project, Relation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dpsql.relation.relation import AggregateCall
    from dpsql.resolve.rows import Rows
    from dpsql.schema.types import ColumnType
    from dpsql.source import Place

STRICT = frozenset(
    {
        *("=", "<>", "<", "<=", ">", ">=", "NOT", "+", "-", "*", "/", "//", "%", "negate", "LIKE", "ILIKE"),
        *("ABS", "SIGN", "FLOOR", "CEIL", "ROUND", "TRUNC", "SQRT", "LN", "LOWER", "UPPER", "LENGTH"),
        *("YEAR", "MONTH", "QUARTER", "DAY", "HOUR", "DAYOFWEEK", "DATE_TRUNC"),
    }
)
"""Functions that are NULL as soon as one argument is."""
UNKNOWN = object()


@dataclass(frozen=True)
class Kept:
    relation: Relation
    columns: frozenset[str]
    """The inner names of its columns; the others of the join are private."""
    at: Place | None

    def refuse(self, why: str, hint: str) -> Unsupported:
        return Unsupported(f"the outer join keeps public rows that no person matches, and {why}", at=self.at, hint=hint)

    def renamed(self, names: Mapping[str, str], types: Mapping[str, ColumnType]) -> Kept:
        """The same rows, whose columns have these names."""
        columns = tuple((names[name], Column(name, types[name])) for name in sorted(self.columns & names.keys()))
        return Kept(Project(self.relation, columns), frozenset(name for name, _ in columns), self.at)

    def projected(self, columns: Mapping[str, Expression], conditions: Iterable[Expression]) -> Kept | None:
        """The public rows that are kept below a subquery's columns; None if its WHERE leaves none of them."""
        relation = self._filtered(conditions)
        if self.is_inner(conditions):
            return None
        public = {name: value for name, value in columns.items() if self._is_public(value)}
        if not all(name in public or self._vanishes(value) for name, value in columns.items()):
            raise self.refuse("a column is made of both sides", "compute it outside, or use an inner join")
        return Kept(Project(relation, tuple(public.items())), frozenset(public), self.at)

    def groups(
        self, keys: Iterable[Expression], calls: Iterable[AggregateCall], conditions: Iterable[Expression]
    ) -> Relation:
        """The public rows whose keys are the groups of a release over the inner join."""
        if not all(self._is_public(key) for key in keys):
            raise self.refuse("a key is not theirs", "group by columns of the public side, or use an inner join")
        relation = self._filtered(conditions)
        counted = [call for call in calls if not self._adds_nothing(call)]
        if not self.is_inner(conditions) and any(call.name != "COUNT" or call.arguments for call in counted):
            raise self.refuse(
                "an aggregate counts these too", "aggregate a column of the private table: SUM(v.minutes), COUNT(v.id)"
            )
        return relation

    def _adds_nothing(self, call: AggregateCall) -> bool:
        """Whether these rows leave the aggregate as it is."""
        if any(map(self._vanishes, call.arguments)):
            return True
        values = [self._value(argument) for argument in call.arguments]
        return bool(values) and (values == [None] or (call.name == "SUM" and values in ([0], [False])))

    def joined(self, rows: Rows, kind: Literal["INNER", "LEFT"], condition: Expression | None) -> Kept | None:
        """These rows beside more public ones, where the condition reads nothing else; None if it does."""
        public = {column.name for column in rows.columns.values()}
        if rows.is_private or (condition is not None and not names_read(condition) <= self.columns | public):
            return None
        relation = Join(self.relation, rows.relation, kind, condition, by_unit_alone=False)
        return Kept(relation, self.columns | public, self.at)

    def _filtered(self, conditions: Iterable[Expression]) -> Relation:
        relation = self.relation
        for condition in conditions:
            if self._is_public(condition):
                relation = Filter(relation, condition)
            elif not self.never_true(condition):
                raise self.refuse(
                    "the WHERE may choose these", "compare columns of the private table, or use an inner join"
                )
        return relation

    def is_inner(self, conditions: Iterable[Expression]) -> bool:
        """Whether the WHERE leaves none of these rows."""
        return any(not self._is_public(condition) and self.never_true(condition) for condition in conditions)

    def _is_public(self, expression: Expression) -> bool:
        return all(name in self.columns for name in names_read(expression))

    def _vanishes(self, expression: Expression) -> bool:
        """Whether it is NULL where there is no private row."""
        match expression:
            case Column(name):
                return name not in self.columns
            case Constant(value):
                return value is None
            case Call(function, (value, *_)) if function.name == "IN" or function.name.startswith("CAST"):
                return self._vanishes(value)
            case Call(function, (*branches, otherwise)) if function.name == "CASE":
                pairs = zip(branches[::2], branches[1::2], strict=True)
                taken = all(self.never_true(condition) or self._vanishes(value) for condition, value in pairs)
                return taken and self._vanishes(otherwise)
            case Call(function, arguments):
                return function.name in STRICT and any(map(self._vanishes, arguments))
        return False

    def never_true(self, condition: Expression) -> bool:
        """Whether it holds for none of these rows, where the private columns are NULL."""
        if isinstance(condition, Call) and condition.function.name == "AND":
            return any(map(self.never_true, condition.arguments))
        return self._vanishes(condition)

    def _value(self, expression: Expression) -> object:
        """What it is where there is no private row; UNKNOWN where that is not plain to see."""
        if self._vanishes(expression):
            return None
        match expression:
            case Constant(value):
                return value
            case Call(function, (value,)) if function.name in ("IS NULL", "NOT"):
                found = self._value(value)
                if function.name == "IS NULL":
                    return UNKNOWN if found is UNKNOWN else found is None
                return not found if isinstance(found, bool) else found
            case Call(function, (*branches, otherwise)) if function.name == "CASE":
                for condition, value in zip(branches[::2], branches[1::2], strict=True):
                    holds = self._value(condition)
                    if holds is UNKNOWN or holds is True:
                        return self._value(value) if holds is True else UNKNOWN
                return self._value(otherwise)
            case Call(function, arguments) if function.name == "COALESCE":
                return next((found for found in map(self._value, arguments) if found is not None), None)
        return UNKNOWN
