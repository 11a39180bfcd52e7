"""FROM and JOIN. Private rows are joined within each person only, or with public rows.

orders JOIN customers ON orders.customer_id = customers.id        both are the unit: same person
order_lines JOIN orders ON order_lines.order_id = orders.id       the declared way to the unit: same person
orders JOIN regions USING (region)                                regions is public: any condition will do
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from sqlglot import exp

from dpsql.errors import ProgrammingError, UnknownName, Unsupported, did_you_mean
from dpsql.expressions.format import format_name
from dpsql.expressions.lower import all_of
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Expression, names_read
from dpsql.expressions.tree import Literal as Constant
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import CrossUnitJoin, Filter, Join, Project, Relation, SemiJoin, ValuesTable
from dpsql.relation.units import different_units
from dpsql.schema.types import Boolean
from dpsql.sql.adaptive import adaptive_rows
from dpsql.sql.randomized import reads_reports
from dpsql.sql.rows import PrivateRows, PublicQuery, declared_rows, with_column_names
from dpsql.sql.scope import Scope, is_qualified
from dpsql.sql.syntax import extra_clauses, from_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dpsql.errors import Place
    from dpsql.relation.relation import AggregateCall
    from dpsql.schema.types import ColumnType
    from dpsql.sql.query import Resolver
    from dpsql.sql.rows import Item, Named

# -- kept rows ---------------------------------------------------------------------------------------------------------
# Public rows that an outer join keeps: a list of keys, of which every one is a group, even when nobody matches it.
#
#     SELECT p.place, COUNT(v.id) FROM places p LEFT JOIN visits v ON v.place = p.place GROUP BY p.place
#
# Below the release it is an inner join: the rows that nobody matches belong to nobody. They come back as groups, so
# what is asked of a group must be what it is without them: keys are public columns, and an aggregate passes over the
# NULLs that stand for the missing private row, or adds 0 for them. COUNT(*) does not: where each group is one public
# row, it is 1 of an empty group, and else the number of its pairs. docs/proofs/tracking.md.

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
class PreservedSide:
    relation: Relation
    columns: frozenset[str]
    """The inner names of its columns; the others of the join are private."""
    at: Place | None

    def refuse(self, why: str, hint: str) -> Unsupported:
        return Unsupported(f"the outer join keeps public rows that no person matches, and {why}", at=self.at, hint=hint)

    def renamed(self, names: Mapping[str, str], types: Mapping[str, ColumnType]) -> PreservedSide:
        """The same rows, whose columns have these names."""
        columns = tuple((names[name], Column(name, types[name])) for name in sorted(self.columns & names.keys()))
        return PreservedSide(Project(self.relation, columns), frozenset(name for name, _ in columns), self.at)

    def projected(self, columns: Mapping[str, Expression], conditions: Iterable[Expression]) -> PreservedSide | None:
        """The public rows that are kept below a subquery's columns; None if its WHERE leaves none of them."""
        relation = self._filtered(conditions)
        if self.is_inner(conditions):
            return None
        public = {name: value for name, value in columns.items() if self._is_public(value)}
        if not all(name in public or self._vanishes(value) for name, value in columns.items()):
            raise self.refuse("a column is computed from both sides", "compute it outside, or use an inner join")
        return PreservedSide(Project(relation, tuple(public.items())), frozenset(public), self.at)

    def groups(
        self, keys: Iterable[Expression], calls: Iterable[AggregateCall], conditions: Iterable[Expression]
    ) -> Relation:
        """The public rows whose keys are the groups of a release over the inner join."""
        if not all(self._is_public(key) for key in keys):
            raise self.refuse(
                "a key is not one of their columns", "group by columns of the public side, or use an inner join"
            )
        relation = self._filtered(conditions)
        counted = [call for call in calls if not self._adds_nothing(call)]
        if not self.is_inner(conditions) and any(call.name != "COUNT" or call.arguments for call in counted):
            raise self.refuse(
                "an aggregate would count these too",
                "aggregate a column of the private table: SUM(v.minutes), COUNT(v.id)",
            )
        return relation

    def _adds_nothing(self, call: AggregateCall) -> bool:
        """Whether these rows leave the aggregate unchanged."""
        if any(map(self._vanishes, call.arguments)):
            return True
        values = [self._value(argument) for argument in call.arguments]
        return bool(values) and (values == [None] or (call.name == "SUM" and values in ([0], [False])))

    def joined(
        self, rows: PrivateRows, kind: Literal["INNER", "LEFT"], condition: Expression | None
    ) -> PreservedSide | None:
        """These rows joined with more public ones, if the condition reads nothing else; otherwise None."""
        public = {column.name for column in rows.columns.values()}
        if rows.is_private or (condition is not None and not names_read(condition) <= self.columns | public):
            return None
        relation = Join(self.relation, rows.relation, kind, condition, by_unit_alone=False)
        return PreservedSide(relation, self.columns | public, self.at)

    def _filtered(self, conditions: Iterable[Expression]) -> Relation:
        relation = self.relation
        for condition in conditions:
            if self._is_public(condition):
                relation = Filter(relation, condition)
            elif not self.never_true(condition):
                raise self.refuse(
                    "the WHERE might select these", "compare columns of the private table, or use an inner join"
                )
        return relation

    def is_inner(self, conditions: Iterable[Expression]) -> bool:
        """Whether the WHERE leaves none of these rows."""
        return any(not self._is_public(condition) and self.never_true(condition) for condition in conditions)

    def _is_public(self, expression: Expression) -> bool:
        return all(name in self.columns for name in names_read(expression))

    def _vanishes(self, expression: Expression) -> bool:
        """Whether it is NULL if no private row matches."""
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
        return self._vanishes(condition) or self._value(condition) is False

    def _value(self, expression: Expression) -> object:
        """Its value if no private row matches; UNKNOWN if that is not obvious."""
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


