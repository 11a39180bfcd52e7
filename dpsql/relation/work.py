"""How much work one person's rows can make, bounded by public numbers before the charge.

    orders CROSS JOIN RANGE(1000)                       each row becomes 1,000
    orders a JOIN orders b USING (customer_id)          n rows of a person become n * n
    EXISTS (orders b of the same person, b.day > a.day) n * n comparisons

Otherwise one person's presence would show in the time or memory that a question takes. A relation whose rows are
multiplied reads *light* units only: people with more than a public number of rows are left out where the rows are read,
before they are multiplied (`LightUnits`). That number is chosen so that nobody has more than MOST_ROWS_OF_ONE rows, or
comparisons, at any step; where it would be too small to be of use the question is refused. Rows that are merely read,
filtered, sorted or grouped are not limited: that work is in proportion to the person's own rows.

A condition on the person is applied to every table (units.py). docs/proofs/work.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from dpsql.errors import Unsupported
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.tree import Call, Column, columns_of, names_read, substituted
from dpsql.limits import FEWEST_ROWS_OF_ONE, MOST_COPIES, MOST_PUBLIC_COPIES, MOST_ROWS_OF_ONE
from dpsql.relation.facts import equated, facts_of
from dpsql.relation.relation import (
    AggregateCall,
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    LightUnits,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    ValuesTable,
    Window,
)
from dpsql.relation.sql import independent_parts, most_matches, most_matches_sql, rows_per_unit
from dpsql.relation.units import is_tracked, joined, one_row_per_unit, parts_of
from dpsql.relation.widths import check_texts, check_width, shortened
from dpsql.schema.types import Date, Decimal, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from dpsql.engine_sql.tree import Query
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Frame
    from dpsql.relation.sql import CountPublic

    Conditions: TypeAlias = tuple[Expression, ...]


@dataclass(frozen=True)
class Growth:
    """An upper bound: a person with n rows in each relation has at most factor * n ** degree rows."""

    factor: int
    degree: int

    def __mul__(self, other: Growth) -> Growth:
        return Growth(self.factor * other.factor, self.degree + other.degree)

    def __add__(self, other: Growth) -> Growth:
        return Growth(self.factor + other.factor, max(self.degree, other.degree))

    @property
    def is_linear(self) -> bool:
        """Whether the work is proportional to the person's own rows, or to one row."""
        return self.degree <= 1 and self.factor <= MOST_COPIES

    @property
    def is_small(self) -> bool:
        """Whether sorting what is made of many rows takes about as long as sorting these rows."""
        return self.degree == 0 or (self.degree == 1 and self.factor <= MOST_PUBLIC_COPIES)

    @property
    def most_rows(self) -> int:
        """The largest n that gives at most MOST_ROWS_OF_ONE rows; 0 if there is none."""
        if self.degree == 0:
            return MOST_ROWS_OF_ONE if self.factor <= MOST_ROWS_OF_ONE else 0
        n = int((MOST_ROWS_OF_ONE / self.factor) ** (1 / self.degree)) + 1
        while n and self.factor * n**self.degree > MOST_ROWS_OF_ONE:
            n -= 1
        return n


ONE, OWN = Growth(1, 0), Growth(1, 1)


UNDECIDED = 0
"""A placeholder for the number of rows of a light unit, until all steps are known."""


@dataclass(frozen=True)
class BoundedWork:
    relation: Relation
    growth: Growth
    limited: bool = False
    """Whether n counts the rows of light units only."""
    tested: Conditions = ()
    """Conditions that all rows satisfy, tested where no text is cut yet."""


def bound_work(
    relation: Relation, above: tuple[Expression, ...], count: CountPublic
) -> tuple[Relation, tuple[Query, ...]]:
    """Leaves out people whose rows would be multiplied into too many. Also returns queries for how many rows of pending
    answers one row meets, each of which must turn out to be at most MOST_COPIES.
    """
    check_texts(relation, above)
    bounding = _Bounding(count)
    bounded = bounding.visit(relation, ()).relation
    if bounding.steps:
        worst = min(bounding.steps, key=lambda step: step.most_rows)
        if worst.most_rows < FEWEST_ROWS_OF_ONE:
            raise _too_much(worst)
        bounded = _decided(bounded, worst.most_rows)
        check_width(bounded, above)
    return relation if bounded == relation else bounded, tuple(dict.fromkeys(bounding.presumed))


