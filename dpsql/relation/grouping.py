"""Columns that may be filtered but not grouped by: which columns of a relation follow from one of them.

    diagnosis: {type: text, group_by: false}

    WHERE diagnosis = 'asthma' GROUP BY region                     compared with constants: allowed
    GROUP BY diagnosis, or by CASE WHEN diagnosis = 'asthma' ...    refused
    JOIN codes ON codes.name = diagnosis GROUP BY codes.name        refused: the join would carry it into another column
    FROM visits, codes ... COUNT_IF(diagnosis = codes.name)         refused: so would a count for each other row

The rule is the data owner's, about which questions may be asked; privacy does not rest on it. It errs on the strict
side: what is not known to be independent of such a column is taken to follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dpsql.errors import Unsupported
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.tree import Call, names_read
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
from dpsql.relation.units import unit_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpsql.errors import Place
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Aggregate, AggregateCall, Relation

TELLS_A_NUMBER = ("COUNT", "COUNT_IF", "SUM", "AVG")
"""Aggregates that may read such a column: their answer is a number of many people, and none of its values."""
THEN_ELSE = 3
"""The arguments of CASE WHEN condition THEN value ELSE other END."""


class Restricted(NamedTuple):
    """What follows from columns that may not be grouped by."""

    columns: frozenset[str]
    chosen: bool = False
    """Whether they decide which rows there are."""
    mixed: frozenset[str] = frozenset()
    """Those that follow from such a column and from another one: whoever filters by them compares the two."""


def check_grouping(aggregate: Aggregate, may_group: Callable[[str, str], bool]) -> None:
    """Refuses groups that follow from such a column. `may_group` says so of a declared table and column."""
    at = aggregate.calls[0].at if aggregate.calls else None
    rule = _Rule(may_group, at)
    below = rule.below(aggregate.source)
    if names_read(*aggregate.keys) & below.columns:
        raise _refusal(at, "the query groups by it, or by something that follows from it")
    for call in aggregate.calls:
        if names_read(*call.arguments) & below.columns and call.name not in TELLS_A_NUMBER:
            raise _refusal(call.at, f"{call.said} would show its values")
        rule.check_counted(call, below)


def _refusal(at: Place | None, why: str) -> Unsupported:
    return Unsupported(
        f"the data owner lets a column of this query be filtered, but not grouped by: {why}",
        at=at,
        hint="compare it with constants in WHERE, COUNT_IF or FILTER; conn.schema shows which column it is",
    )


COMPARED = "a condition compares it with another column, which would then tell it"


@dataclass(frozen=True)
class _Rule:
    may_group: Callable[[str, str], bool]
    at: Place | None

    def check_counted(self, call: AggregateCall, below: Restricted) -> None:
        """What is counted or summed is a condition as WHERE has it, or another value where such a condition holds."""
        for argument in call.arguments:
            conditions: list[Expression] = [argument]
            if isinstance(argument, Call) and argument.function.name == "CASE" and len(argument.arguments) <= THEN_ELSE:
                condition, value, *other = argument.arguments
                if not names_read(value) & below.columns and not names_read(*other):
                    conditions = [condition]
            self._compares(conditions, below)

    def below(self, relation: Relation) -> Restricted:
        match relation:
            case Scan():
                kept = (part for part in relation.columns if not self.may_group(relation.table, part.declared))
                return Restricted(frozenset(part.name for part in kept))
            case ValuesTable():
                return Restricted(frozenset())
            case Filter():
                below = self.below(relation.source)
                return below._replace(chosen=below.chosen | self._compares([relation.condition], below))
            case Project():
                below = self.below(relation.source)
                return _computed(below, [(name, [value]) for name, value in relation.columns])
            case Window():
                return self._within_people(relation)
            case PerUnit():
                return self._by_person(relation)
            case Join():
                return self._joined(relation)
            case CrossUnitJoin():
                return self._between_people(relation)
            case SemiJoin():
                below = self.below(relation.source)
                return below._replace(chosen=self._matches(relation))
            case Mark():
                below, decided = self.below(relation.source), self._matches(relation.test)
                return self._marked(relation, below, decided)
            case SetOp():
                return self._set_operation(relation)
            case Distinct():
                return self._told_apart(self.below(relation.source))
            case LightUnits():
                return self.below(relation.source)

    def _within_people(self, relation: Window) -> Restricted:
        below = self.below(relation.source)
        computed = [
            (name, [*window.call.arguments, *window.keys, *(order.expression for order in window.order)])
            for name, window in relation.columns
        ]
        found = _computed(below, computed, all_of=below.chosen)
        return found._replace(columns=below.columns | found.columns, mixed=below.mixed | found.mixed)

    def _by_person(self, relation: PerUnit) -> Restricted:
        below = self.below(relation.source)
        keys = [key for _, key in relation.keys]
        own = self._told_apart(_computed(below, [(name, [key]) for name, key in relation.keys]))
        counted = [(name, [*call.arguments, *keys]) for name, call in relation.calls]
        found = _computed(below, counted, all_of=below.chosen)
        return found._replace(columns=own.columns | found.columns)

    def _between_people(self, relation: CrossUnitJoin) -> Restricted:
        left, right = self.below(relation.left), self.below(relation.right)
        columns = left.columns | right.columns
        compared = [relation.condition, *(side for pair in relation.pairs for side in pair)]
        if names_read(*compared) & columns:
            raise _refusal(self.at, "it is compared between people")
        return Restricted(columns, left.chosen or right.chosen, left.mixed | right.mixed)

    def _marked(self, relation: Mark, below: Restricted, decided: bool) -> Restricted:
        test = relation.test
        beside = names_read(test.condition, *test.compared) & set(facts_of(test.source).surviving)
        beside -= below.columns | set(unit_columns(test.source))
        name = frozenset({relation.name} if decided else ())
        return below._replace(columns=below.columns | name, mixed=below.mixed | (name if beside else frozenset()))

    def _set_operation(self, relation: SetOp) -> Restricted:
        left, right = self.below(relation.left), self.below(relation.right)
        columns = left.columns | right.columns
        compares = relation.kind != "UNION ALL"
        found = Restricted(
            columns, compares and bool(columns), left.mixed | right.mixed | (left.columns ^ right.columns)
        )
        if compares:
            self._told_apart(found)
        if not (left.chosen or right.chosen):
            return found
        # Which side a row is from may tell: each column may differ between them.
        return Restricted(frozenset(facts_of(relation).surviving), chosen=True, mixed=found.mixed)

    def _told_apart(self, rows: Restricted) -> Restricted:
        """Rows of which equal ones become one: so they are compared with each other."""
        if rows.mixed:
            raise _refusal(self.at, COMPARED)
        return rows

    def _joined(self, join: Join) -> Restricted:
        left, right = self.below(join.left), self.below(join.right)
        columns, mixed = left.columns | right.columns, left.mixed | right.mixed
        compares = self._compares([join.condition], Restricted(columns, mixed=mixed))
        # Where rows may have no partner, that columns are NULL tells how the partners were chosen.
        told: set[str] = set()
        if join.kind in ("LEFT", "FULL") and (right.chosen or compares):
            told |= set(facts_of(join.right).surviving)
        if join.kind in ("RIGHT", "FULL") and (left.chosen or compares):
            told |= set(facts_of(join.left).surviving)
        mixed |= frozenset() if join.by_unit_alone else told
        return Restricted(columns | told, left.chosen or right.chosen or compares, mixed)

    def _compares(self, conditions: Iterable[Expression | None], below: Restricted) -> bool:
        """Whether such a column is compared with constants; with any other column it is refused."""
        parts = [part for condition in conditions if condition is not None for part in conjuncts(condition)]
        if any(_mixes(part, below) for part in parts):
            raise _refusal(self.at, COMPARED)
        return any(names_read(part) & below.columns for part in parts)

    def _matches(self, test: SemiJoin) -> bool:
        """Whether such a column decides about a match; the rows' other columns may not be compared then."""
        here, there = self.below(test.source), self.below(test.other)
        restricted = here.columns | there.columns
        read = names_read(test.condition, *test.compared)
        if read & (here.mixed | there.mixed):
            raise _refusal(self.at, COMPARED)
        if read & restricted and read - restricted - set(facts_of(test.other).surviving):
            raise _refusal(self.at, "a subquery compares it beside another column, which would then tell it")
        return here.chosen or there.chosen or bool(read & restricted)


def _computed(below: Restricted, computed: list[tuple[str, list[Expression]]], *, all_of: bool = False) -> Restricted:
    """What is known of computed columns; `all_of`: each of them follows from which rows there are."""
    columns = frozenset(name for name, read in computed if all_of or names_read(*read) & below.columns)
    mixed = frozenset(name for name, read in computed if any(_mixes(part, below) for part in read))
    return Restricted(columns, below.chosen, mixed)


def _mixes(value: Expression, below: Restricted) -> bool:
    read = names_read(value)
    return bool(read & below.mixed or (read & below.columns and read - below.columns))
