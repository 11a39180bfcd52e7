"""Public groups without joins to their list. To Spark a join is a job or two of its own, however short the list is.

    partials INNER JOIN list             partials whose keys are IN (...)
    list LEFT JOIN (... GROUP BY keys)   (rows UNION ALL list) GROUP BY keys, of which those in the list are kept

Rows of the list have NULL in place of all values, which no sum and no count of values sees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import BELOW, NULL, all_of, any_of, fields, integer, test, when
from dpsql.engine_sql.tree import (
    AggFunc,
    Alias,
    Constant,
    Field,
    Func,
    Joined,
    Select,
    SetOperation,
    Subquery,
    Values,
    With,
    parts_of,
)
from dpsql.schema.types import Boolean, Date, Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpsql.engine_sql.tree import Query, Source, Term

LISTED = "_listed"
"""1 in rows of the list, 0 in others."""


def looked_up(select: Select) -> Select:
    """The same without an inner join to the combinations of listed values."""
    match select.source:
        case Joined("INNER", Subquery(partials, rows) as found, Subquery(Select() as listed, alias), on):
            values = _values_by_key(listed)
            keys = {name: Field(name, rows) for name in values}
            same = [test("same", key, Field(name, alias)) for name, key in keys.items()]
            if keys and on == all_of(same) and select.where is None and all(map(_passthrough, select.columns)):
                is_listed = all_of([_is_one_of(keys[name], values[name]) for name in keys])
                return replace(select, source=found, where=_of_partials(is_listed, partials, rows))
    return select


def _of_partials(condition: Term, partials: Query, alias: str) -> Term:
    """The condition, with the test "not below 0" for a counted number; otherwise Spark would look up every row
    before counting it, which takes longer than counting."""
    if isinstance(partials, Select) and partials.group_by:
        for column in partials.columns:
            if isinstance(column.value, AggFunc) and column.value.name == "count":
                return when(test(">=", Field(column.name, alias), integer(0)), condition)
    return condition


def _passthrough(column: Alias) -> bool:
    return isinstance(column.value, Field)


def _values_by_key(listed: Select) -> dict[str, Values]:
    """For each key the values that it has, where these are all combinations; empty if they are not."""
    sources = list(_crossed(listed.source))
    values = {part.names[0]: part for part in sources if part is not None and _is_compared_alike(part)}
    keys = {column.name: column.value.name for column in listed.columns if isinstance(column.value, Field)}
    if listed.where is not None or not (len(sources) == len(values) == len(keys) == len(listed.columns)):
        return {}
    return {key: values[name] for key, name in keys.items()} if set(keys.values()) == set(values) else {}


def _crossed(source: Source | None) -> Iterator[Values | None]:
    match source:
        case Joined("CROSS", left, right, None):
            yield from _crossed(left)
            yield from _crossed(right)
        case Subquery(Values() as values):
            yield values
        case _:
            yield None


def _is_compared_alike(values: Values) -> bool:
    """Whether IN means what a join does: there are two zeros among doubles."""
    return len(values.names) == 1 and bool(values.rows) and isinstance(values.kinds[0], Text | Integer | Boolean | Date)


def _is_one_of(key: Field, values: Values) -> Term:
    present = [Constant(value, values.kinds[0]) for (value,) in values.rows if value is not None]
    tests = [test("in", key, *present)] if present else []
    return any_of([*tests, *([test("is null", key)] if (None,) in values.rows else [])])


def with_all_groups(select: Select) -> Query:
    """The same without a left join of the list to sums by key: its rows are grouped with those that are summed."""
    match select:
        case Select(
            _, Joined("LEFT", Subquery(Select() as listed, first), Subquery(found, second), on), None, (), order, False
        ):
            parts, sums = (found.parts, found.query) if isinstance(found, With) else ((), found)
            if not isinstance(sums, Select) or not _can_be_joined_by(sums):
                return select
            names = [key.name for key in sums.group_by if isinstance(key, Field)]
            # Sums of another kind may stand in the list's place, where nobody knows the groups before.
            if {column.name for column in listed.columns} != set(names):
                return select
            if on != all_of([test("same", Field(name, first), Field(name, second)) for name in names]):
                return select
            kept = Select(
                tuple(replace(column, value=_unqualified(column.value)) for column in select.columns),
                Subquery(_grouped(sums, listed, names), BELOW),
                test("=", Field(LISTED), integer(1)),
                order_by=tuple(replace(part, value=_unqualified(part.value)) for part in order),
            )
            return With(parts, kept) if parts else kept
    return select


def _can_be_joined_by(sums: Select) -> bool:
    """Whether rows without values change nothing but which groups there are, and these are those that a join finds."""
    keys = [key for key in sums.group_by if isinstance(key, Field) and not isinstance(key.kind, Double)]
    totals = [column.value for column in sums.columns if column.name not in {key.name for key in keys}]
    return len(keys) == len(sums.group_by) > 0 and all(map(_sees_values_alone, totals))


def _sees_values_alone(value: Term) -> bool:
    match value:
        case AggFunc("sum" | "count", (Field(),), where=None):
            return True
        case AggFunc() | Field():
            return False
    return all(map(_sees_values_alone, parts_of(value)))


def _grouped(sums: Select, listed: Select, keys: list[str]) -> Select:
    read = sorted({name for column in sums.columns for name in _fields_of(column.value)} - set(keys))
    rows = Select((*fields([*keys, *read]), Alias(integer(0), LISTED)), sums.source, sums.where)
    nothing = [Alias(NULL, name) for name in read]
    # Which of them are listed twice does not matter: they are grouped.
    groups = Subquery(replace(listed, distinct=False), BELOW)
    empty = Select((*fields(keys), *nothing, Alias(integer(1), LISTED)), groups)
    is_listed = Alias(AggFunc("max", (Field(LISTED),)), LISTED)
    both = Subquery(SetOperation("UNION ALL", rows, empty), BELOW)
    return Select((*sums.columns, is_listed), both, group_by=sums.group_by)


def _fields_of(value: Term) -> Iterator[str]:
    if isinstance(value, Field):
        yield value.name
    for part in parts_of(value):
        yield from _fields_of(part)


def _unqualified(value: Term) -> Term:
    """The names of keys and of sums are all different."""
    match value:
        case Field():
            return replace(value, table=None)
        case Func(arguments=arguments):
            return replace(value, arguments=tuple(map(_unqualified, arguments)))
    return value