def heaviest_counted(relation: Relation) -> int | None:
    """The most rows that a person may have below a multiplying step; None if nobody is left out."""
    light = (part for part in parts_of(relation) if isinstance(part, LightUnits))
    return min((part.most_rows for part in light if not one_row_per_unit(part)), default=None)


def _too_much(worst: Growth) -> Unsupported:
    few = f"{FEWEST_ROWS_OF_ONE} rows" if worst.degree else "one row"
    made = f"{worst.factor * FEWEST_ROWS_OF_ONE**worst.degree:,}"
    return Unsupported(
        f"the query turns {few} of one person into {made}: the limit is {MOST_ROWS_OF_ONE:,}",
        hint="join fewer lists, join the same person's rows less often or by a unique key, or aggregate before joining",
    )


def _decided(relation: Relation, most_rows: int) -> Relation:
    values = ((part.name, getattr(relation, part.name)) for part in fields(relation))
    changed: dict[str, Any] = {n: _decided(value, most_rows) for n, value in values if isinstance(value, Relation)}
    if isinstance(relation, LightUnits) and relation.most_rows == UNDECIDED:
        changed["most_rows"] = most_rows
    return replace(relation, **changed) if changed else relation


@dataclass(frozen=True)
class _Bounding:
    count: CountPublic
    steps: list[Growth] = field(default_factory=list)
    """The rows, or comparisons of rows, that each multiplying step makes for one person."""
    presumed: list[Query] = field(default_factory=list)
    early: bool = False
    """Whether rows are limited before any join multiplies them, because a later step multiplies them further."""

    def visit(self, relation: Relation, given: Conditions) -> BoundedWork:
        """Records the growth of every step; `given` are conditions that surviving rows satisfy."""
        match relation:
            case Scan() | ValuesTable():
                return BoundedWork(relation, ONE if one_row_per_unit(relation) else OWN)
            case LightUnits(_, most_rows):
                is_decided = most_rows != UNDECIDED
                return BoundedWork(relation, Growth(most_rows, 0) if is_decided else OWN, not is_decided)
            case Filter(source, condition):
                bounded = self.visit(source, (*given, *_implied(condition)))
                left = _untested(condition, bounded)
                return bounded if left is None else replace(bounded, relation=Filter(bounded.relation, left))
            case Join():
                return self._join(relation, given)
            case CrossUnitJoin(left=left, right=right):
                # Before people are paired with others, each side keeps as few rows of a person as may count.
                bounding = replace(self, early=False)
                first, second = bounding.visit(left, ()), bounding.visit(right, ())
                return BoundedWork(replace(relation, left=first.relation, right=second.relation), OWN)
            case SemiJoin():
                tested, rows = self._semi_join(relation, given)
                return replace(rows, relation=tested)
            case Mark(test):
                tested, rows = self._semi_join(test, given)
                return replace(rows, relation=replace(relation, test=tested))
            case SetOp():
                return self._set_operation(relation)
            case Window(source):
                return self._window(relation, self.visit(source, ()))
            case PerUnit(source, _, _, by_unit_alone):
                # What is multiplied below one row per unit is not multiplied further.
                bounding = replace(self, early=False) if by_unit_alone else self
                grouped = _above(relation, bounding.visit(source, ()))
                return BoundedWork(grouped.relation, ONE) if by_unit_alone else grouped
            case Project(source) | Distinct(source):
                return _above(relation, self.visit(source, ()))

    def _join(self, join: Join, given: Conditions) -> BoundedWork:
        met = () if join.condition is None else tuple(_implied(join.condition))
        if join.kind == "INNER":
            met = given = (*met, *given)
        if is_tracked(join.left) and is_tracked(join.right):
            return self._of_one_person(join, met, given)
        side, rows, public = (
            ("left", join.left, join.right) if is_tracked(join.left) else ("right", join.right, join.left)
        )
        bounded = self.visit(rows, given)
        matches = self._matches(rows, public, met)
        copies = Growth(matches or MOST_COPIES, 0)
        if matches is not None and matches > 1 and not (bounded.growth * copies).is_small:
            bounded = self._limited(bounded, given)
        bounded, _ = self._multiplied(bounded, BoundedWork(public, copies), (given, ()))
        changed: dict[str, Any] = {side: bounded.relation, "condition": _untested(join.condition, bounded)}
        return replace(bounded, relation=replace(join, **changed), growth=bounded.growth * copies)

    def _matches(self, rows: Relation, public: Relation, conditions: Conditions) -> int | None:
        """How many public rows one row can be joined with. None for a pending answer, presumed to be MOST_COPIES."""
        if meets_once(rows, public, conditions):
            return 1
        several = [part for part in independent_parts(public, conditions) if not meets_once(rows, part, conditions)]
        found = most_matches(rows, several, conditions, self.count)
        if found is None:
            self.presumed.append(most_matches_sql(rows, public, conditions))
        return found

    def _of_one_person(self, join: Join, met: Conditions, given: Conditions) -> BoundedWork:
        """A join of a person's rows with other rows of the same person."""
        tests = {"INNER": (met, met), "LEFT": (given, met), "RIGHT": (met, given), "FULL": ((), ())}[join.kind]
        left, right = self.visit(join.left, tests[0]), self.visit(join.right, tests[1])
        if join.kind != "INNER":
            left, right = self._alike(left, right)
        if meets_once(join.left, join.right, met):
            joined = left
        elif meets_once(join.right, join.left, met):
            joined = right
        else:
            left, right = self._multiplied(self._declared_light(left), self._declared_light(right), tests)
            joined = BoundedWork(join, left.growth * right.growth, left.limited or right.limited)
        unmatched = {"INNER": (), "LEFT": (left,), "RIGHT": (right,), "FULL": (left, right)}[join.kind]
        growth = sum((side.growth for side in unmatched if side is not joined), start=joined.growth)
        condition = _untested(join.condition, left, right) if join.kind != "FULL" else join.condition
        made = replace(join, left=left.relation, right=right.relation, condition=condition)
        # A row without a partner has NULL in place of the other side.
        kept = {"INNER": (left, right), "LEFT": (left,), "RIGHT": (right,), "FULL": ()}[join.kind]
        return BoundedWork(made, growth, joined.limited, tuple(test for side in kept for test in side.tested))

    def _multiplied(
        self, left: BoundedWork, right: BoundedWork, tests: tuple[Conditions, Conditions]
    ) -> tuple[BoundedWork, BoundedWork]:
        """A join in which each row of one side may match each row of the other."""
        growth = left.growth * right.growth
        if not growth.is_linear or (self.early and growth.factor > 1):
            left, right = self._limited(left, tests[0]), self._limited(right, tests[1])
        if left.limited or right.limited:
            self.steps.append(left.growth * right.growth)
        return left, right

    def _limited(self, rows: BoundedWork, tests: Conditions) -> BoundedWork:
        """Light units alone, counted before any join multiplies their rows. Rows that fail one of the tests are dropped
        later anyway, so they need not count.
        """
        if rows.limited or not is_tracked(rows.relation):
            return rows
        if rows.growth.degree and not self.early:
            before = replace(self, early=True).visit(rows.relation, tests)
            if before.limited:
                return before
        own = facts_of(rows.relation).any_row.keys()
        about = [part for part in tests if names_read(part) and names_read(part) <= own]
        tested = Filter(rows.relation, joined("AND", about)) if about else rows.relation
        if rows.growth.degree == 0:
            return BoundedWork(LightUnits(shortened(tested), rows.growth.factor), rows.growth, True, tuple(about))
        return BoundedWork(LightUnits(shortened(tested), UNDECIDED), OWN, True, tuple(about))

    def _alike(self, left: BoundedWork, right: BoundedWork) -> tuple[BoundedWork, BoundedWork]:
        """Both sides limited to light units, if either is."""
        is_limited = left.limited or right.limited
        return (self._limited(left, ()), self._limited(right, ())) if is_limited else (left, right)

    def _declared_light(self, side: BoundedWork) -> BoundedWork:
        """A side on which the schema allows a person few rows: twice as many are read."""
        declared = rows_per_unit(side.relation, self.count)
        if side.growth.degree == 0 or side.limited or declared is None or 2 * declared > MOST_COPIES:
            return side
        return BoundedWork(LightUnits(side.relation, 2 * declared), Growth(2 * declared, 0))

    def _semi_join(self, semi: SemiJoin, given: Conditions) -> tuple[SemiJoin, BoundedWork]:
        """EXISTS or IN: the test, and the rows that it filters."""
        semi = _by_extremes(semi)
        source = self.visit(semi.source, given)
        tests = () if semi.condition is None else tuple(conjuncts(semi.condition))
        if is_tracked(semi.other):
            other = self.visit(semi.other, tests)
        else:
            copies = 1 if _is_looked_up(semi, tests) else self._matches(semi.source, semi.other, tests)
            other = BoundedWork(semi.other, Growth(copies or MOST_COPIES, 0))
        if not _is_looked_up(semi, tests) and not meets_once(semi.source, semi.other, tests):
            source, other = self._multiplied(source, other, (given, tests))
        condition = semi.condition if semi.compared else _untested(semi.condition, source, other)
        return replace(semi, source=source.relation, other=other.relation, condition=condition), source

    def _set_operation(self, both: SetOp) -> BoundedWork:
        left, right = self._alike(self.visit(both.left, ()), self.visit(both.right, ()))
        growth = left.growth + right.growth
        if growth.degree == 1 and not left.limited:
            # What is read twice is twice as much for everybody: no row is multiplied by it.
            growth = Growth(max(left.growth.factor, right.growth.factor), 1)
        return BoundedWork(replace(both, left=left.relation, right=right.relation), growth, left.limited)

    def _window(self, window: Window, source: BoundedWork) -> BoundedWork:
        """A moving frame, over which an engine may compute a sum or an extreme anew for every row."""
        widths = [_width(call.frame) for _, call in window.columns if call.frame is not None]
        known = [width for width in widths if width is not None]
        frame = source if len(known) < len(widths) else BoundedWork(window, Growth(max(known, default=1), 0))
        if source.growth.degree == 0:
            frame = replace(frame, growth=Growth(min(frame.growth.factor, source.growth.factor), 0))
        return _above(window, self._multiplied(source, frame, ((), ()))[0])