# -- null groups -------------------------------------------------------------------------------------------------------
# GROUP BY a key that tells people apart and is NULL for some: one group is of the rows of many people.
#
#     SELECT id, SUM(x) AS s FROM ... GROUP BY id          everybody's rows with id NULL are one group
#     WHERE id IS NOT NULL, JOIN ... ON id = t.id          above it, and that group is not there
#
# The rows of people are those of the other groups. The query above must make no use of the one that is left out: no
# condition may hold of it, or no aggregate may count it. docs/proofs/tracking.md.


@dataclass(frozen=True)
class NullGroup:
    names: frozenset[str]
    """The columns that are NULL in it; of the others nothing is known."""
    at: Place | None

    def renamed(self, names: Mapping[str, str]) -> NullGroup:
        return replace(self, names=frozenset(names.get(name, name) for name in self.names))

    def passed_on(self, columns: Mapping[str, Expression]) -> NullGroup:
        """The same by the names of columns that are computed from it."""
        found = frozenset(name for name, value in columns.items() if self._seen(value)._vanishes(value))
        return replace(self, names=found)

    def is_left_out(self, conditions: Iterable[Expression]) -> bool:
        """Whether one of these, all of which rows must satisfy, does not hold of it."""
        return any(self._seen(condition).never_true(condition) for condition in conditions)

    def adds_nothing(self, call: AggregateCall) -> bool:
        return any(self._seen(value)._vanishes(value) for value in call.arguments)

    def refuse(self) -> Unsupported:
        return Unsupported(
            "the key identifies people but is NULL for some, who would become one group: this is not supported",
            at=self.at,
            hint="COALESCE the units of both sides of the outer join, or add WHERE ... IS NOT NULL",
        )

    def _seen(self, value: Expression) -> PreservedSide:
        return PreservedSide(ValuesTable("", ()), frozenset(names_read(value)) - self.names, self.at)


def vanishing_with(name: str, relation: Relation) -> frozenset[str]:
    """The columns that are NULL wherever one is: those of the side that an outer join fills with NULL."""
    match relation:
        case Filter(source) | SemiJoin(source):
            return vanishing_with(name, source)
        case Join(left, right, kind, condition):
            side = left if name in facts_of(left).any_row else right
            filled = kind in ("LEFT", "FULL") if side is right else kind in ("RIGHT", "FULL")
            meets = conjuncts(condition) if condition is not None and kind != "FULL" else ()
            known = facts_of(side).surviving
            is_there = not known[name].nullable or NullGroup(frozenset({name}), None).is_left_out(meets)
            return frozenset(known) if filled and is_there else vanishing_with(name, side)
    return frozenset({name})


