"""EXISTS and IN as conditions: whether the same unit has a row, in another relation, for which something holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine_sql.build import BELOW, NULL, TRUE, UNIT, all_of, any_of, test
from dpsql.engine_sql.tree import Case, Constant, Derived, Exists, Field, Select
from dpsql.expressions.emit import emit
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, names_read, properties_of
from dpsql.relation.implied_units import without_units
from dpsql.relation.knowledge import knowledge_of
from dpsql.relation.units import is_tracked
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from dpsql.engine_sql.tree import Query, Term
    from dpsql.expressions.tree import Expression
    from dpsql.relation.knowledge import Knowledge
    from dpsql.relation.relation import Relation, SemiJoin

    Write: TypeAlias = Callable[[Relation, Iterable[str]], Query]

OTHERS = "_others"


def test_sql(semi: SemiJoin, known: Knowledge, write: Write) -> Term:
    """Whether a row is kept, over columns of which this is known: NOT IN keeps it only where nothing is open."""
    match = _exists(semi, semi.condition, known, write)
    return all_of([test("not", part) for part in (match, *_open(semi, known, write))]) if semi.negated else match


def mark_sql(semi: SemiJoin, known: Knowledge, write: Write) -> Term:
    match, still_open = _exists(semi, semi.condition, known, write), _open(semi, known, write)
    if not still_open:
        return match
    return Case(((match, TRUE), (any_of(still_open), NULL)), Constant(False, Boolean()))


def _open(semi: SemiJoin, known: Knowledge, write: Write) -> list[Term]:
    """Tests that hold where NULLs leave open whether there is a match: some row differs in nothing that is known."""
    nullable = {**known.kept, **knowledge_of(semi.other).kept}
    missing = [
        [truth("IS NULL", side) for side in part.arguments if properties_of(side, nullable).nullable]
        for part in semi.compared
        if isinstance(part, Call)
    ]
    tests = [test for part in missing for test in part]
    if tests and len(semi.compared) > 1:
        agrees = [truth("OR", whole, *parts) for whole, parts in zip(semi.compared, missing, strict=True)]
        tests = [truth("AND", truth("OR", *tests), *agrees)]
    return [_exists(semi, test, known, write) for test in tests]


def truth(name: str, *arguments: Expression) -> Expression:
    """A condition over others, or over values."""
    return Call(FUNCTIONS[name], arguments, Boolean())


def _exists(semi: SemiJoin, condition: Expression | None, known: Knowledge, write: Write) -> Term:
    """Whether there is a row of the other relation, of the same unit, for which the condition holds."""
    other_known = knowledge_of(semi.other).properties
    other = without_units(semi.other, semi.source, condition) or semi.other
    others = Derived(write(other, names_read(condition) & set(other_known)), OTHERS)
    conditions = [emit(condition, {**known.properties, **other_known})] if condition is not None else []
    if is_tracked(semi.source) and is_tracked(other):
        conditions.append(test("=", Field(UNIT, BELOW), Field(UNIT, OTHERS)))
    return Exists(Select((), others, all_of(conditions)))
