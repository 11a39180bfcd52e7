"""Randomised columns: separates the conditions, keys and values over answers from those over the rows.

A condition, a key or a value that reads collected columns alone is a function of the answers, and is lifted out of the
relation; what reads none of them stays. What reads both in one expression, or a collected column anywhere else, has no
meaning row by row and is refused: the scan does not give such a column away (relation/scan_sql.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.lower import all_of
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.parser_tree import nodes_of
from dpsql.expressions.tree import AdaptiveConstant, Column, columns_of, names_read, reads_adaptive, substituted
from dpsql.relation.relation import Aggregate, AggregateCall, Filter, Join, Project, Scan, SemiJoin, ValuesTable
from dpsql.relation.reports import RandomizedResponses, Report, ResponseCall, report_name
from dpsql.relation.units import is_tracked, one_row_per_unit, parts_of
from dpsql.schema.types import Decimal, Double, Integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dpsql.errors import Place
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import Relation
    from dpsql.schema.model import Table
    from dpsql.schema.types import ColumnType

MOST_ANSWERS = 4096
"""Combinations of answers that are estimated together; beside private columns also combinations of reports."""
COUNTED = "count rows, or use AVG and SUM on collected columns only: COUNT(*), AVG(CASE ... END)"


@dataclass(frozen=True)
class Lifted:
    """A relation without its conditions on answers, the collected columns that it shows, and these conditions."""

    relation: Relation
    seen: Mapping[str, Report]
    """By the name that the relation shows it under."""
    reports: tuple[Report, ...] = ()
    """All that the relation passes on, shown or not: conditions may be about any of them."""
    conditions: tuple[Expression, ...] = ()

    def about_answers(self, expression: Expression) -> Expression | None:
        """The expression over answers, if it reads collected columns; None if it reads none of them."""
        read = names_read(expression)
        if not read & self.seen.keys():
            return None
        if read - self.seen.keys() or reads_adaptive(expression):
            named = " and ".join(f'"{self.seen[name].declared}"' for name in sorted(read & self.seen.keys()))
            raise Unsupported(
                f"{named} holds randomised reports, and cannot be combined with other columns row by row",
                at=_place(expression, self.seen),
                hint="put each in its own condition (joined by AND in WHERE), or make both keys of GROUP BY",
            )
        renamed: dict[Expression, Column] = {
            column: self.seen[column.name].column for column in columns_of(expression) if column.name in self.seen
        }
        return substituted(expression, renamed)


def mentioned_columns(tree: exp.Expr) -> frozenset[str]:
    """The names of all columns in a query, and a star if it contains one as a column."""
    said = nodes_of(tree, exp.Column, exp.Star)
    columns = (node.name.lower() for node in said if isinstance(node, exp.Column))
    stars = ("*" for node in said if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count))
    return frozenset({*columns, *stars})


def reads_reports(table: Table, mentioned: frozenset[str]) -> bool:
    """Whether the query may be about collected columns of a public table; all others are of no concern then."""
    collected = {column.name.lower() for column in table.columns.values() if column.collected is not None}
    return bool(collected) and ("*" in mentioned or bool(collected & mentioned))


def as_reports(aggregate: Aggregate) -> Aggregate:
    """The aggregate of reports, with the question about answers above it; itself if it reads no collected column."""
    lifted = lift(aggregate.source)
    keys = [lifted.about_answers(key) for key in aggregate.keys]
    arguments = [lifted.about_answers(part) for call in aggregate.calls for part in call.arguments]
    is_used = bool(lifted.conditions) or any(part is not None for part in (*keys, *arguments))
    if not is_used and is_tracked(aggregate.source):
        return aggregate
    _check(aggregate, lifted)
    own_keys = [key for key, lifted_key in zip(aggregate.keys, keys, strict=True) if lifted_key is None]
    counts: list[AggregateCall] = []
    calls = tuple(_call(call, lifted, counts) for call in aggregate.calls)
    about = [part for part in (*lifted.conditions, *keys, *(call.argument for call in calls)) if part is not None]
    read = names_read(*about)
    columns = tuple(report for report in lifted.reports if report.name in read)
    released = Aggregate(
        source=lifted.relation,
        keys=(*own_keys, *(Column(report.name, _stored(report)) for report in columns)),
        calls=tuple(counts),
        grouped=bool(own_keys or columns),
    )
    numbers = iter(range(len(own_keys)))
    reports = RandomizedResponses(
        columns=columns,
        condition=all_of([*lifted.conditions]),
        keys=tuple(next(numbers) if key is None else key for key in keys),
        key_types=tuple(key.type for key in aggregate.keys),
        calls=calls,
        is_free=_is_free(released, columns),
    )
    _check_size(reports)
    return replace(released, reports=reports)


def lift(relation: Relation) -> Lifted:
    """Through filters, projections and inner joins; above anything else a collected column is out of reach."""
    match relation:
        case Scan(columns=columns):
            seen = {
                column.name: Report(report_name(column.name), column.declared, column.properties.type, column.collected)
                for column in columns
                if column.collected is not None
            }
            return Lifted(relation, seen, tuple(seen.values()))
        case Filter(source, condition):
            below = lift(source)
            parts = [(part, below.about_answers(part)) for part in conjuncts(condition)]
            kept = all_of([part for part, about in parts if about is None])
            above = tuple(about for _, about in parts if about is not None)
            return replace(
                below,
                relation=below.relation if kept is None else Filter(below.relation, kept),
                conditions=below.conditions + above,
            )
        case Project(source, columns):
            below = lift(source)
            seen = {n: below.seen[e.name] for n, e in columns if isinstance(e, Column) and e.name in below.seen}
            passed = [(report.name, Column(report.name, _stored(report))) for report in below.reports]
            return replace(below, relation=Project(below.relation, (*columns, *passed)), seen=seen)
        case Join(left, right, "INNER"):
            return _lift_join(relation, lift(left), lift(right))
        case SemiJoin(source, _, condition, _, compared):
            below = lift(source)
            if not names_read(condition, *compared) & below.seen.keys():
                return replace(below, relation=replace(relation, source=below.relation))
    return Lifted(relation, {})


def _lift_join(join: Join, left: Lifted, right: Lifted) -> Lifted:
    twins = {part.name for part in left.reports} & {part.name for part in right.reports}
    if twins or names_read(join.condition) & {*left.seen, *right.seen}:
        return Lifted(join, {})
    # A report that stands beside several rows would count as several, with one coin: no error bar would hold.
    if (left.reports and not one_row_per_unit(join.right)) or (right.reports and not one_row_per_unit(join.left)):
        return Lifted(join, {})
    return Lifted(
        replace(join, left=left.relation, right=right.relation),
        {**left.seen, **right.seen},
        left.reports + right.reports,
        left.conditions + right.conditions,
    )


def _call(call: AggregateCall, lifted: Lifted, counts: list[AggregateCall]) -> ResponseCall:
    about = [lifted.about_answers(part) for part in call.arguments]
    plain = call.name in ("COUNT", "SUM", "AVG") and not call.distinct and call.group_bounds is None
    if not plain or (call.name != "COUNT" and not isinstance(call.arguments[0].type, Integer | Double | Decimal)):
        raise _beside_reports(call)
    every = AggregateCall(name="COUNT", arguments=())
    if not about:
        return ResponseCall("COUNT", None, _number(every, counts))
    argument = about[0] if names_read(*call.arguments) else call.arguments[0]
    if argument is None and call.name != "COUNT":
        raise _beside_reports(call)
    counted = every if argument is not None else AggregateCall(name="COUNT", arguments=call.arguments)
    return ResponseCall(call.name, argument, _number(counted, counts))  # type: ignore[arg-type]


def _number(call: AggregateCall, counts: list[AggregateCall]) -> int:
    if call not in counts:
        counts.append(call)
    return counts.index(call)


def _beside_reports(call: AggregateCall) -> Unsupported:
    return Unsupported(f"{call.said} cannot be estimated from randomised reports", at=call.at, hint=COUNTED)


def _check(aggregate: Aggregate, lifted: Lifted) -> None:
    at = next((call.at for call in aggregate.calls), None)
    asked = [*aggregate.keys, *(part for call in aggregate.calls for part in call.arguments)]
    if any(map(reads_adaptive, asked)) or reads_answers(lifted.relation):
        raise Unsupported(
            "an aggregate of randomised reports cannot read another answer",
            at=at,
            hint="query that first, and write the number into this query",
        )
    if not aggregate.calls:
        raise Unsupported("randomised reports do not reveal which answers occur", hint="count them: COUNT(*)")
    if aggregate.totals:
        raise Unsupported(
            "totals over groups of randomised reports are not supported",
            at=at,
            hint="remove ROLLUP, CUBE or GROUPING SETS",
        )
    if aggregate.listed is not None:
        raise Unsupported("an outer join cannot keep groups of randomised reports", at=at, hint="use an inner join")


def _check_size(reports: RandomizedResponses) -> None:
    if reports.answer_count > MOST_ANSWERS:
        names = ", ".join(f'"{report.declared}"' for report in reports.columns)
        raise Unsupported(
            f"{names}: {reports.answer_count:,} combinations of answers are too many to estimate",
            hint=f"use fewer collected columns at once, up to {MOST_ANSWERS:,} combinations",
        )
    bits = [len(report.collected.values) for report in reports.columns if report.collected.is_bits]
    if not reports.is_free and 2 ** sum(bits) * reports.answer_count > MOST_ANSWERS:
        raise Unsupported(
            "reports with this many bits cannot be combined with private columns",
            hint="query collected columns alone, which is free; or collect with  mechanism: kary",
        )


def reads_answers(part: object) -> bool:
    """Whether rows or a value of another answer, or listed rows, are anywhere in it."""
    if isinstance(part, ValuesTable | AdaptiveConstant):
        return True
    inner = part if isinstance(part, tuple) else _fields(part)
    return any(map(reads_answers, inner))


def _fields(part: object) -> list[object]:
    if not is_dataclass(part):
        return []
    return [getattr(part, field.name) for field in fields(part) if field.name not in ("at", "properties", "function")]


def _is_free(aggregate: Aggregate, columns: Iterable[Report]) -> bool:
    """Whether it reads only public rows, or only the reports in people's rows.

    Rows that reach their unit over a foreign key depend on who is in another table, and are never free.
    """
    if not any(isinstance(part, Scan) and part.unit is not None for part in parts_of(aggregate.source)):
        return True
    arguments = [part for call in aggregate.calls for part in call.arguments]
    needed = names_read(*aggregate.keys, *arguments)
    relation = aggregate.source
    while isinstance(relation, Filter | Project):
        if isinstance(relation, Filter):
            needed |= names_read(relation.condition)
        else:
            needed = names_read(*(value for name, value in relation.columns if name in needed))
        relation = relation.source
    is_own = isinstance(relation, Scan) and relation.unit is not None and not relation.unit.path
    return is_own and needed <= {report.name for report in columns}


def _stored(report: Report) -> ColumnType:
    return Integer() if report.collected.is_bits else report.type


def _place(expression: Expression, seen: Mapping[str, Report]) -> Place | None:
    return next((column.at for column in columns_of(expression) if column.name in seen), None) or expression.at