# -- joins -------------------------------------------------------------------------------------------------------------

Kind = Literal["INNER", "LEFT", "RIGHT", "FULL"]


@dataclass(frozen=True)
class JoinStep:
    """One more item of FROM and how it is joined."""

    rows: PrivateRows
    kind: Kind
    on: exp.Expr | None
    using: tuple[str, ...]
    at: Place | None

    def pairs(self, left: PrivateRows) -> list[Expression]:
        """The pairs of columns in USING."""
        return [equal(left.columns[name], self.rows.columns[name]) for name in self.using]


@dataclass(frozen=True)
class Source:
    """Everything in FROM, under one set of names. None marks a name that two items have."""

    first: PrivateRows
    steps: tuple[JoinStep, ...]
    columns: Mapping[str, Column | None]

    @property
    def items(self) -> list[PrivateRows]:
        return [self.first, *(step.rows for step in self.steps)]

    @property
    def internal_names(self) -> set[str]:
        return {column.name for rows in self.items for column in rows.columns.values()}

    @property
    def conditions(self) -> list[exp.Expr]:
        """The ON conditions, join by join."""
        return [step.on for step in self.steps if step.on is not None]

    def has(self, node: exp.Column) -> bool:
        return _full_name(node) in self.columns and node.args.get("db") is None

    def column(self, node: exp.Column, place: Place | None) -> Column | None:
        """The column that a name means; None if no item has it."""
        if not self.has(node):
            return None
        found = self.columns[_full_name(node)]
        if found is None:
            raise ProgrammingError(
                f'"{node.name}" is a column of several tables', at=place, hint=f"write  table.{format_name(node.name)}"
            )
        return Column(found.name, found.type, place)

    def joined(self, condition_of: Callable[[exp.Expr, str], Expression], where: list[Expression]) -> PrivateRows:
        """One relation. A comma or CROSS JOIN finds its condition among the parts of the WHERE."""
        rows = self.first
        for step in self.steps:
            condition = all_of([*step.pairs(rows), *([condition_of(step.on, "ON")] if step.on is not None else [])])
            rows = _together(rows, step, condition, where)
        return rows


def _full_name(node: exp.Column) -> str:
    return (f"{node.table}.{node.name}" if node.table else node.name).lower()


def add_step(source: Source, step: JoinStep, taken: Collection[str]) -> Source:
    """The source with one more item, its names kept apart."""
    step = replace(step, rows=step.rows.apart_from({*taken, *source.internal_names}))
    columns = dict(source.columns)
    for name, column in step.rows.columns.items():
        if name not in columns:
            columns[name] = column
        elif "." in name:
            raise ProgrammingError(
                f'two tables are called "{name.partition(".")[0]}"', at=step.at, hint="give one an alias with AS"
            )
        elif name not in step.using:
            columns[name] = None
        elif step.kind == "RIGHT":
            columns[name] = column
        elif step.kind == "FULL":
            columns[name] = Column(merged_name(column), column.type)
    return Source(source.first, (*source.steps, step), columns)


def merged_name(column: Column) -> str:
    """The column that FULL JOIN ... USING makes of two, by the name of the second, which is free."""
    return f"_either_{column.name}"


def read_step(rows: PrivateRows, node: exp.Join, left: Mapping[str, Column | None], at: Place | None) -> JoinStep:
    """The parser's join as a step; what is not understood is refused."""
    kind = (node.side or "INNER").upper()
    natural = node.method == "NATURAL"
    known = {"this", "side", "kind", "on", "using", *(["method"] if natural else [])}
    if extra_clauses(node, known) or node.kind not in ("", "INNER", "OUTER", "CROSS"):
        raise Unsupported(
            "this kind of join is not supported", at=at, hint="use INNER, LEFT, RIGHT, FULL or CROSS JOIN"
        )
    using = tuple(name.name.lower() for name in node.args.get("using") or ())
    if natural:
        using = tuple(name for name in rows.plain_columns if name in left)
    for name in using:
        if left.get(name) is None or name not in rows.columns:
            raise ProgrammingError(f'USING: both sides need one column "{name}"', at=at, hint="write ON instead")
    return JoinStep(rows, cast(Kind, kind), node.args.get("on"), using, at)


def equal(left: Expression, right: Expression) -> Expression:
    return Call(FUNCTIONS["="], (left, right), Boolean())


