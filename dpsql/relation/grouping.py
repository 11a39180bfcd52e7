"""Columns that may be filtered but not grouped by: which columns of a relation follow from one of them.

    diagnosis: {type: text, group_by: false}

    WHERE diagnosis = 'asthma' GROUP BY region                     compared with constants: allowed
    GROUP BY diagnosis, or by CASE WHEN diagnosis = 'asthma' ...    refused
    JOIN codes ON codes.name = diagnosis GROUP BY codes.name        refused: the join would carry it into another column

The rule is the data owner's, about which questions may be asked; privacy does not rest on it. It errs on the strict
side: what is not known to be independent of such a column is taken to follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dpsql.errors import Unsupported
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.tree import names_read
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import (
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    LightUnits,
    Mark,
    PerUnit,
    Project,
    Scan,
    SemiJoin,
    SetOp,
    ValuesTable,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpsql.errors import Place
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Aggregate, AggregateCall, Relation

TELLS_A_NUMBER = ("COUNT", "COUNT_IF", "SUM", "AVG")
"""Aggregates that may read such a column: their answer is a number of many people, and none of its values."""


class Restricted(NamedTuple):
    """What follows from columns that may not be grouped by."""

    columns: frozenset[str]
    chosen: bool = False
    """Whether they decide which rows there are."""


def check_grouping(aggregate: Aggregate, may_group: Callable[[str, str], bool]) -> None:
    """Refuses groups that follow from such a column. `may_group` says so of a declared table and column."""
    at = aggregate.calls[0].at if aggregate.calls else None
    below = _Rule(may_group, at).below(aggregate.source)
    if names_read(*aggregate.keys) & below.columns:
        raise _refusal(at, "the query groups by it, or by something that follows from it")
    for call in aggregate.calls:
        if names_read(*call.arguments) & below.columns and call.name not in TELLS_A_NUMBER:
            raise _refusal(call.at, f"{call.said} would show its values")


def _refusal(at: Place | None, why: str) -> Unsupported:
    return Unsupported(
        f"the data owner lets a column of this query be filtered, but not grouped by: {why}",
        at=at,
        hint="compare it with constants in WHERE, COUNT_IF or FILTER; conn.schema shows which column it is",
    )


@dataclass(frozen=True)
class _Rule:
    may_group: Callable[[str, str], bool]
    at: Place | None

    def below(self, relation: Relation) -> Restricted:
        match relation:
            case Scan():
                found = (part for part in relation.columns if not self.may_group(relation.table, part.declared))
                return Restricted(frozenset(part.name for part in found))
            case ValuesTable():
                return Restricted(frozenset())
            case Filter():
                below = self.below(relation.source)
                return below._replace(chosen=below.chosen | self._compares([relation.condition], below.columns))
            case Project():
                below = self.below(relation.source)
                return below._replace(columns=_following(((n, [e]) for n, e in relation.columns), below.columns))
            case Window():
                below = self.below(relation.source)
                computed = (
                    (name, [*_read(window.call), *window.keys, *(order.expression for order in window.order)])
                    for name, window in relation.columns
                )
                return below._replace(columns=below.columns | _following(computed, below.columns, all_of=below.chosen))
            case PerUnit():
                below = self.below(relation.source)
                keys = [key for _, key in relation.keys]
                counted = ((name, [*_read(call), *keys]) for name, call in relation.calls)
                own = _following(((name, [key]) for name, key in relation.keys), below.columns)
                return below._replace(columns=own | _following(counted, below.columns, all_of=below.chosen))
            case Join():
                return self._joined(relation)
            case CrossUnitJoin():
                sides = self.below(relation.left), self.below(relation.right)
                columns = sides[0].columns | sides[1].columns
                compared = [relation.condition, *(side for pair in relation.pairs for side in pair)]
                if names_read(*compared) & columns:
                    raise _refusal(self.at, "it is compared between people")
                return Restricted(columns, sides[0].chosen or sides[1].chosen)
            case SemiJoin():
                below = self.below(relation.source)
                return below._replace(chosen=self._matches(relation))
            case Mark():
                below, decided = self.below(relation.source), self._matches(relation.test)
                return below._replace(columns=below.columns | ({relation.name} if decided else frozenset()))
            case SetOp():
                sides = self.below(relation.left), self.below(relation.right)
                if not (sides[0].chosen or sides[1].chosen):
                    return Restricted(sides[0].columns | sides[1].columns)
                # Which side a row is from may tell: each column may differ between them.
                return Restricted(frozenset(facts_of(relation).surviving), chosen=True)
            case Distinct() | LightUnits():
                return self.below(relation.source)

    def _joined(self, join: Join) -> Restricted:
        left, right = self.below(join.left), self.below(join.right)
        columns = left.columns | right.columns
        compares = self._compares([join.condition], columns)
        # Where rows may have no partner, that columns are NULL tells how the partners were chosen.
        if join.kind in ("LEFT", "FULL") and (right.chosen or compares):
            columns |= set(facts_of(join.right).surviving)
        if join.kind in ("RIGHT", "FULL") and (left.chosen or compares):
            columns |= set(facts_of(join.left).surviving)
        return Restricted(columns, left.chosen or right.chosen or compares)

    def _compares(self, conditions: Iterable[Expression | None], columns: frozenset[str]) -> bool:
        """Whether such a column is compared with constants; with any other column it is refused."""
        parts = [part for condition in conditions if condition is not None for part in conjuncts(condition)]
        found = [names_read(part) for part in parts]
        if any(read & columns and read - columns for read in found):
            raise _refusal(self.at, "a condition compares it with another column, which would then tell it")
        return any(read & columns for read in found)

    def _matches(self, test: SemiJoin) -> bool:
        """Whether such a column decides about a match; the rows' other columns may not be compared then."""
        here, there = self.below(test.source), self.below(test.other)
        restricted = here.columns | there.columns
        read = names_read(test.condition, *test.compared)
        if read & restricted and read - restricted - set(facts_of(test.other).surviving):
            raise _refusal(self.at, "a subquery compares it beside another column, which would then tell it")
        return here.chosen or there.chosen or bool(read & restricted)


def _following(
    computed: Iterable[tuple[str, list[Expression]]], restricted: frozenset[str], *, all_of: bool = False
) -> frozenset[str]:
    return frozenset(name for name, read in computed if all_of or names_read(*read) & restricted)


def _read(call: AggregateCall) -> tuple[Expression, ...]:
    return call.arguments
