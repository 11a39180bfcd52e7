"""Relations as engine SQL, including aggregates and windows over the rows of one unit.

The parts of a composed aggregate are computed first, as columns of their own, so that no part is written twice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.build import (
    BELOW,
    NULL,
    TRUE,
    UNIT,
    all_of,
    any_of,
    apply,
    cast,
    count,
    fields,
    integer,
    select,
    test,
)
from dpsql.engine_sql.tree import (
    AggFunc,
    Alias,
    Case,
    Constant,
    Exists,
    Field,
    Joined,
    Materialized,
    Ordered,
    Select,
    Series,
    SetOperation,
    Short,
    Subquery,
    Table,
    Values,
    WindowFunc,
)
from dpsql.expressions.emit import as_value, emit, emit_value
from dpsql.expressions.narrow import conjuncts
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, names_read, properties_of
from dpsql.limits import LONGEST_COPIED
from dpsql.relation.domain import Domain, ListedKeys, source_name
from dpsql.relation.facts import (
    BY_POSITION,
    ColumnFacts,
    equated,
    facts_of,
    is_immutable,
    is_whole_list,
    per_unit_parts,
    values_of,
    without_units,
)
from dpsql.relation.relation import (
    OF_THE_LEFT,
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
from dpsql.relation.scan_sql import scan_sql, with_stored_tests
from dpsql.relation.units import is_tracked, one_row_per_unit, scans_of
from dpsql.schema.types import Boolean, Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Set

    from dpsql.engine_sql.tree import Query, Source, Term
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.facts import Parts
    from dpsql.relation.relation import Aggregate, AggregateCall, WindowCall
    from dpsql.relation.reports import RandomizedResponses

    Write: TypeAlias = Callable[[Relation, Iterable[str]], Query]

# -- write tests -------------------------------------------------------------------------------------------------------
# EXISTS and IN as conditions: whether the same unit has a matching row in another relation.

OTHERS = "_others"


def test_sql(semi: SemiJoin, known: ColumnFacts, write: Write) -> Term:
    """The condition that keeps a row of a semi-join: NOT IN keeps it only if no NULL leaves the match open."""
    match = _exists(semi, semi.condition, known, write)
    return all_of([test("not", part) for part in (match, *_open(semi, known, write))]) if semi.negated else match


def mark_sql(semi: SemiJoin, known: ColumnFacts, write: Write) -> Term:
    match, still_open = _exists(semi, semi.condition, known, write), _open(semi, known, write)
    if not still_open:
        return match
    return Case(((match, TRUE), (any_of(still_open), NULL)), Constant(False, Boolean()))


def _open(semi: SemiJoin, known: ColumnFacts, write: Write) -> list[Term]:
    """The tests that hold if NULLs leave the match open: some row differs in no known value."""
    nullable = {**known.surviving, **facts_of(semi.other).surviving}
    missing = [
        [truth("IS NULL", side) for side in part.arguments if properties_of(side, nullable).nullable]
        for part in semi.compared
        if isinstance(part, Call)
    ]
    tests = [test for part in missing for test in part]
    if tests and len(semi.compared) > 1:
        agrees = [truth("OR", whole, *parts) for whole, parts in zip(semi.compared, missing, strict=True)]
        tests = [truth("AND", truth("OR", *tests), *agrees)]
    return [_exists(semi, test, known, write) for test in tests]


def truth(name: str, *arguments: Expression) -> Expression:
    """A condition over other conditions, or over values."""
    return Call(FUNCTIONS[name], arguments, Boolean())


def _exists(semi: SemiJoin, condition: Expression | None, known: ColumnFacts, write: Write) -> Term:
    """EXISTS: a row of the other relation, of the same unit, satisfies the condition."""
    other_known = facts_of(semi.other).any_row
    other = without_units(semi.other, semi.source, condition) or semi.other
    others = Subquery(write(other, names_read(condition) & set(other_known)), OTHERS)
    conditions = [emit(condition, {**known.any_row, **other_known})] if condition is not None else []
    if is_tracked(semi.source) and is_tracked(other):
        conditions.append(test("=", Field(UNIT, BELOW), Field(UNIT, OTHERS)))
    return Exists(Select((), others, all_of(conditions)))


# -- write within ------------------------------------------------------------------------------------------------------

BEYOND = "_beyond"
WHOLE_PARTITION = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def per_unit_sql(relation: PerUnit, names: list[str], write: Write) -> Query:
    keys = [key for _, key in relation.keys]
    wanted = [(name, call) for name, call in relation.calls if name in names]
    source, calls = _with_arguments(relation.source, wanted, names_read(*keys, *_arguments(wanted)))
    known = facts_of(source).any_row
    grouping = [(name, emit_value(key, known)) for name, key in relation.keys]
    parts = [(name, per_unit_parts(call, known)) for name, call in calls]
    # One row per unit is no claim about the keys, which then are functions of the unit, but how the rows are made.
    # A constant parts nothing, and engines take one in GROUP BY for the place of a column, or refuse it.
    apart = [] if relation.by_unit_alone else [key for _, key in grouping if not isinstance(key, Constant)]
    shown = [
        Alias(AggFunc("min", (key,)) if relation.by_unit_alone else key, name)
        for name, key in grouping
        if name in names
    ]
    computed = [Alias(fold, _part(name, i)) for name, each in parts for i, fold in enumerate(each.calls)]
    below = write(source, names_read(*keys, *_arguments(calls)))
    grouped = select([*fields([UNIT]), *shown, *computed], below, group_by=[Field(UNIT), *apart])
    passed = fields([UNIT, *(name for name, _ in grouping if name in names)])
    return select([*passed, *(_combined(name, each) for name, each in parts)], grouped)


def window_sql(relation: Window, names: list[str], write: Write) -> Query:
    windows = [(name, window) for name, window in relation.columns if name in names]
    passed = [name for name in names if name in facts_of(relation.source).any_row]
    # Where positions count, every column that is read breaks ties: the order does not depend on who else is there.
    read = sorted({*passed, *names_read(*(part for _, window in windows for part in _window_parts(window)))})
    source, calls = _with_arguments(relation.source, [(name, window.call) for name, window in windows], set(read))
    known = facts_of(source).any_row
    parts = [(name, per_unit_parts(call, known)) for name, call in calls]
    over = {name: _over(window, known, read) for name, window in windows}
    computed = [
        Alias(replace(over[name], fold=fold), _part(name, i))
        for name, each in parts
        for i, fold in enumerate(each.calls)
    ]
    below = write(source, {*read, *names_read(*_arguments(calls))})
    framed = select([*fields([UNIT, *passed]), *computed], below)
    return select([*fields([UNIT, *passed]), *(_combined(name, each) for name, each in parts)], framed)


def light_units_sql(below: Query, names: list[str], most_rows: int) -> Query:
    """Whether a unit has one row too many is looked up at that place of its rows: NULL where it has no such row.

    A plan may multiply the rows before it joins them with counts, and DuckDB makes such a join of COUNT(*) OVER; it
    cannot do so before a window that goes by position.
    """
    beyond = AggFunc("nth_value", (Constant(1, Integer()), Constant(most_rows + 1, Integer())), kind=Integer())
    # Any order will do, and Spark wants one.
    placed = Alias(WindowFunc(beyond, (Field(UNIT),), (Ordered(Field(UNIT)),), WHOLE_PARTITION), BEYOND)
    # PostgreSQL expects that <> keeps nearly all rows and IS NULL nearly none, and plans the steps above by that.
    is_light = test("<>", apply("coalesce", Field(BEYOND), integer(0)), integer(1))
    return select(fields([UNIT, *names]), select([*fields([UNIT, *names]), placed], below), is_light)


def _with_short_units(relation: Relation, names: list[str], rows: Query) -> Query:
    """The rows without units of long names: those are held with every row."""
    if not any(scan.unit is not None and isinstance(scan.unit.type, Text) for scan in scans_of(relation)):
        return rows
    return _passed(relation, names, rows, test("<=", apply("bytes", Field(UNIT)), integer(LONGEST_COPIED)))


def _with_arguments(
    source: Relation, calls: list[tuple[str, AggregateCall]], used: set[str]
) -> tuple[Relation, list[tuple[str, AggregateCall]]]:
    """The rows with the arguments of sums as columns, because sums read their argument several times."""
    computed = {
        name: call.arguments[0]
        for name, call in calls
        if call.name in ("SUM", "AVG") and not isinstance(call.arguments[0], Column)
    }
    if not computed:
        return source, calls
    known = facts_of(source).any_row
    arguments = {name: Column(f"{name}.argument", value.type) for name, value in computed.items()}
    passed = [(name, Column(name, known[name].type)) for name in sorted(used)]
    project = Project(source, (*passed, *((arguments[name].name, value) for name, value in computed.items())))
    return project, [
        (name, replace(call, arguments=(arguments[name],)) if name in arguments else call) for name, call in calls
    ]


def _arguments(calls: list[tuple[str, AggregateCall]]) -> list[Expression]:
    return [argument for _, call in calls for argument in call.arguments]


def _combined(name: str, parts: Parts) -> Alias:
    columns = [Field(_part(name, number), kind=fold.kind) for number, fold in enumerate(parts.calls)]
    return Alias(parts.whole(columns), name)


def _part(name: str, number: int) -> str:
    return f"{name}.{number}"


def _window_parts(window: WindowCall) -> list[Expression]:
    return [*window.call.arguments, *window.keys, *(order.expression for order in window.order)]


def _over(window: WindowCall, known: Known, read: list[str]) -> WindowFunc:
    """The window of an aggregate whose name is still open."""
    order = [
        Ordered(emit(order.expression, known), descending=order.descending, nulls_first=order.nulls_first)
        for order in window.order
    ]
    if window.call.name in BY_POSITION or (window.frame is not None and window.frame.kind == "ROWS"):
        order += [Ordered(Field(name)) for name in read]
    # Without an order of the analyst's the frame is the whole partition; ours must not make it end at the row.
    frame = "" if window.order or not order else WHOLE_PARTITION
    if window.frame is not None:
        frame = f"{window.frame.kind} BETWEEN {window.frame.start} AND {window.frame.end}"
    partition = (Field(UNIT), *(emit(key, known) for key in window.keys))
    return WindowFunc(AggFunc("row_number"), partition, tuple(order), frame)


# -- write -------------------------------------------------------------------------------------------------------------
# A relation as engine SQL. The first column, _unit, is the privacy unit of each row; public relations have none.

LEFTS, RIGHTS = "_left_rows", "_right_rows"


def relation_sql(relation: Relation, needed: Iterable[str]) -> Query:
    """The query of a relation: _unit and the `needed` columns."""
    names = sorted(set(needed))
    match relation:
        case Scan():
            return scan_sql(relation, names)
        case ValuesTable(table):
            return Select(tuple(fields(names)), Table(table))
        case Filter(source, condition):
            tested, left = with_stored_tests(source, condition)
            below = relation_sql(tested, {*names, *names_read(*left)})
            known = facts_of(source).any_row
            return _passed(relation, names, below, all_of([emit(part, known) for part in left])) if left else below
        case Project(source, columns):
            kept = [(name, expression) for name, expression in columns if name in names]
            values = values_of(relation)
            below = relation_sql(source, names_read(*(expression for _, expression in kept)))
            return select([*_unit(relation), *(Alias(as_value(values[n], e), n) for n, e in kept)], below)
        case Join():
            return _join(relation, names)
        case CrossUnitJoin():
            return _cross_unit_join(relation, names)
        case SemiJoin():
            return _semi_join(relation, names)
        case Mark():
            return _mark(relation, names)
        case SetOp(kind, left, right):
            # Rows are compared as wholes, so every column takes part, whatever is needed above.
            everything = names if kind == "UNION ALL" else sorted(facts_of(left).any_row)
            sides = SetOperation(kind, relation_sql(left, everything), relation_sql(right, everything))
            return _passed(relation, names, sides)
        case Distinct(source):
            everything = sorted(facts_of(source).any_row)
            different = distinct(relation_sql(source, everything), _unit(source), everything)
            return _passed(relation, names, Materialized(different) if is_immutable(source) else different)
        case PerUnit():
            return per_unit_sql(relation, names, relation_sql)
        case Window():
            return window_sql(relation, names, relation_sql)
        case LightUnits(source, most_rows):
            rows = _with_short_units(source, names, relation_sql(source, names))
            return rows if one_row_per_unit(source) else light_units_sql(rows, names, most_rows)


def distinct(below: Query, unit: list[Alias], names: Iterable[str]) -> Select:
    return replace(select([*unit, *fields(names)], below), distinct=True)


def _passed(relation: Relation, names: list[str], below: Query, where: Term | None = None) -> Query:
    return select([*_unit(relation), *fields(names)], below, where)


def _unit(relation: Relation) -> list[Alias]:
    return fields([UNIT]) if is_tracked(relation) else []


def _join(join: Join, names: list[str]) -> Query:
    """A join. Two private sides are joined within each unit only, whatever else the condition says."""
    left_known, right_known = facts_of(join.left).any_row, facts_of(join.right).any_row
    conditions = [] if join.condition is None else [join.condition]
    if join.kind == "INNER" and join.condition is not None:
        tested, conditions = with_stored_tests(join, join.condition)
        assert isinstance(tested, Join)
        join = _with_one_owner(tested)
    wanted = {*names, *names_read(*conditions)}
    left = Subquery(relation_sql(join.left, wanted & set(left_known)), "_lefts")
    right = Subquery(relation_sql(join.right, wanted & set(right_known)), "_rights")
    both = is_tracked(join.left) and is_tracked(join.right)
    meets: list[Term] = [test("=", Field(UNIT, "_lefts"), Field(UNIT, "_rights"))] if both else []
    meets += [emit(part, {**left_known, **right_known}) for part in conditions]
    unit = [Alias(_joined_unit(join), UNIT)] if is_tracked(join) else []
    return Select((*unit, *fields(names)), Joined(join.kind, left, right, all_of(meets)))


def _with_one_owner(join: Join) -> Join:
    """The same join if the condition implies equal units: only one side needs its unit."""
    if (right := without_units(join.right, join.left, join.condition)) is not None:
        return replace(join, right=right)
    left = without_units(join.left, join.right, join.condition)
    return join if left is None else replace(join, left=left)


def _joined_unit(join: Join) -> Term:
    left, right = Field(UNIT, "_lefts"), Field(UNIT, "_rights")
    if not (is_tracked(join.left) and is_tracked(join.right)):
        return left if is_tracked(join.left) else right
    if join.kind == "FULL":
        return apply("coalesce", left, right)
    return right if join.kind == "RIGHT" else left


def _cross_unit_join(across: CrossUnitJoin, names: list[str]) -> Query:
    """A join across units, over the rows of either side that count, which the release's SQL defines."""
    meets = emit(across.condition, facts_of(across).any_row)
    return Select((Alias(NULL, UNIT), *fields(names)), Joined("INNER", Table(LEFTS), Table(RIGHTS), meets))