def _together(left: PrivateRows, step: JoinStep, condition: Expression | None, where: list[Expression]) -> PrivateRows:
    right = step.rows
    for rows, is_kept in ((left, step.kind in ("LEFT", "FULL")), (right, step.kind in ("RIGHT", "FULL"))):
        meets = [] if is_kept or condition is None else conjuncts(condition)
        if rows.null_group is not None and not rows.null_group.is_left_out([*where, *meets]):
            raise rows.null_group.refuse()
    if right.kept is not None and left.kept is None and step.kind == "INNER":
        # An inner join has no sides.
        left, right, step = right, left, replace(step, rows=left)
    if right.kept is not None:
        raise right.kept.refuse("is joined again", "make it the first item of FROM, or use an inner join")
    public = (
        _preserved_public_side(left, step) if left.kept is None else _preserved_again(left.kept, step, condition, where)
    )
    by_unit_alone = False
    if left.is_private and right.is_private:
        within = _within_units(left, step, condition, where)
        if within is None:
            return _cross_unit_join(left, step, condition, where)
        condition = within
        by_unit_alone = all(_is_by_unit(part, left, right) for part in conjuncts(condition))
    kind = "INNER" if public and left.kept is None else step.kind
    relation = Join(left.relation, right.relation, kind, condition, by_unit_alone)
    if relation.kind == "FULL" and step.using:
        return _merged(relation, left, step)
    return PrivateRows(
        relation=relation,
        # A column that USING merges is the one of the side that is kept.
        columns={**left.columns, **right.columns} if step.kind == "RIGHT" else {**right.columns, **left.columns},
        unit_keys={**left.unit_keys, **right.unit_keys},
        present=_present(left, right, relation.kind),
        composites=left.composites | right.composites,
        unit_type=left.unit_type or right.unit_type,
        kept=public,
    )


def _present(left: PrivateRows, right: PrivateRows, kind: Kind) -> frozenset[frozenset[str]]:
    """The columns that identify every row's unit: those of a preserved side, or one of each side for a FULL JOIN."""
    if kind == "FULL":
        return frozenset(mine | its for mine in left.present for its in right.present)
    return {"INNER": left.present | right.present, "LEFT": left.present, "RIGHT": right.present}[kind]


def _merged(join: Join, left: PrivateRows, step: JoinStep) -> PrivateRows:
    """FULL JOIN ... USING (c): c is that of the left side, or of the right one where there is no left row."""
    right = step.rows
    columns = {**right.columns, **left.columns}
    passed = [*dict.fromkeys(column for rows in (left, right) for column in rows.columns.values())]
    values: list[tuple[str, Expression]] = [(column.name, column) for column in passed]
    keys, present = {**left.unit_keys, **right.unit_keys}, _present(left, right, "FULL")
    for name in step.using:
        mine, its = left.columns[name], right.columns[name]
        if mine.type != its.type:
            raise Unsupported(
                f'"{name}" has two types in USING', at=step.at, hint="write ON, and COALESCE the two columns"
            )
        merged = Column(merged_name(its), its.type)
        values.append((merged.name, Call(FUNCTIONS["COALESCE"], (mine, its), its.type)))
        columns[name] = merged
        key = left.unit_keys.get(mine.name)
        if key is not None and key == right.unit_keys.get(its.name):
            keys[merged.name] = key
            if frozenset({mine.name, its.name}) in present:
                present |= {frozenset({merged.name})}
    return PrivateRows(
        relation=Project(join, tuple(values)),
        columns=columns,
        unit_keys=keys,
        present=present,
        unit_type=left.unit_type,
    )


def _within_units(
    left: PrivateRows, step: JoinStep, condition: Expression | None, where: list[Expression]
) -> Expression | None:
    """The condition, once it is sure that it compares the units of both sides; None if it does not."""
    if left.unit_type != step.rows.unit_type:
        raise Unsupported("the units of the tables differ in type", at=step.at, hint="join tables of one unit")
    parts = list(conjuncts(condition)) if condition is not None else []
    if equating_units(parts, left, step.rows):
        return condition
    found = equating_units([*parts, *where], left, step.rows) if step.kind == "INNER" else []
    return all_of([*parts, *(part for part in found if part not in parts)]) if found else None


