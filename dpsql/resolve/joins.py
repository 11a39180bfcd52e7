"""FROM with several items. Rows of people meet within each person only, or beside public rows.

orders JOIN customers ON orders.customer_id = customers.id        both are the unit: same person
order_lines JOIN orders ON order_lines.order_id = orders.id       the declared way to the unit: same person
orders JOIN regions USING (region)                                regions is public: any condition will do
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Expression, names_read
from dpsql.relation.relation import CrossUnitJoin, Join, Project
from dpsql.relation.units import different_units
from dpsql.resolve.kept_rows import Kept
from dpsql.resolve.rows import Rows
from dpsql.resolve.syntax import extra_clauses
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sqlglot import exp

    from dpsql.source import Place

Kind = Literal["INNER", "LEFT", "RIGHT", "FULL"]


@dataclass(frozen=True)
class Step:
    """One more item of FROM and how it is joined."""

    rows: Rows
    kind: Kind
    on: exp.Expr | None
    using: tuple[str, ...]
    at: Place | None

    def pairs(self, left: Rows) -> list[Expression]:
        """What USING says."""
        return [equal(left.columns[name], self.rows.columns[name]) for name in self.using]


@dataclass(frozen=True)
class Source:
    """Everything in FROM, under one set of names. None marks a name that two items have."""

    first: Rows
    steps: tuple[Step, ...]
    columns: Mapping[str, Column | None]

    @property
    def items(self) -> list[Rows]:
        return [self.first, *(step.rows for step in self.steps)]

    @property
    def inner_names(self) -> set[str]:
        return {column.name for rows in self.items for column in rows.columns.values()}

    @property
    def conditions(self) -> list[exp.Expr]:
        """What ON says, join by join."""
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
                f'"{node.name}" is a column of several tables', at=place, hint=f"write  table.{node.name}"
            )
        return Column(found.name, found.type, place)

    def joined(self, condition_of: Callable[[exp.Expr, str], Expression], where: list[Expression]) -> Rows:
        """One relation. A comma or CROSS JOIN finds its condition among the parts of the WHERE."""
        rows = self.first
        for step in self.steps:
            condition = all_of([*step.pairs(rows), *([condition_of(step.on, "ON")] if step.on is not None else [])])
            rows = _together(rows, step, condition, where)
        return rows


def _full_name(node: exp.Column) -> str:
    return (f"{node.table}.{node.name}" if node.table else node.name).lower()


def add_step(source: Source, step: Step, taken: Collection[str]) -> Source:
    """The source with one more item, its names kept apart."""
    step = replace(step, rows=step.rows.apart_from({*taken, *source.inner_names}))
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


def read_step(rows: Rows, node: exp.Join, left: Mapping[str, Column | None], at: Place | None) -> Step:
    """The parser's join as a step; what is not understood is refused."""
    kind = (node.side or "INNER").upper()
    natural = node.method == "NATURAL"
    known = {"this", "side", "kind", "on", "using", *(["method"] if natural else [])}
    if extra_clauses(node, known) or node.kind not in ("", "INNER", "OUTER", "CROSS"):
        raise Unsupported("this kind of join cannot be asked", at=at, hint="use INNER, LEFT, RIGHT, FULL or CROSS JOIN")
    using = tuple(name.name.lower() for name in node.args.get("using") or ())
    if natural:
        using = tuple(name for name in rows.plain_columns if name in left)
    for name in using:
        if left.get(name) is None or name not in rows.columns:
            raise ProgrammingError(f'USING: both sides need one column "{name}"', at=at, hint="write ON instead")
    return Step(rows, cast(Kind, kind), node.args.get("on"), using, at)


def equal(left: Expression, right: Expression) -> Expression:
    return Call(FUNCTIONS["="], (left, right), Boolean())


def all_of(parts: list[Expression]) -> Expression | None:
    """All parts joined by AND; None if there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return Call(FUNCTIONS["AND"], tuple(parts), Boolean())


def _together(left: Rows, step: Step, condition: Expression | None, where: list[Expression]) -> Rows:
    right = step.rows
    if right.kept is not None and left.kept is None and step.kind == "INNER":
        # An inner join has no sides.
        left, right, step = right, left, replace(step, rows=left)
    if right.kept is not None:
        raise right.kept.refuse("is joined again", "let it be the first item of FROM, or use an inner join")
    public = _kept_public_side(left, step) if left.kept is None else _kept_again(left.kept, step, condition, where)
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
    return Rows(
        relation=relation,
        # A column that USING merges is the one of the side that is kept.
        columns={**left.columns, **right.columns} if step.kind == "RIGHT" else {**right.columns, **left.columns},
        unit_keys={**left.unit_keys, **right.unit_keys},
        present=_present(left, right, relation.kind),
        unit_type=left.unit_type or right.unit_type,
        kept=public,
    )


def _present(left: Rows, right: Rows, kind: Kind) -> frozenset[frozenset[str]]:
    """Which columns tell every row's unit: those of a side that is kept, or of a FULL JOIN one of either side."""
    if kind == "FULL":
        return frozenset(mine | its for mine in left.present for its in right.present)
    return {"INNER": left.present | right.present, "LEFT": left.present, "RIGHT": right.present}[kind]