def _semi_join(semi: SemiJoin, names: list[str]) -> Query:
    known = facts_of(semi.source)
    below = relation_sql(semi.source, {*names, *(names_read(semi.condition) & set(known.any_row))})
    return _passed(semi, names, below, test_sql(semi, known, relation_sql))


def _mark(relation: Mark, names: list[str]) -> Query:
    semi, known = relation.test, facts_of(relation.test.source)
    passed = [name for name in names if name != relation.name]
    used = names_read(semi.condition) & set(known.any_row)
    mark = [Alias(mark_sql(semi, known, relation_sql), relation.name)] if relation.name in names else []
    return select([*_unit(relation), *fields(passed), *mark], relation_sql(semi.source, {*passed, *used}))


# -- multiplicity ------------------------------------------------------------------------------------------------------
# The most rows that one unit can have if the schema is right. It helps to choose bounds, which are enforced anyway.
#
#     customers, declared unique                   1
#     customers JOIN regions USING (region)        1, where every region is listed once
#     customers CROSS JOIN RANGE(3)                3
#     customers UNION ALL customers                2
#     orders                                       anything: the declared bounds are all that is known
#
# Only public rows are read. An error here would cost accuracy, never privacy.

CountPublic: TypeAlias = "Callable[[Query], int | None]"
"""Runs a query over public rows that returns one number; None if an answer it needs is still pending."""