def _cross_unit_join(
    left: PrivateRows, step: JoinStep, condition: Expression | None, where: list[Expression]
) -> PrivateRows:
    """A join of different units' rows, by equal keys or another comparison, for aggregates/cross_unit.py to count."""
    right = step.rows
    parts = [*(conjuncts(condition) if condition is not None else ()), *(where if step.kind == "INNER" else ())]
    sides = [frozenset(column.name for column in rows.columns.values()) for rows in (left, right)]
    pairs = tuple(pair for part in parts if (pair := _pair(part, *sides)) is not None)
    linking = all_of([part for part in parts if names_read(part) <= sides[0] | sides[1]])
    linked = any(names_read(part) & sides[0] and names_read(part) & sides[1] for part in parts)
    if not linked or linking is None or step.kind != "INNER":
        raise different_units(same_unit_said(left, right), step.at)
    relation = CrossUnitJoin(
        left=left.relation,
        right=right.relation,
        pairs=pairs,
        condition=linking,
        same_unit=same_unit_said(left, right),
        at=step.at,
    )
    return PrivateRows(relation=relation, columns={**right.columns, **left.columns}, unit_type=left.unit_type)


def _pair(part: Expression, left: frozenset[str], right: frozenset[str]) -> tuple[Expression, Expression] | None:
    """The two sides of an equality between a left and a right row, in this order.

    Of one type: as doubles many whole numbers are equal, and then how often one of them occurs bounds nothing.
    """
    match part:
        case Call(function, (first, second), _) if function.name == "=" and first.type == second.type:
            mine, its = map(names_read, (first, second))
            if mine and its and mine <= left and its <= right:
                return first, second
            if mine and its and mine <= right and its <= left:
                return second, first
    return None


def same_unit_said(left: PrivateRows, right: PrivateRows) -> str:
    """The equality of units that the condition lacks; none if a subquery does not select its unit."""
    mine, its = left.unit_names, right.unit_names
    if not (mine and its):
        # Over a foreign key that leads both to their unit, if there is one.
        mine, its = next(_common_keys(left, right), (mine, its))
    return f"{' or '.join(map(_as_written, mine))} = {' or '.join(map(_as_written, its))}" if mine and its else ""


def _as_written(name: str) -> str:
    """A column with its table, as SQL reads it."""
    return ".".join(map(format_name, name.split(".")))


def _common_keys(left: PrivateRows, right: PrivateRows) -> Iterator[tuple[list[str], list[str]]]:
    for column, key in left.unit_keys.items():
        mine, its = left.names_of({column}), right.names_of({name for name, k in right.unit_keys.items() if k == key})
        if mine and its:
            yield mine, its


def equating_units(parts: Sequence[Expression], left: PrivateRows, right: PrivateRows) -> list[Expression]:
    """The conditions that require, alone or together, that the rows of both sides belong to the same unit."""
    found = [part for part in parts if any(True for _ in _told_alike(part, left, right))]
    pairs = [(mine, its) for sense, mine in left.composites for other, its in right.composites if sense == other]
    for mine, its in pairs:
        equal_columns = [[part for part in parts if _equates(part, *pair)] for pair in zip(mine, its, strict=True)]
        if all(equal_columns):
            found += [one for one, *_ in equal_columns]
    return found


def _equates(part: Expression, one: str, other: str) -> bool:
    match part:
        case Call(function, (Column(first), Column(second)), _) if function.name == "=":
            return (first, second) in ((one, other), (other, one))
    return False


def _told_alike(part: Expression, left: PrivateRows, right: PrivateRows) -> Iterator[tuple[Expression, Expression]]:
    """The sides of an equality that tell the unit in the same sense. NULL from an outer join is equal to nothing."""
    match part:
        case Call(function, (first, second), _) if function.name == "=":
            for mine, its in ((first, second), (second, first)):
                key = left.key_of(mine)
                if key is not None and key == right.key_of(its):
                    yield mine, its


def _is_by_unit(part: Expression, left: PrivateRows, right: PrivateRows) -> bool:
    """Whether the condition only equates the units."""
    return any(left.is_unit(mine) and right.is_unit(its) for mine, its in _told_alike(part, left, right))


