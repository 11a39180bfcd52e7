"""GROUP BY: its items, or those of SELECT DISTINCT, as grouping keys.

    GROUP BY a, ROLLUP (b, c)    keys a, b, c    totals (a, b, c), (a, b), (a)

With ROLLUP, CUBE and GROUPING SETS the engine is asked for the finest groups, and each set of keys is a level of totals
that is measured by itself. docs/proofs/totals.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.expressions.narrow import kept_properties
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.expressions.properties import range_of
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import Filter, PerUnit, Window
from dpsql.relation.units import follows_from_unit
from dpsql.schema.types import Boolean, Double, Integer
from dpsql.sql.calls import aggregate_calls, per_unit_type, read_windows
from dpsql.sql.from_clause import NullGroup, Source, vanishing_with
from dpsql.sql.per_key import determined_by
from dpsql.sql.post_processing import PostProcessing
from dpsql.sql.project import output_rows, refuse_order, refuse_preserved_side
from dpsql.sql.rows import PrivateRows, internal_column
from dpsql.sql.scope import Scope
from dpsql.sql.subqueries import read_constants
from dpsql.sql.syntax import (
    extra_clauses,
    has_aggregate,
    is_aggregate,
    is_quantile,
    outermost,
    output_name,
    read_expression,
    read_quantiles,
    unaliased,
    with_marks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from fractions import Fraction

    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall
    from dpsql.sql.per_key import Determined
    from dpsql.sql.subqueries import Filtered

Set: TypeAlias = tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Grouping:
    items: tuple[exp.Expr, ...] = ()
    totals: tuple[tuple[int, ...], ...] = ()
    """Which of them each total keeps; none for a plain GROUP BY."""


def read_grouping(select: exp.Select, scope: Scope) -> Grouping:
    group, items = select.args.get("group"), select.expressions
    if group is None:
        plain = select.args.get("distinct") and not any(map(has_aggregate, items))
        return Grouping(tuple(map(unaliased, items)) if plain else ())
    for clause in extra_clauses(group, {"expressions", "all"}):
        keys = ", ".join(item.sql(dialect="duckdb") for item in group.expressions)
        words = f"GROUP BY {clause.upper()} ({keys})" if clause in ("rollup", "cube") else "a plain GROUP BY"
        raise scope.resolver.refuse(f"{clause.upper()} is not supported in this form", group, f"write {words}")
    if group.args.get("all"):
        return Grouping(tuple(unaliased(item) for item in items if not has_aggregate(item)))
    grouped, sets = _grouping_sets(group)
    totals = tuple(tuple(grouped.index(item) for item in chosen) for chosen in sets)
    return Grouping(tuple(_meant(item, select, scope) for item in grouped), totals)


def _meant(item: exp.Expr, select: exp.Select, scope: Scope) -> exp.Expr:
    """GROUP BY 2 is the second item of the SELECT list; a name that is no column is an alias of it."""
    if isinstance(item, exp.Column):
        aliased = None if scope.is_column(item) else scope.alias(item)
        return unaliased(item if aliased is None else aliased)
    if not (isinstance(item, exp.Literal) and item.is_int):
        return unaliased(item)
    items = select.expressions
    if not 1 <= int(item.this) <= len(items):
        raise ProgrammingError(
            f"GROUP BY {item.this}: the SELECT list has {len(items)} items",
            at=scope.resolver.place(item),
            hint=f"write a number from 1 to {len(items)}, or the column itself",
        )
    return unaliased(items[int(item.this) - 1])


def _grouping_sets(group: exp.Group) -> tuple[list[exp.Expr], list[Set]]:
    """All grouping items, and the requested sets of them; no sets for a plain GROUP BY."""
    choices = [_choices(item) for item in group.expressions]
    # A key that a set names twice is one key; a set that is asked twice is shown twice.
    sets = [tuple(dict.fromkeys(item for part in parts for item in part)) for parts in product(*choices)]
    if all(len(choice) == 1 for choice in choices):
        return list(sets[0]), []
    return list(dict.fromkeys(item for chosen in sorted(sets, key=len, reverse=True) for item in chosen)), sets


def _choices(item: exp.Expr) -> list[Set]:
    """The grouping sets of one GROUP BY item."""
    item = item.unnest()
    parts = [part.unnest() for part in item.expressions]
    match item:
        case exp.Rollup():
            return [tuple(parts[:length]) for length in range(len(parts), -1, -1)]
        case exp.Cube():
            return [chosen for length in range(len(parts), -1, -1) for chosen in combinations(parts, length)]
        case exp.GroupingSets():
            return [_members(part) for part in parts]
    if isinstance(item, exp.Tuple) and not parts:
        return [()]  # GROUP BY (): one group of all
    return [(item,)]


def _members(node: exp.Expr) -> Set:
    """(a, b), (a), a and () in GROUPING SETS."""
    if isinstance(node, exp.Tuple):
        return tuple(part.unnest() for part in node.expressions)
    return (node,)


# -- groups ------------------------------------------------------------------------------------------------------------
# The rows of a SELECT in groups: by which keys, and which aggregates are asked of each group.

CLAUSES = ("expressions", "having", "windows", "qualify", "order", "limit", "offset", "distinct")
"""Those that see groups."""


@dataclass(frozen=True)
class Groups:
    below: Filtered
    items: tuple[exp.Expr, ...]
    """The keys as they are written."""
    keys: tuple[Expression, ...]
    totals: tuple[tuple[int, ...], ...]
    asked: Mapping[int, AggregateCall | list[AggregateCall]]
    """Each aggregate by the id of its node; of a list of quantiles all."""
    determined: Mapping[int, Determined]
    """The aggregates that are looked up in public tables."""

    def determined_name(self, found: Determined) -> str:
        """The column that is looked up."""
        return f"_d{[*dict.fromkeys(self.determined.values())].index(found)}"

    def answer_name(self, call: AggregateCall) -> str:
        """The column that holds an aggregate, above the groups."""
        return f"_a{self.calls.index(call)}"

    def bounds(self, call: AggregateCall) -> tuple[exp.Expr, exp.Expr]:
        """The bounds to which the aggregate's values are clamped: those given, or those implied by the schema."""
        ends: tuple[Fraction | int | None, Fraction | int | None] = (None, None)
        if call.group_bounds is not None:
            ends = call.group_bounds
        elif call.arguments and call.name != "COUNT":
            ends = range_of(kept_properties(call.arguments[0], facts_of(self.below.rows.relation).surviving))
        low, high = ends
        return _number(low), _number(high)

    @cached_property
    def calls(self) -> list[AggregateCall]:
        """The distinct aggregate calls."""
        lists = (calls if isinstance(calls, list) else [calls] for calls in self.asked.values())
        return list(dict.fromkeys(call for calls in lists for call in calls))