def rows_per_unit(relation: Relation, count: CountPublic, given: tuple[Expression, ...] = ()) -> int | None:
    """The most rows that one unit can have; None if unbounded. `given` are conditions that surviving rows satisfy."""
    match relation:
        case Scan():
            return 1 if relation.one_row_per_unit or relation.declared_unique else None
        case ValuesTable() | CrossUnitJoin():
            return None
        case PerUnit(_, _, _, True):
            return 1
        case Filter(source, condition):
            return rows_per_unit(source, count, (*given, *conjuncts(condition)))
        case SemiJoin(source) | LightUnits(source):
            return rows_per_unit(source, count, given)
        case Mark() | PerUnit() | Project() | Distinct() | Window():
            return rows_per_unit(relation.source, count)
        case Join():
            return _joined(relation, count, given)
        case SetOp(kind, left, right):
            mine, its = rows_per_unit(left, count), rows_per_unit(right, count)
            if kind in OF_THE_LEFT:
                return mine
            return None if mine is None or its is None else mine + its


def _joined(join: Join, count: CountPublic, given: tuple[Expression, ...]) -> int | None:
    if not is_tracked(join.left):
        left, right = join.right, join.left
    else:
        left, right = join.left, join.right
    mine = rows_per_unit(left, count, given)
    if mine is None:
        return None
    if not is_tracked(right):
        conditions = (*given, *(conjuncts(join.condition) if join.condition is not None else ()))
        found = most_matches(left, independent_parts(right, conditions), conditions, count)
        return None if found is None else mine * found
    its = rows_per_unit(right, count, given)
    if its is None:
        return None
    # Where rows without a partner are kept on both sides, there may be more of them than pairs.
    return max(mine * its, mine + its) if join.kind == "FULL" and not join.by_unit_alone else mine * its