def _merged(join: Join, left: Rows, step: Step) -> Rows:
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
    return Rows(
        relation=Project(join, tuple(values)),
        columns=columns,
        unit_keys=keys,
        present=present,
        unit_type=left.unit_type,
    )


def _within_units(left: Rows, step: Step, condition: Expression | None, where: list[Expression]) -> Expression | None:
    """The condition, once it is sure that it compares the units of both sides; None if it does not."""
    if left.unit_type != step.rows.unit_type:
        raise Unsupported("the units of the tables differ in type", at=step.at, hint="join tables of one unit")
    parts = list(conjuncts(condition)) if condition is not None else []
    if any(same_unit(part, left, step.rows) for part in parts):
        return condition
    found = [part for part in where if same_unit(part, left, step.rows)] if step.kind == "INNER" else []
    return all_of([*parts, *found]) if found else None


def _cross_unit_join(left: Rows, step: Step, condition: Expression | None, where: list[Expression]) -> Rows:
    """Rows of different units, with equal keys or compared otherwise: aggregates/cross_unit.py may count them."""
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
    return Rows(relation=relation, columns={**right.columns, **left.columns}, unit_type=left.unit_type)


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


def same_unit_said(left: Rows, right: Rows) -> str:
    """What the condition should say; nothing where a subquery leaves the unit out, which it has to select first."""
    mine, its = left.unit_names, right.unit_names
    if not (mine and its):
        # Over a foreign key that leads both to their unit, if there is one.
        mine, its = next(_common_keys(left, right), (mine, its))
    return f"{' or '.join(mine)} = {' or '.join(its)}" if mine and its else ""


def _common_keys(left: Rows, right: Rows) -> Iterator[tuple[list[str], list[str]]]:
    for column, key in left.unit_keys.items():
        mine, its = left.names_of({column}), right.names_of({name for name, k in right.unit_keys.items() if k == key})
        if mine and its:
            yield mine, its


def same_unit(part: Expression, left: Rows, right: Rows) -> bool:
    """Whether the part says that a row of each side belongs to the same unit."""
    return any(True for _ in _told_alike(part, left, right))


def _told_alike(part: Expression, left: Rows, right: Rows) -> Iterator[tuple[Expression, Expression]]:
    """The sides of an equality that tell the unit in the same sense. NULL from an outer join is equal to nothing."""
    match part:
        case Call(function, (first, second), _) if function.name == "=":
            for mine, its in ((first, second), (second, first)):
                key = left.key_of(mine)
                if key is not None and key == right.key_of(its):
                    yield mine, its


def _is_by_unit(part: Expression, left: Rows, right: Rows) -> bool:
    """Whether the part says nothing more than that the units are the same."""
    return any(left.is_unit(mine) and right.is_unit(its) for mine, its in _told_alike(part, left, right))


def _kept_again(kept: Kept, step: Step, condition: Expression | None, where: list[Expression]) -> Kept | None:
    """The public rows that are kept through one more join: beside other public rows, or where none of them matches."""
    meets = [*([condition] if condition is not None else []), *(where if step.kind == "INNER" else [])]
    if step.kind == "INNER" or step.kind == "LEFT":
        beside = kept.joined(step.rows, step.kind, condition)
        if beside is not None:
            return beside
        if any(map(kept.never_true, meets)):
            return kept if step.kind == "LEFT" else None
    raise kept.refuse("is joined again", "let this join be the last one, or use an inner join")


def _kept_public_side(left: Rows, step: Step) -> Kept | None:
    """The public rows that an outer join keeps though nobody matches them. They have no unit, so they stay outside."""
    keeps_left, keeps_right = step.kind in ("LEFT", "FULL"), step.kind in ("RIGHT", "FULL")
    kept = [rows for rows, keeps in ((left, keeps_left), (step.rows, keeps_right)) if keeps and not rows.is_private]
    if not kept or not (left.is_private or step.rows.is_private):
        return None
    (rows,) = kept
    public = Kept(rows.relation, frozenset(column.name for column in rows.columns.values()), step.at)
    if step.kind == "FULL":
        raise public.refuse("private ones too", "keep the rows of one side only")
    return public