def _above(relation: PerUnit | Project | Distinct | Window, source: BoundedWork) -> BoundedWork:
    return replace(source, relation=replace(relation, source=source.relation), tested=())


def _implied(condition: Expression) -> Iterator[Expression]:
    """The parts that must all hold, with those that all sides of an OR have: engines take them out of it too."""
    for part in conjuncts(condition):
        yield part
        if isinstance(part, Call) and part.function.name == "OR":
            first, *others = (dict.fromkeys(_implied(side)) for side in part.arguments)
            yield from (each for each in first if all(each in other for other in others))


def _untested(condition: Expression | None, *sides: BoundedWork) -> Expression | None:
    """What is left of a condition where its tests of long texts were made below."""
    if condition is None:
        return None
    made = {test for side in sides for test in side.tested if _reads_text(test)}
    parts = list(conjuncts(condition))
    left = [part for part in parts if part not in made]
    return condition if len(left) == len(parts) else joined("AND", left) if left else None


def _reads_text(test: Expression) -> bool:
    return any(isinstance(column.type, Text) for column in columns_of(test))


def _width(frame: Frame) -> int | None:
    """The number of rows in a moving frame; 1 if it only grows, None if it has no limit."""
    if frame.start == "UNBOUNDED PRECEDING" or (frame.kind == "RANGE" and frame.end == "CURRENT ROW"):
        return 1
    if frame.end == "UNBOUNDED FOLLOWING":
        return None
    first, last = (_offset(end) for end in (frame.start, frame.end))
    return max(1, last - first + 1)