def most_matches(
    left: Relation, parts: Iterable[Relation], conditions: tuple[Expression, ...], count: CountPublic
) -> int | None:
    """The largest number of public rows that one row can join, at least 1, over parts that are independent."""
    found = [count(most_matches_sql(left, part, conditions)) for part in parts]
    known = [number for number in found if number is not None]
    return math.prod(max(1, number) for number in known) if len(known) == len(found) else None


def independent_parts(public: Relation, conditions: tuple[Expression, ...]) -> list[Relation]:
    """The sides of cross joins of public rows, so that their matches are counted one by one and multiplied.

    part CROSS JOIN supplier CROSS JOIN nation, where s_nationkey = n_nationkey:
    part, and (supplier CROSS JOIN nation)
    """
    parts = list(_crossed(public))
    for condition in conditions:
        read = names_read(condition)
        met = [part for part in parts if read & facts_of(part).any_row.keys()]
        if len(met) > 1 and read <= facts_of(public).any_row.keys():
            kept = [part for part in parts if part not in met]
            parts = [*kept, reduce(lambda left, right: Join(left, right, "INNER", None), met)]
    return parts if len(parts) > 1 else [public]


def _crossed(public: Relation) -> Iterator[Relation]:
    if isinstance(public, Join) and public.kind == "INNER" and public.condition is None:
        yield from _crossed(public.left)
        yield from _crossed(public.right)
    else:
        yield public