def _preserved_again(
    kept: PreservedSide, step: JoinStep, condition: Expression | None, where: list[Expression]
) -> PreservedSide | None:
    """The public rows preserved through another join, joined to other public rows or unmatched."""
    meets = [*([condition] if condition is not None else []), *(where if step.kind == "INNER" else [])]
    if step.kind == "INNER" or step.kind == "LEFT":
        beside = kept.joined(step.rows, step.kind, condition)
        if beside is not None:
            return beside
        if any(map(kept.never_true, meets)):
            return kept if step.kind == "LEFT" else None
    raise kept.refuse("is joined again", "make this join the last one, or use an inner join")


def _preserved_public_side(left: PrivateRows, step: JoinStep) -> PreservedSide | None:
    """The public rows that an outer join keeps unmatched. They have no unit, so they stay separate."""
    keeps_left, keeps_right = step.kind in ("LEFT", "FULL"), step.kind in ("RIGHT", "FULL")
    kept = [rows for rows, keeps in ((left, keeps_left), (step.rows, keeps_right)) if keeps and not rows.is_private]
    if not kept or not (left.is_private or step.rows.is_private):
        return None
    (rows,) = kept
    public = PreservedSide(rows.relation, frozenset(column.name for column in rows.columns.values()), step.at)
    if step.kind == "FULL":
        raise public.refuse("private ones too", "keep the rows of one side only")
    return public


# -- read from ---------------------------------------------------------------------------------------------------------
# FROM: what each item is, and all of them side by side under the names that the other clauses use.


def from_items(select: exp.Select, named: Named, resolver: Resolver) -> list[Item]:
    return [_item(node, named, resolver) for node in from_nodes(select)]


def read_from(
    select: exp.Select, items: Sequence[Item], named: Named, resolver: Resolver, outer: Scope | None = None
) -> Scope:
    """The scope of a SELECT with these FROM items. With `outer` it may read the outer row."""
    taken = outer.source.internal_names if outer is not None else set()
    first, *others = [
        _rows_of(item, node, named, resolver) for item, node in zip(items, from_nodes(select), strict=True)
    ]
    first = first.apart_from(taken)
    source = Source(first, (), first.columns)
    for rows, node in zip(others, select.args.get("joins") or (), strict=True):
        source = add_step(source, read_step(rows, node, source.columns, resolver.place(node)), taken)
    aliases = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    return Scope(
        resolver=resolver, named=named, source=source, aliases={} if outer is not None else aliases, outer=outer
    )


def _rows_of(item: Item, node: exp.Expr, named: Named, resolver: Resolver) -> PrivateRows:
    rows = item if isinstance(item, PrivateRows) else item.rows or adaptive_rows(resolver, node, named)
    alias = node.alias_or_name
    return rows.called(alias) if alias else rows


def _item(node: exp.Expr, named: Named, resolver: Resolver) -> Item:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
        resolver.only(node, {"this", "alias"})
        found = resolver.query(node.this, named)
        if isinstance(found, PublicQuery) and found.tree is not None:
            node.this.replace(found.tree)
    elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        resolver.only(node, {"this", "alias", "db"})
        found = _by_name(node, named, resolver)
    elif isinstance(node, exp.Values | exp.Unnest) or isinstance(node.this, exp.GenerateSeries):
        resolver.resolve_nested(node, named)
        return PublicQuery(None)
    else:
        raise resolver.refuse(
            "FROM does not support this", node, "read declared tables (SHOW TABLES), and subqueries and joins of them"
        )
    alias = node.args.get("alias")
    return found if alias is None else with_column_names(found, alias, resolver.place(alias))


def _by_name(node: exp.Table, named: Named, resolver: Resolver) -> Item:
    name = node.name.lower()
    if name in named and not is_qualified(node):
        return named[name]
    table = resolver.schema.table(name)
    if table is None:
        known = {*resolver.schema.tables, *(() if is_qualified(node) else named)}
        shown = ".".join(part.name for part in node.parts)
        raise UnknownName(
            f'there is no table "{shown}"', at=resolver.place(node.this), hint=did_you_mean(node.name, known)
        )
    if table.is_public and not reads_reports(table, resolver.mentioned):
        return PublicQuery(None, declared_rows(table, resolver.schema, resolver.guarantees, reports=False))
    return declared_rows(table, resolver.schema, resolver.guarantees)
