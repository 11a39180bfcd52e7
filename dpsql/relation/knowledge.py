"""What is known of a relation's columns, in two strengths.

`always` holds for every row that an engine may look at while it evaluates an expression: engines are free to evaluate a
projection before a filter, so a WHERE does not count. Expressions are written with it (where can there be a NULL?),
and fail on no row whatever it says. `kept` holds for the rows that survive the filters; it chooses clamps and public
groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.expressions.emit import written
from dpsql.expressions.facts import fact_of, union
from dpsql.expressions.narrow import kept_facts, narrow
from dpsql.expressions.tree import facts_of
from dpsql.relation.once import once_per_node
from dpsql.relation.per_unit import per_unit_facts
from dpsql.relation.relation import (
    Across,
    Distinct,
    Filter,
    Join,
    Listed,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    Window,
)
from dpsql.relation.units import one_row_per_unit
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from dpsql.expressions.facts import Facts
    from dpsql.expressions.function import Written
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import WindowCall


@dataclass(frozen=True)
class Knowledge:
    always: Known
    kept: Known

    def always_of(self, expression: Expression) -> Facts:
        return facts_of(expression, self.always)


@once_per_node
def knowledge_of(relation: Relation) -> Knowledge:
    match relation:
        case Scan():
            declared = {column.name: column.facts for column in relation.columns}
            # A column that should hold no NULL may hold one all the same: the scan does not drop rows.
            return Knowledge(_maybe(declared, missing=True), declared)
        case Listed(_, columns):
            return Knowledge(dict(columns), dict(columns))
        case Filter(source, condition):
            below = knowledge_of(source)
            return Knowledge(below.always, narrow(below.kept, condition))
        case Project(source, columns):
            below = knowledge_of(source)
            return Knowledge(
                {name: replace(value.facts, parts=value.parts) for name, value in values_of(relation).items()},
                {name: kept_facts(expression, below.kept) for name, expression in columns},
            )
        case Join():
            return _joined(relation)
        case Across(left, right, _, condition):
            return _joined(Join(left, right, "INNER", condition))
        case SemiJoin(source) | Distinct(source):
            return knowledge_of(source)
        case Mark(test, name):
            below, mark = knowledge_of(test.source), {name: fact_of(Boolean(), nullable=bool(test.compared))}
            return Knowledge({**below.always, **mark}, {**below.kept, **mark})
        case SetOp(kind, left, right):
            either = _either(left, right)
            return Knowledge(either.always, knowledge_of(left).kept) if kind in ("INTERSECT", "EXCEPT") else either
        case PerUnit() | Window():
            return _by_unit(relation)


@once_per_node
def values_of(project: Relation) -> dict[str, Written]:
    """The columns of a projection, written."""
    assert isinstance(project, Project)
    known = knowledge_of(project.source).always
    return {name: written(expression, known) for name, expression in project.columns}


def _joined(join: Join) -> Knowledge:
    left, right = knowledge_of(join.left), knowledge_of(join.right)
    outer_left, outer_right = join.kind in ("RIGHT", "FULL"), join.kind in ("LEFT", "FULL")
    always = _maybe(left.always, outer_left) | _maybe(right.always, outer_right)
    if join.kind != "INNER" or join.condition is None:
        return Knowledge(always, _maybe(left.kept, outer_left) | _maybe(right.kept, outer_right))
    return Knowledge(always, narrow({**left.kept, **right.kept}, join.condition))


def _maybe(known: Known, missing: bool) -> dict[str, Facts]:
    """The columns of a side that an outer join fills with NULL."""
    return {name: replace(facts, nullable=facts.nullable or missing) for name, facts in known.items()}


def _either(left: Relation, right: Relation) -> Knowledge:
    first, second = knowledge_of(left), knowledge_of(right)
    return Knowledge(
        {name: union([facts, second.always[name]], facts.type) for name, facts in first.always.items()},
        {name: union([facts, second.kept[name]], facts.type) for name, facts in first.kept.items()},
    )


def _by_unit(relation: PerUnit | Window) -> Knowledge:
    below = knowledge_of(relation.source)
    single = one_row_per_unit(relation.source)
    if isinstance(relation, PerUnit):
        return Knowledge(
            {name: facts_of(key, below.always) for name, key in relation.keys}
            | {name: per_unit_facts(call, below.always, single) for name, call in relation.calls},
            {name: kept_facts(key, below.kept) for name, key in relation.keys}
            | {name: per_unit_facts(call, below.kept, single) for name, call in relation.calls},
        )
    return Knowledge(
        {**below.always, **{name: _window_facts(w, below.always, single) for name, w in relation.columns}},
        {**below.kept, **{name: _window_facts(w, below.kept, single) for name, w in relation.columns}},
    )


def _window_facts(window: WindowCall, known: Known, single: bool) -> Facts:
    empty = window.frame is not None and window.frame.may_be_empty
    return per_unit_facts(window.call, known, single, empty)