def _offset(end: str) -> int:
    """
    >>> _offset("2 PRECEDING"), _offset("CURRENT ROW"), _offset("3 FOLLOWING")
    (-2, 0, 3)
    """
    steps, _, side = end.partition(" ")
    return {"PRECEDING": -1, "FOLLOWING": 1, "ROW": 0}[side] * (int(steps) if steps.isdigit() else 0)


def _is_looked_up(semi: SemiJoin, tests: Conditions) -> bool:
    """Whether a row finds its match by equal values, without comparing it with others one by one.

    Where there is none, a test of the row itself would be repeated for each of the others.
    """
    own, others = (facts_of(side).any_row.keys() for side in (semi.source, semi.other))
    return len(semi.compared) <= 1 and all(
        names_read(part) <= others or any(name in others and names_read(value) <= own for name, value in equated(part))
        for part in tests
    )


def _by_extremes(semi: SemiJoin) -> SemiJoin:
    """EXISTS with one <>, asked of the least and the greatest value of the rows with equal keys.

        EXISTS (b of the same key AND b.value <> a.value)
        EXISTS (group of b of the same key AND (MIN(b.value) <> a.value OR MAX(b.value) <> a.value))

    NULL is no other value, and neither MIN nor MAX looks at it.
    """
    if semi.condition is None or semi.compared or not is_tracked(semi.other):
        return semi
    others = facts_of(semi.other).any_row.keys()
    about = [test for test in conjuncts(semi.condition) if names_read(test) <= others]
    across = [test for test in conjuncts(semi.condition) if not names_read(test) <= others]
    equal = {test: name for test in across for name, value in equated(test) if _is_met(name, value, others)}
    unequal = [(test, column) for test in across if test not in equal for column in _told_apart(test, others)]
    if len(unequal) != 1 or len(equal) + 1 != len(across):
        return semi
    ((different, value),) = unequal
    rows = Filter(semi.other, joined("AND", about)) if about else semi.other
    known = facts_of(rows).any_row
    keys = tuple((name, Column(name, known[name].type)) for name in sorted(set(equal.values())))
    calls = {f"{value.name} {name}": AggregateCall(name=name, arguments=(value,)) for name in ("MIN", "MAX")}
    ends = [substituted(different, {value: Column(name, value.type)}) for name in calls]
    grouped = PerUnit(rows, keys, tuple(calls.items()), by_unit_alone=not keys)
    return replace(semi, other=grouped, condition=joined("AND", [*equal, joined("OR", ends)]))