def most_matches_sql(left: Relation, public: Relation, conditions: tuple[Expression, ...]) -> Query:
    """The largest number of public rows that one row can join: the size of the largest group of equal keys."""
    own, known = facts_of(left).any_row.keys(), facts_of(public).any_row
    for condition in conditions:
        if names_read(condition) <= known.keys():
            public = Filter(public, condition)
    keys = [key for condition in conditions if (key := _key(condition, own, known.keys())) is not None]
    below = relation_sql(public, names_read(*keys))
    counts = select([Alias(count(), "n")], below, group_by=[emit_value(key, known) for key in keys])
    most = apply("coalesce", AggFunc("max", (Field("n"),)), integer(0))
    return select([Alias(most, "n")], counts)


def _key(condition: Expression, own: Set[str], public: Set[str]) -> Expression | None:
    """The public side of an equality of one type: as doubles, many integers would be equal."""
    match condition:
        case Call(function, (first, second)) if function.name == "=" and first.type == second.type:
            for mine, its in ((first, second), (second, first)):
                if names_read(mine) <= own and names_read(its) <= public and names_read(its):
                    return its
    return None


# -- unlisted ----------------------------------------------------------------------------------------------------------
# Rows that are joined to a list of keys, which are what they are grouped by: groups are joined to that list anyway.
#
#     SELECT listed.part, SUM(price) FROM lines JOIN (SELECT DISTINCT part FROM parts) AS listed USING (part) GROUP BY 1
#
#     lines whose part is not NULL, grouped by it: a group that is not listed is not shown
#
# Only where all of a table is listed: of few parts there may be few lines, and a join finds them.