def read_groups(below: Filtered, select: exp.Select) -> Groups:
    grouping = read_grouping(select, below.scope)
    below = below.reading(grouping.items)
    keys = tuple(below.scope.lowering.lower(item) for item in grouping.items)
    if not grouping.totals and any(map(below.rows.tells_unit, keys)):
        below = with_ranks(below, select, grouping.items)
    nodes = list(_aggregates(select))
    resolver = below.scope.resolver
    found = {id(node): determined_by(grouping.items, node, select, resolver.schema) for node in nodes}
    of_people = below.rows.tell_unit(keys) or bool(grouping.totals)  # within one person it is an aggregate like others
    determined = {place: value for place, value in found.items() if value is not None and not of_people}
    resolver.determined += determined.values()
    nodes = [node for node in nodes if id(node) not in determined]
    below = below.reading(nodes)
    asked = {id(node): aggregate_calls(node, below.scope.lowering) for node in nodes}
    return Groups(below, grouping.items, keys, grouping.totals, asked, determined)


def _aggregates(select: exp.Select) -> Iterator[exp.Expr]:
    for clause in CLAUSES:
        value = select.args.get(clause)
        for part in value if isinstance(value, list) else [value] if value is not None else []:
            yield from outermost(part, is_aggregate)


def _number(value: int | Fraction | None) -> exp.Expr:
    return exp.Null() if value is None else exp.Literal.number(float(value))