def _is_met(name: str, value: Expression, others: Set[str]) -> bool:
    return name in others and not names_read(value) & others


def _told_apart(test: Expression, others: Set[str]) -> Iterator[Column]:
    """The column of the other rows that has to differ."""
    match test:
        case Call(function, (first, second)) if function.name == "<>" and first.type == second.type:
            for column, value in ((first, second), (second, first)):
                is_ordered = isinstance(column.type, Integer | Decimal | Text | Date | Timestamp)
                if isinstance(column, Column) and is_ordered and _is_met(column.name, value, others):
                    yield column


def meets_once(rows: Relation, other: Relation, conditions: Conditions) -> bool:
    """Whether each of the rows meets one row of the other relation at most, in the same unit if that has units."""
    own, others = (facts_of(side).any_row.keys() for side in (rows, other))
    found = {
        name for part in conditions for name, value in equated(part) if name in others and names_read(value) <= own
    }
    return any(key <= found for key in unique_keys(other))


def unique_keys(relation: Relation) -> list[frozenset[str]]:
    """Sets of columns that are unique among the rows of a unit, or among all public rows."""
    match relation:
        case Scan(columns=columns):
            single = [frozenset[str]()] if one_row_per_unit(relation) else []
            return single + [frozenset({column.name}) for column in columns if column.unique]
        case PerUnit(_, keys, _, by_unit_alone):
            return [frozenset() if by_unit_alone else frozenset(name for name, _ in keys)]
        case Distinct(source):
            return [frozenset(facts_of(source).any_row), *unique_keys(source)]
        case Project(source, columns):
            return [key for below in unique_keys(source) for key in _renamed(below, columns)]
        case Filter(source) | SemiJoin(source) | Window(source) | LightUnits(source):
            return unique_keys(source)
        case Mark():
            return unique_keys(relation.source)
        case Join(left, right, kind, condition) if condition is not None and kind != "FULL":
            met = tuple(conjuncts(condition))
            kept = unique_keys(left) if kind != "RIGHT" and meets_once(left, right, met) else []
            return kept + (unique_keys(right) if kind != "LEFT" and meets_once(right, left, met) else [])
        case _:
            return []


def _renamed(key: frozenset[str], columns: tuple[tuple[str, Expression], ...]) -> Iterator[frozenset[str]]:
    names = {value.name: name for name, value in columns if isinstance(value, Column)}
    if key <= names.keys():
        yield frozenset(names[part] for part in key)
