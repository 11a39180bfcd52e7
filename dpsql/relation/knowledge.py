"""What is known of a relation's columns, in two strengths.

`always` holds for every row that an engine may look at while it evaluates an expression: engines are free to evaluate a
projection before a filter, so a WHERE does not count. It decides whether arithmetic can overflow. `kept` holds for the
rows that survive the filters; it chooses clamps and public groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.expressions.narrow import kept_facts, narrow
from dpsql.expressions.tree import facts_of
from dpsql.relation.relation import Filter, Project, Relation, Scan

if TYPE_CHECKING:
    from dpsql.expressions.tree import Known


@dataclass(frozen=True)
class Knowledge:
    always: Known
    kept: Known


def knowledge_of(relation: Relation) -> Knowledge:
    match relation:
        case Scan():
            declared = {column.name: column.facts for column in relation.columns}
            return Knowledge(declared, declared)
        case Filter(source, condition):
            below = knowledge_of(source)
            return Knowledge(below.always, narrow(below.kept, condition))
        case Project(source, columns):
            below = knowledge_of(source)
            return Knowledge(
                {name: facts_of(expression, below.always) for name, expression in columns},
                {name: kept_facts(expression, below.kept) for name, expression in columns},
            )
