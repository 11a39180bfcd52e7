"""UNION, INTERSECT and EXCEPT of rows that keep their units."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlglot import exp

from dpsql.expressions.casts import cast_to
from dpsql.expressions.tree import Call, Column, type_properties
from dpsql.expressions.types import common_type
from dpsql.relation.relation import Project, SetKind, SetOp
from dpsql.resolve.rows import Rows, inner_name
from dpsql.resolve.syntax import extra_clauses

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.errors import Unsupported
    from dpsql.schema.types import ColumnType

    Refuse = Callable[[str, exp.Expr, str], Unsupported]

WORDS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


def combined(node: exp.SetOperation, left: Rows, right: Rows, refuse: Refuse) -> Rows:
    word = WORDS[type(node)]
    if extra_clauses(node, {"this", "expression", "distinct", "with_", "by_name"}):
        raise refuse(f"{word} of rows of people with more clauses cannot be asked", node, "leave them out")
    if not node.args.get("distinct"):
        word += " ALL"
    for kept in (left.kept, right.kept):
        if kept is not None:
            raise kept.refuse(
                f"{word} would combine these with rows of people", "aggregate first, or use an inner join"
            )
    mine, its = list(left.plain_columns.items()), list(right.plain_columns.values())
    if node.args.get("by_name"):
        if right.plain_columns.keys() != left.plain_columns.keys():
            raise refuse(f"{word} BY NAME of different columns", node, "select columns of the same names on both sides")
        its = [right.plain_columns[name] for name, _ in mine]
    if len(mine) != len(its):
        raise refuse(f"{word} of {len(mine)} columns and {len(its)}", node, "select the same columns on both sides")
    if left.unit_type != right.unit_type:
        raise refuse("the units of the two sides are of different types", node, "combine tables of one unit")
    pairs = [(inner_name(name), column, other) for (name, column), other in zip(mine, its, strict=True)]
    keys = {
        name: key
        for name, column, other in pairs
        if (key := left.key_of(column)) is not None and key == right.key_of(other) and column.type == other.type
    }
    present = {name for name, *pair in pairs if name in keys and left.tells_unit(pair[0]) and right.tells_unit(pair[1])}
    if word != "UNION ALL" and not present:
        raise refuse(
            f"{word} would compare rows of different people",
            node,
            "select the unit on both sides, in the same place, or use UNION ALL",
        )
    kinds = [_kind(column, other, node, refuse) for (_, column), other in zip(mine, its, strict=True)]
    names = [inner_name(name) for name, _ in mine]
    relation = SetOp(
        cast(SetKind, word),
        _aligned(left, [column for _, column in mine], names, kinds),
        _aligned(right, its, names, kinds),
    )
    columns = {name: Column(inner_name(name), kind) for (name, _), kind in zip(mine, kinds, strict=True)}
    return Rows(
        relation=relation,
        columns=columns,
        unit_keys=keys,
        present=frozenset(frozenset({name}) for name in present),
        unit_type=left.unit_type,
    )


def _kind(column: Column, other: Column, node: exp.Expr, refuse: Refuse) -> ColumnType:
    kind = common_type([type_properties(column), type_properties(other)])
    if kind is None:
        raise refuse(f"{column.type.name} and {other.type.name} cannot be combined", node, "CAST one of them")
    return kind


def _aligned(rows: Rows, columns: list[Column], names: list[str], kinds: list[ColumnType]) -> Project:
    values = [
        column if column.type == kind else Call(cast_to(kind), (column,), kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return Project(rows.relation, tuple(zip(names, values, strict=True)))