def unlisted(
    relation: Relation, keys: tuple[Expression, ...], listed: Relation, reading: Iterable[Expression]
) -> tuple[Relation, tuple[Expression, ...]] | None:
    """The rows, and their own keys; None where rows are not of that kind, or something else of the list is read."""
    match relation:
        case Join(left, right, "INNER", Call() as condition) if right == listed and is_whole_list(listed):
            own, its = facts_of(left).any_row.keys(), facts_of(listed).any_row.keys()
            parts = list(conjuncts(condition))
            equal = {name: (part, mine) for part in parts for name, mine in equated(part) if name in its}
            rest = [part for part in parts if all(part is not used for used, _ in equal.values())]
            columns = [key.name for key in keys if isinstance(key, Column)]
            read = names_read(*reading, *rest, *(mine for _, mine in equal.values()))
            if len(columns) == len(keys) and {*columns} == {*equal} == its and read <= own:
                mine = tuple(equal[name][1] for name in columns)
                return Filter(left, _all([*rest, *map(_is_present, mine)])), mine
    return None


def _is_present(value: Expression) -> Expression:
    """An equality drops NULL, but a list of groups may contain it. The declared value is tested: a
    text that is not, which a list may have all the same, is NULL here as it is there."""
    return truth("NOT", truth("IS NULL", value))


