"""Literals that decide nothing: WHERE compares them with a column that is written nowhere else.

    SELECT region, SUM(amount) FROM orders WHERE day BETWEEN '2025-01-01' AND '2025-12-31' GROUP BY region

No bound, no group and no noise follows from the two days, so what was planned for them serves all days within the
bounds of `day`. A mark stands in the place of each while the question is planned, so that no stage can look at it.
What is marked here is a guess about the tree's names: it decides whether another literal has the same plan, never
whether the plan is right. docs/proofs/literals.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Error
from dpsql.expressions.lower import KIND, Lowering
from dpsql.expressions.parser_tree import copied, nodes, nodes_of
from dpsql.expressions.properties import midnight
from dpsql.expressions.tree import Call, Column, Literal
from dpsql.sql.parameters import PARAMETER, check_text, literal
from dpsql.sql.post_processing import declared_column, undeclared_texts
from dpsql.sql.rows import declared_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression
    from dpsql.schema.model import Schema

Places = dict[tuple[int, int], str]
"""Where literals stand in the text, from the first to the last character, and the name of each."""
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
READING_UNWRITTEN = (exp.Pivot, exp.Columns)
"""What reads columns that it does not name, besides stars and natural joins."""


@dataclass(frozen=True)
class WrittenLiteral:
    """A number or a text as it stands in the SQL, quotes included."""

    sql: str

    def node(self) -> exp.Expr:
        if not self.sql.startswith("'"):
            return exp.Literal.number(self.sql)
        check_text(self.sql)
        return exp.Literal.string(self.sql[1:-1])


@dataclass(frozen=True)
class InertTest:
    """A comparison of a column with literals, in whose places are marks: day BETWEEN $0 AND $1."""

    comparison: exp.Expr
    column: str
    declared: Properties
    values: tuple[object, ...] | None
    """As the schema spells them, if it lists them."""
    names: tuple[str, ...]
    """Of the marks, in order."""

    def read(self, values: Mapping[str, object]) -> Iterator[tuple[str, str, Literal]]:
        """By the name of its mark each literal as what it is beside the column, and how the two are compared.

        Read by the very code that reads them in a question that is planned. Raises Error where it refuses them.
        """
        comparison = copied(self.comparison)
        for mark in nodes_of(comparison, exp.Placeholder):
            value = values[mark.name]
            mark.replace(value.node() if isinstance(value, WrittenLiteral) else literal(value))
        column = Column(self.column, self.declared.type)
        found = list(_literals(Lowering("", lambda _: column).lower(comparison)))
        if len(found) == len(self.names) and not undeclared_texts(comparison, self.values):
            yield from ((name, *part) for name, part in zip(self.names, found, strict=True))


def inert_tests(tree: exp.Query, places: Places, schema: Schema) -> tuple[InertTest, ...]:
    """The comparisons of columns that nothing else reads, each with literals that stand nowhere else."""
    parts = nodes(tree)
    if any(map(_reads_unwritten, parts)):
        return ()
    written = Counter(node.name.lower() for node in parts if isinstance(node, exp.Identifier))
    holes = Counter(name for node in parts if (name := _name_of(node, places)) is not None)
    tests = [test for node in parts if (test := _test(node, places, schema)) is not None]
    compared = Counter(test.column for test in tests)
    read = {name for name, times in compared.items() if times < written[name]} | _leading_to_units(schema)
    read |= {test.column for test in tests if any(holes[name] > 1 for name in test.names)}
    return tuple(test for test in tests if test.column not in read)


def read_inert(tests: Sequence[InertTest], values: Mapping[str, object]) -> dict[str, Literal] | None:
    """The literals by name; None where one is not what the plan for many takes for granted.

    Each lies within what is declared of its column, short of the ends, and nothing is said of it. No comparison is made
    twice: one of two would be left out.
    """
    try:
        found = [(test, *part) for test in tests for part in test.read(values)]
    except Error:
        return None
    different = {(test.column, operator, value.value) for test, _, operator, value in found}
    if len(different) < sum(len(test.names) for test in tests):
        return None
    fit = all(_is_within(value, test.declared) for test, _, _, value in found)
    return {name: value for _, name, _, value in found} if fit else None


def with_marks(tree: exp.Query, places: Places, literals: Mapping[str, Literal]) -> exp.Query:
    """The tree with a mark in the place of each of these literals, which says its type."""
    marked = copied(tree)
    for node in nodes(marked):
        name = _name_of(node, places)
        if name is not None and name in literals:
            mark = exp.Placeholder(this=name)
            mark.meta[KIND] = literals[name].type
            (node.parent if isinstance(node.parent, exp.Cast) else node).replace(mark)
    return marked


def _reads_unwritten(node: exp.Expr) -> bool:
    if isinstance(node, exp.Star):
        return not isinstance(node.parent, exp.Count)
    return isinstance(node, READING_UNWRITTEN) or (isinstance(node, exp.Join) and node.method == "NATURAL")


def _leading_to_units(schema: Schema) -> set[str]:
    """Columns that are read unsaid: those that hold units, or lead to them."""
    hops = [hop for table in schema.tables for hop in schema.unit_path(table)]
    names = {name for hop in hops for name in (hop.column, hop.to_column)}
    names |= {table.unit_column for table in schema.tables.values() if table.unit_column is not None}
    return {name.lower() for name in names}


def _name_of(node: exp.Expr, places: Places) -> str | None:
    """The name of a literal that may be left open."""
    meta = node._meta or {}
    if PARAMETER in meta:
        name: str = meta[PARAMETER]
        return name
    return places.get((meta.get("start", -1), meta.get("end", -1))) if isinstance(node, exp.Literal) else None


def _test(node: exp.Expr, places: Places, schema: Schema) -> InertTest | None:
    if not isinstance(node, COMPARISONS) or not _is_condition(node):
        return None
    columns = [side for side in _sides(node) if isinstance(side, exp.Column)]
    literals = [_literal_of(side) for side in _sides(node) if not isinstance(side, exp.Column)]
    names = [name for part in literals if (name := _name_of(part, places)) is not None]
    declared = declared_column(columns[0], schema) if len(columns) == 1 else None
    if declared is None or declared.collected is not None or not literals or len(names) < len(literals):
        return None
    comparison = copied(node)
    for part in nodes(comparison):
        if (name := _name_of(part, places)) is not None:
            part.replace(exp.Placeholder(this=name))
    known = declared_properties(declared)
    return InertTest(comparison, columns[0].name.lower(), known, declared.values, tuple(names))


def _is_condition(node: exp.Expr) -> bool:
    """Whether it is the WHERE of a SELECT, or one of several conditions there that must all hold."""
    above = node.parent
    while isinstance(above, exp.And | exp.Paren):
        above = above.parent
    return isinstance(above, exp.Where) and isinstance(above.parent, exp.Select)


def _sides(node: exp.Expr) -> list[exp.Expr]:
    return [part for part in node.iter_expressions() if not isinstance(part, exp.Identifier)]


def _literal_of(side: exp.Expr) -> exp.Expr:
    """'2025-01-01' and DATE '2025-01-01' are one literal each."""
    is_cast = isinstance(side, exp.Cast) and PARAMETER not in side.meta
    return side.this if is_cast else side


def _literals(expression: Expression) -> Iterator[tuple[str, Literal]]:
    """The literals that a column is compared with, in order, and the operator; none where something is made of them."""
    match expression:
        case Call(function, parts) if function.name == "AND":
            yield from (found for part in parts for found in _literals(part))
        case Call(function, sides) if all(isinstance(side, Column | Literal) for side in sides):
            yield from ((function.name, side) for side in sides if isinstance(side, Literal))


def _is_within(value: Literal, declared: Properties) -> bool:
    """Whether the literal lies within what is declared of the column, short of the ends."""
    if value.value is None:
        return False
    if declared.values is not None:
        return value.type == declared.type and value.value in declared.values
    low, found, high = (
        midnight(end) if isinstance(end, date) else end for end in (declared.low, value.value, declared.high)
    )
    return (low is None or low < found) and (high is None or found < high)  # type: ignore[operator]