# -- ranked values -----------------------------------------------------------------------------------------------------
# Aggregates within one person that choose rows by rank, or compare them with their mean, are windows of that person
# and then aggregates that there are:
#
# FIRST(x ORDER BY day)    ANY_VALUE(FIRST_VALUE(x) OVER (PARTITION BY unit ORDER BY day))
# ARG_MAX(x, y)            the same in descending order of y, rows that lack one of them last
# QUANTILE_DISC(x, 0.9)    MAX(CASE WHEN its row number is the rank that the number of values asks for THEN x END)
# VAR_POP(x)               the sum of squared distances from the mean, by the number of values
#
# Nothing is new for the proof: each is a Window below a PerUnit, both of one person's rows (docs/proofs/tracking.md).

SPREADS: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.VariancePop: (False, False),
    exp.Variance: (True, False),
    exp.StddevPop: (False, True),
    exp.StddevSamp: (True, True),
    exp.Stddev: (True, True),
}
"""Whether it is of a sample, and whether it is a root."""
FINEST = 10**6
"""Quantiles within a person have fractions of so many parts at most."""


def with_ranks(below: Filtered, select: exp.Select, items: Sequence[exp.Expr]) -> Filtered:
    """Rewrites these aggregates of the SELECT in place, and gives the rows the windows that they are made of."""
    found = [(node, _ranked(node, items, below.scope)) for node in [*_aggregates(select)]]
    ranked = [(node, made) for node, made in found if made is not None]
    if not ranked:
        return below
    below = below.reading([made for _, made in ranked])
    windows = read_windows([made for _, made in ranked], (), below)
    for node, made in ranked:
        name = None if node.parent is not select or node.arg_key != "expressions" else output_name(node)
        new = with_marks(windows.replaced(made), node)
        node.replace(new if name is None else exp.alias_(new, name, quoted=True))
    return replace(below, rows=replace(below.rows, relation=Window(below.rows.relation, windows.calls)))


def _ranked(node: exp.Expr, items: Sequence[exp.Expr], scope: Scope) -> exp.Expr | None:
    """What the aggregate stands for; None for all others."""
    if isinstance(node, exp.First | exp.Last) and not extra_clauses(node, {"this"}):
        return _first(node, items)
    if isinstance(node, exp.ArgMax | exp.ArgMin) and not extra_clauses(node, {"this", "expression"}):
        return _extreme(node, items)
    if type(node) in SPREADS and not extra_clauses(node, {"this"}) and not isinstance(node.this, exp.Distinct):
        return _spread(node, items)
    asked = read_quantiles(node) if is_quantile(node) else None
    if asked is None or asked.listed or isinstance(asked.value, exp.Distinct):
        return None
    falling = isinstance(node, exp.WithinGroup) and node.expression.expressions[0].args.get("desc")
    if asked.name == "QUANTILE_DISC" and falling:
        return None  # ranks from the other end are rounded the other way
    if asked.name == "QUANTILE_CONT" and not isinstance(scope.lowering.lower(asked.value).type, Integer | Double):
        return None  # between decimals DuckDB gives a decimal, and between days a moment
    (fraction,) = asked.fractions
    return _quantile(asked.name, asked.value, fraction, items) if 0 <= fraction <= 1 else None


def _over(call: exp.Expr, items: Sequence[exp.Expr], order: Sequence[exp.Expr] = ()) -> exp.Window:
    return exp.Window(
        this=call,
        partition_by=[copied(item) for item in items],
        order=exp.Order(expressions=[*order]) if order else None,
        over="OVER",
    )