def _all(parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else truth("AND", *parts)


# -- write domain ------------------------------------------------------------------------------------------------------
# The public groups as engine SQL: the keys over all combinations of the sources' values, made by the engine itself.

NUMBER = "number"
FARTHEST = 2.0**62
"""Up to here every engine generates exact integers; beyond, doubles are at least 1024 apart."""


def domain_sql(domain: Domain | ListedKeys, key_names: list[str]) -> Query:
    """SELECT DISTINCT keys FROM source CROSS JOIN source ... WHERE conditions."""
    if isinstance(domain, ListedKeys):
        return listed_keys_sql(domain.relation, domain.keys, key_names)
    known: Known = {source_name(number): properties for number, properties in enumerate(domain.sources)}
    keys = tuple(Alias(emit(key, known), name) for key, name in zip(domain.keys, key_names, strict=True))
    sources: list[Source] = [Subquery(_values(properties, name), name) for name, properties in known.items()]
    conditions = [emit(condition, known) for condition in domain.conditions]
    conditions += [test_sql(test, ColumnFacts(known, known, known), relation_sql) for test in domain.tests]
    source = reduce(lambda left, right: Joined("CROSS", left, right), sources) if sources else None
    return Select(keys, source, all_of(conditions) if conditions else None, distinct=True)


def listed_keys_sql(relation: Relation, keys: tuple[Expression, ...], key_names: list[str]) -> Query:
    known = facts_of(relation).any_row
    values = [Alias(emit_value(key, known), name) for key, name in zip(keys, key_names, strict=True)]
    listed = select(values, relation_sql(relation, names_read(*keys)))
    columns = {value.value.name for value in values if isinstance(value.value, Field)}
    is_listed_once = isinstance(relation, Distinct) and len(columns) == len(values) and columns == known.keys()
    return replace(listed, distinct=not is_listed_once)


def _values(properties: Properties, name: str) -> Query:
    """One column with all values of the source, and NULL if it is possible."""
    if properties.values is not None:
        values = (*properties.values, *([None] if properties.nullable else []))
        return Values((name,), (properties.type,), tuple((value,) for value in values))
    missing = Select((Alias(Constant(None, properties.type), name),))
    return (
        SetOperation("UNION ALL", _range(properties, name), missing)
        if properties.nullable
        else _range(properties, name)
    )


def _range(properties: Properties, name: str) -> Query:
    count = (properties.size or 0) - properties.nullable
    number = Field(NUMBER, kind=Integer())
    if isinstance(properties.type, Double) and not isinstance(properties.low, date) and properties.low is not None:
        first, last = float(properties.low), float(properties.low + count - 1)
        if max(abs(first), abs(last)) > FARTHEST:
            # Doubles reach farther than an engine's whole numbers. Out there they are sparse, and can be written out.
            return Values((name,), (properties.type,), tuple((Fraction(value),) for value in _doubles(first, last)))
    if isinstance(properties.low, date):
        value = apply(
            "date + days", Constant(properties.low, properties.type), cast(number, Short(32)), kind=properties.type
        )
    else:
        assert properties.low is not None
        value = apply("+", number, integer(int(properties.low)))
    return select([Alias(cast(value, properties.type), name)], Series(count, NUMBER))


def _doubles(first: float, last: float) -> Iterator[float]:
    while first <= last:
        yield first
        first = math.nextafter(first, math.inf)


# -- write reports -----------------------------------------------------------------------------------------------------
# Reports that may be counted as they are, as engine SQL: how many rows have the same keys and reports.


def counted_reports_sql(aggregate: Aggregate) -> Query:
    """The counts of reports: keys _k0, _k1, ..., a count n0, n1, ... per call, and the number of rows."""
    known = facts_of(aggregate.source).any_row
    arguments = {number: call.arguments[0] for number, call in enumerate(aggregate.calls) if call.arguments}
    keys = [f"_k{number}" for number in range(len(aggregate.keys))]
    rows = [Alias(emit_value(key, known), name) for key, name in zip(aggregate.keys, keys, strict=True)]
    rows += [Alias(emit(argument, known), f"v{number}") for number, argument in arguments.items()]
    counts = [Alias(count(), "rows")]
    counts += [
        Alias(count(Field(f"v{number}")) if number in arguments else count(), f"n{number}")
        for number in range(len(aggregate.calls))
    ]
    below = relation_sql(aggregate.source, names_read(*aggregate.keys, *arguments.values()))
    return select([*fields(keys), *counts], select(rows, below), group_by=[Field(name) for name in keys])


def answers_sql(reports: RandomizedResponses) -> Query:
    """The table of all possible answers, as constants."""
    table = reports.table
    return domain_sql(table, [f"a{number}" for number in range(len(table.keys))])
