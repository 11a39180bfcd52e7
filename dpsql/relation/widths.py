"""How many bytes one row of a person can become, bounded by public numbers before the charge.

    SELECT DISTINCT s || s || s, ... FROM t           one text is made into many
    SELECT DISTINCT s, x FROM t, RANGE(10000) r(x)    one text is held 10,000 times

A text has at most LONGEST_TEXT bytes where it is read (scan_sql.py). All texts made of one row may be MOST_TEXT times
as long. Where a row is multiplied into more than MOST_COPIES, texts longer than LONGEST_COPIED are cut: as a key of
groups, and to be counted, but nothing else may read them. What is computed above has at most WIDEST_COPIED bytes in a
row. docs/proofs/work.md.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Literal, columns_of, names_read, properties_of
from dpsql.limits import LONGEST_COPIED, MOST_TEXT, WIDEST_COPIED
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
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    Unit,
    ValuesTable,
    Window,
)
from dpsql.relation.units import below, memoized_on_node, parts_of
from dpsql.schema.types import Boolean, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression, Known
    from dpsql.relation.relation import Aggregate

NUMBER_BYTES = 16
NUMBER_LETTERS = 64
"""The most bytes of a number, a date or a truth value that is written as text."""
LETTER_BYTES = 4
LETTERS_COPIED = LONGEST_COPIED // LETTER_BYTES
"""The letters that are left of a text that is cut."""

# -- texts made of one row ---------------------------------------------------------------------------------------------


def check_texts(relation: Relation, above: Iterable[Expression]) -> None:
    """Refuses what makes too much text of one row; `above` are keys and arguments of the aggregate."""
    parts = [(expression, known, _texts(part)) for part in parts_of(relation) for expression, known in _computed(part)]
    known = facts_of(relation).any_row
    parts += [(expression, known, _texts_above(relation)) for expression in above]
    if sum(_made(expression, known, texts) for expression, known, texts in parts) > MOST_TEXT:
        raise Unsupported(
            f"the texts that are made of one row could be more than {MOST_TEXT:,} times as long as the longest text",
            hint="use fewer || and CONCAT",
        )


def _computed(relation: Relation) -> Iterator[tuple[Expression, Known]]:
    """What is computed at this node, and what is known of the columns that it reads."""
    match relation:
        case Filter(source, condition):
            yield condition, facts_of(source).any_row
        case Join(condition=condition) | CrossUnitJoin(condition=condition) if condition is not None:
            yield condition, facts_of(relation).any_row
        case SemiJoin(source, other, condition) if condition is not None:
            yield condition, {**facts_of(source).any_row, **facts_of(other).any_row}
        case Project(source) | PerUnit(source) | Window(source):
            known = facts_of(source).any_row
            yield from ((expression, known) for expression in _columns(relation))


def _columns(relation: Project | PerUnit | Window) -> Iterator[Expression]:
    match relation:
        case Project(_, columns):
            yield from (expression for _, expression in columns)
        case PerUnit(_, keys, calls):
            yield from (key for _, key in keys)
            yield from (argument for _, call in calls for argument in call.arguments)
        case Window(_, columns):
            for _, window in columns:
                yield from (*window.call.arguments, *window.keys, *(order.expression for order in window.order))


@memoized_on_node
def _texts(relation: Relation) -> Mapping[str, int]:
    """How much text each column that the node reads stands for, as engines may put in what it is computed from."""
    found: dict[str, int] = {}
    for part in below(relation):
        found |= _texts_above(part)
    return found


@memoized_on_node
def _texts_above(relation: Relation) -> Mapping[str, int]:
    match relation:
        case Project(source, columns):
            known, texts = facts_of(source).any_row, _texts(relation)
            made = {name: _made(expression, known, texts, passthrough=True) for name, expression in columns}
            return {name: size for name, size in made.items() if size}
        case Distinct() | PerUnit() | Window() | LightUnits():
            return {}
    return _texts(relation)


def _made(expression: Expression, known: Known, texts: Mapping[str, int], *, passthrough: bool = False) -> int:
    """All texts on the way to the value, in longest texts. A column that is passed on is made only once."""
    if isinstance(expression, Call):
        return _walked(expression, known, texts)[1] if texts or _makes_text(expression) else 0
    return texts.get(expression.name, 0) if passthrough and isinstance(expression, Column) else 0


def _walked(expression: Expression, known: Known, texts: Mapping[str, int]) -> tuple[Properties, int]:
    if not isinstance(expression, Call):
        size = texts.get(expression.name, 0) if isinstance(expression, Column) else 0
        return properties_of(expression, known), size
    walked = [_walked(argument, known, texts) for argument in expression.arguments]
    properties = expression.function.properties(tuple(part for part, _ in walked))
    return properties, sum(size for _, size in walked) + properties.growth * _is_open_text(properties)


def _makes_text(expression: Expression) -> bool:
    return isinstance(expression, Call) and (
        isinstance(expression.type, Text) or any(map(_makes_text, expression.arguments))
    )


def _is_open_text(properties: Properties) -> bool:
    return isinstance(properties.type, Text) and properties.values is None


# -- rows that are multiplied ------------------------------------------------------------------------------------------


def shortened(relation: Relation) -> Relation:
    """The same rows; longer texts than may be copied are cut."""
    known = facts_of(relation).any_row
    if not _cut(relation):
        return relation
    return Project(relation, tuple((name, _short(name, properties)) for name, properties in known.items()))


def _cut(relation: Relation) -> set[str]:
    """The columns whose texts may be longer than may be copied."""
    known = facts_of(relation).any_row
    open_texts = {name for name, properties in known.items() if _is_open_text(properties)}
    return {name for name in open_texts if _longest(Column(name, Text()), relation) > LONGEST_COPIED}


def _short(name: str, properties: Properties) -> Expression:
    column = Column(name, properties.type)
    if not _is_open_text(properties):
        return column
    size = Call(FUNCTIONS["STRLEN"], (column,), Integer())
    fits = Call(FUNCTIONS["<="], (size, Literal(LONGEST_COPIED, Integer())), Boolean())
    beginning = Call(FUNCTIONS["LEFT"], (column, Literal(LETTERS_COPIED, Integer())), Text())
    return Call(FUNCTIONS["CASE"], (fits, column, beginning), Text())


def _longest(expression: Expression, source: Relation) -> float:
    """The most bytes of a text over these rows; infinity if that is not known."""
    properties = properties_of(expression, facts_of(source).any_row)
    if not isinstance(properties.type, Text):
        return NUMBER_LETTERS
    if properties.values is not None:
        return _bytes(properties)
    match expression:
        case Column(name):
            return _longest_column(name, source)
        case Call(function, (_, *_, Literal(int() as letters))) if function.name in ("LEFT", "RIGHT", "SUBSTRING"):
            is_length = function.name != "SUBSTRING" or len(expression.arguments) == 3
            return LETTER_BYTES * abs(letters) if is_length and letters >= 0 else math.inf
        case Call(function, arguments) if function.name in ("||", "CONCAT") or function.name.startswith("CAST AS"):
            return sum(_longest(argument, source) for argument in arguments)
    return math.inf


def _longest_column(name: str, relation: Relation) -> float:
    column = Column(name, Text())
    match relation:
        case Scan(unit=Unit(path=(), column=unit), columns=columns):
            # Units of longer names are left out.
            is_unit = any(scanned.name == name and scanned.declared == unit for scanned in columns)
            return LONGEST_COPIED if is_unit else math.inf
        case Project(source, made) | PerUnit(source, made):
            return next((_longest(value, source) for alias, value in made if alias == name), math.inf)
        case Join(left, right):
            return _longest(column, left if name in facts_of(left).any_row else right)
        case SetOp(_, left, right):
            return max(_longest(column, left), _longest(column, right))
        case Filter(source) | SemiJoin(source) | Distinct(source) | LightUnits(source) | Window(source):
            return _longest(column, source) if name in facts_of(source).any_row else math.inf
        case Mark(test):
            return _longest(column, test.source)
    return math.inf


def check_copied(aggregate: Aggregate) -> None:
    """Refuses to read a text of multiplied rows that may be cut, other than as a key, or to count it."""
    read: list[Expression] = [key for key in aggregate.keys if not isinstance(key, Column)]
    for call in aggregate.calls:
        is_counted = call.name == "COUNT" and not call.distinct
        read += [value for value in call.arguments if not (is_counted and isinstance(value, Column))]
    if cut := _cut_texts(aggregate.source, read):
        raise _too_long(aggregate.source, read, cut)


def cuts_keys(aggregate: Aggregate) -> bool:
    """Whether a text that may be cut is a key."""
    return bool(_cut_texts(aggregate.source, aggregate.keys))


def _cut_texts(relation: Relation, above: Iterable[Expression]) -> set[str]:
    """The columns that are read and may be cut."""
    found: set[str] = set()
    for light, read in _light_units_read(relation, names_read(*above)):
        if isinstance(light.source, Project):
            below_cut = light.source.source
            known, made = facts_of(below_cut).any_row, dict(light.source.columns)
            found |= {name for name in _cut(below_cut) & read if made.get(name) == _short(name, known[name])}
    return found


def _too_long(relation: Relation, above: Iterable[Expression], names: set[str]) -> Unsupported:
    read = [*above, *(expression for part in parts_of(relation) for expression, _ in _computed(part))]
    places = (column.at for expression in read for column in columns_of(expression) if column.name in names)
    return Unsupported(
        f"the query multiplies a person's rows, and then reads a text that may have more than {LONGEST_COPIED} bytes",
        at=next((place for place in places if place is not None), None),
        hint=f"in a subquery, before its rows are multiplied, filter by the text or select "
        f"LEFT(text, {LETTERS_COPIED}); or let the data owner declare its values",
    )


def _light_units_read(relation: Relation, names: set[str]) -> Iterator[tuple[LightUnits, set[str]]]:
    """The light units below, and which of their columns are read; the same as relation_sql selects."""
    if isinstance(relation, LightUnits):
        yield relation, names
    read = names | names_read(*(expression for expression, _ in _computed(relation)))
    match relation:
        case Project(columns=columns):
            read = names_read(*(value for name, value in columns if name in names))
        case Distinct() | SetOp():
            is_compared = not (isinstance(relation, SetOp) and relation.kind == "UNION ALL")
            read = {*facts_of(relation).any_row} if is_compared else names
        case Mark(test):
            read = names | names_read(test.condition)
    parts = (relation.test.source, relation.test.other) if isinstance(relation, Mark) else below(relation)
    for part in parts:
        yield from _light_units_read(part, read & facts_of(part).any_row.keys())


def check_width(relation: Relation, above: Iterable[Expression]) -> None:
    """Refuses wide rows above those that are multiplied."""
    known = facts_of(relation).any_row
    size = sum(_bytes(properties_of(expression, known)) for expression in above if isinstance(expression, Call))
    if size + sum(_width(part) for part in _above_light_units(relation)) > WIDEST_COPIED:
        raise Unsupported(
            f"the query multiplies rows, and computes more than {WIDEST_COPIED:,} bytes for each of them: a number is "
            f"{NUMBER_BYTES}, a text as long as it may become",
            hint="compute fewer columns, or before the rows are multiplied",
        )


def _above_light_units(relation: Relation) -> Iterator[Relation]:
    yield relation
    for part in below(relation):
        if not isinstance(part, LightUnits):
            yield from _above_light_units(part)


def _width(relation: Relation) -> int:
    match relation:
        case ValuesTable(_, columns):
            return sum(_bytes(properties) for _, properties in columns if isinstance(properties.type, Text))
        case Project(source) | PerUnit(source) | Window(source):
            known = facts_of(source).any_row
            read = Counter(_columns(relation))
            return sum(
                (times - isinstance(expression, Column)) * _bytes(properties_of(expression, known))
                for expression, times in read.items()
            )
        case Join(condition=Call() as condition) | SemiJoin(condition=Call() as condition):
            ((_, known),) = _computed(relation)
            return sum(_bytes(properties_of(text, known)) for text in _outermost_texts(condition))
    return 0


def _outermost_texts(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Call):
        if isinstance(expression.type, Text):
            yield expression
        else:
            for argument in expression.arguments:
                yield from _outermost_texts(argument)


def _bytes(properties: Properties) -> int:
    if not isinstance(properties.type, Text):
        return NUMBER_BYTES
    if properties.values is None:
        return LONGEST_COPIED * properties.growth
    return max((len(str(value).encode()) for value in properties.values), default=0)