def _where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition, true=copied(value))])


def _ordered(value: exp.Expr, *, descending: bool = False) -> exp.Ordered:
    return exp.Ordered(this=copied(value), desc=descending, nulls_first=False)


def _first(node: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr | None:
    if not isinstance(node.this, exp.Order) or extra_clauses(node.this, {"this", "expressions"}):
        return None  # without an order it could be any row
    value, order = node.this.this, [copied(part) for part in node.this.expressions]
    for part in order if isinstance(node, exp.Last) else ():
        part.set("desc", not part.args.get("desc"))
        part.set("nulls_first", not part.args.get("nulls_first"))
    return _of_first(value, items, [*order, _ordered(value)])


def _of_first(value: exp.Expr, items: Sequence[exp.Expr], order: Sequence[exp.Expr]) -> exp.Expr:
    return exp.AnyValue(this=_over(exp.FirstValue(this=copied(value)), items, order))


def _extreme(node: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    value, by = node.this, node.expression
    ranked = _where(_known(value), by)
    order = [_ordered(ranked, descending=isinstance(node, exp.ArgMax)), _ordered(value)]
    return _of_first(_where(_known(by), value), items, order)


def _known(value: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=copied(value), expression=exp.Null()))


def _spread(node: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    of_sample, rooted = SPREADS[type(node)]
    value = exp.cast(copied(node.this), "DOUBLE")
    apart = exp.Paren(this=exp.Sub(this=value, expression=_over(exp.Avg(this=copied(value)), items)))
    squares: exp.Expr = exp.Sum(this=exp.Mul(this=apart, expression=copied(apart)))
    count: exp.Expr = exp.Count(this=copied(node.this))
    if of_sample:
        count = exp.Paren(this=exp.Sub(this=count, expression=exp.Literal.number(1)))
    spread = exp.Div(this=squares, expression=count, typed=False, safe=True)
    return exp.Sqrt(this=spread) if rooted else exp.Paren(this=spread)


def _quantile(name: str, value: exp.Expr, fraction: Fraction, items: Sequence[exp.Expr]) -> exp.Expr | None:
    """By whole numbers: of n values the rank is ceil(n p), or, between two ranks, 1 + (n - 1) p."""
    above, parts = fraction.as_integer_ratio()
    if parts > FINEST:
        return None
    number, rank = f"_n * {above}", "_r"
    holes = {
        "_n": _over(exp.Count(this=copied(value)), items),
        "_r": _over(exp.RowNumber(), items, [_ordered(value)]),
        "_x": value,
    }
    if name == "QUANTILE_DISC":
        text = f"MAX(CASE WHEN {rank} = GREATEST(1, ({number} + {parts - 1}) // {parts}) THEN _x END)"
    else:
        steps = f"((_n - 1) * {above})"
        low = f"MAX(CASE WHEN {rank} = {steps} // {parts} + 1 THEN _x::DOUBLE END)"
        high = f"MAX(CASE WHEN {rank} = ({steps} + {parts - 1}) // {parts} + 1 THEN _x::DOUBLE END)"
        part = f"MAX(({steps} % {parts})::DOUBLE / {parts})"
        # The value lies between the two, whatever is rounded, and so within the bounds of the column.
        text = f"GREATEST({low}, LEAST({high}, {low} + ({high} - {low}) * {part}))"
    made = read_expression(text)
    for column in nodes_of(made, exp.Column):
        column.replace(copied(holes[column.name]))
    return made


# -- per unit ----------------------------------------------------------------------------------------------------------
# GROUP BY with the unit: still rows of people, with aggregates of each one's own.


def per_unit(groups: Groups, select: exp.Select) -> PrivateRows:
    _refuse_clauses(groups, select)
    above = PostProcessing(
        groups,
        column=lambda call: internal_column(Column(groups.answer_name(call), per_unit_type(call))),
        subquery=copied,
    )
    items = [(output_name(item).lower(), above.rewritten(unaliased(item))) for item in select.expressions]
    having = [above.rewritten(clause.this) for clause in (select.args.get("having"),) if clause is not None]
    rows = _grouped(groups)
    # Subqueries up here are constants, and names are aliases: all else has become a column.
    scope = Scope(
        resolver=groups.below.scope.resolver,
        named=groups.below.scope.named,
        source=Source(rows, (), {}),
        aliases=dict(items),
    )
    scope = read_constants(scope, [*having, *(node for _, node in items)])
    for node in having:
        condition = scope.condition(node, "HAVING")
        is_excluded = rows.null_group is not None and rows.null_group.is_left_out([condition])
        left_out = None if is_excluded else rows.null_group
        rows = replace(rows, relation=Filter(rows.relation, condition), null_group=left_out)
    columns = {name: scope.lowering.lower(node) for name, node in items}
    if len(columns) < len(items):
        raise ProgrammingError("two columns have the same name", hint="rename one with AS")
    return output_rows(rows, columns)


def _refuse_clauses(groups: Groups, select: exp.Select) -> None:
    refuse_order(
        groups.below,
        select,
        "each group is one person, so choosing some would single out people",
        "count them: SELECT COUNT(*) FROM (SELECT ... GROUP BY the unit) WHERE n > 300; or group by values that "
        "people share",
    )
    refuse_preserved_side(groups.below)
    for clause in ("qualify", "distinct"):
        if select.args.get(clause):
            raise groups.below.scope.resolver.refuse(
                f"{clause.upper()} cannot be used with GROUP BY the unit",
                select.args[clause],
                "put the GROUP BY into a subquery and use it outside",
            )


def _grouped(groups: Groups) -> PrivateRows:
    """The keys and aggregates of each unit, under names of our own."""
    rows = groups.below.rows
    keys = {f"_k{number}": key for number, key in enumerate(groups.keys)}
    relation = PerUnit(
        rows.relation,
        tuple(keys.items()),
        tuple((groups.answer_name(call), call) for call in groups.calls),
        by_unit_alone=all(rows.is_of_unit_alone(key) or follows_from_unit(key, rows.relation) for key in groups.keys),
    )
    told = {name: sense for name, key in keys.items() if (sense := rows.key_of(key)) is not None}
    present = frozenset(frozenset({name}) for name in told if rows.tells_unit(keys[name]))
    return PrivateRows(
        relation=relation,
        columns={},
        unit_keys=told,
        present=present,
        composites=rows.passed_on(keys),
        null_group=rows.null_group and _null_in(groups, rows.null_group),
        unit_type=rows.unit_type,
    )


def _null_in(groups: Groups, left_out: NullGroup) -> NullGroup:
    """The columns of the group that is left out which are NULL: its key, and aggregates over nothing but NULLs."""
    keys = {f"_k{number}": key for number, key in enumerate(groups.keys)}
    names = {groups.answer_name(call) for call in groups.calls if call.name != "COUNT" and left_out.adds_nothing(call)}
    return replace(left_out, names=left_out.passed_on(keys).names | names)


def without_null_group(groups: Groups) -> Groups | None:
    """The groups of one person each, if the key is the unit's where it is not NULL; the group of NULL is left out."""
    below = groups.below
    told = [key for key in groups.keys if isinstance(key, Column) and below.rows.key_of(key) is not None]
    if not told or groups.totals or below.rows.null_group is not None or below.rows.kept is not None:
        return None
    key = told[0]
    missing = Call(FUNCTIONS["IS NULL"], (key,), Boolean())
    there = Filter(below.rows.relation, Call(FUNCTIONS["NOT"], (missing,), Boolean()))
    left_out = NullGroup(vanishing_with(key.name, below.rows.relation), key.at)
    if len(groups.keys) > 1:
        return None  # the rows with NULL are several groups
    return replace(groups, below=replace(below, rows=replace(below.rows, relation=there, null_group=left_out)))
