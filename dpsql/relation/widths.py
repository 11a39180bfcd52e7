"""How many bytes one row of a person can become, bounded by public numbers before the charge.

    SELECT DISTINCT s || s || s, ... FROM t           one text is made into many
    SELECT DISTINCT s, x FROM t, RANGE(10000) r(x)    one text is held 10,000 times

A text has at most LONGEST_TEXT bytes where it is read (scan_sql.py). All texts made of one row may be MOST_TEXT times
as long. Where a row is multiplied into more than MOST_COPIES, texts longer than LONGEST_COPIED are NULL, and what is
computed above has at most WIDEST_COPIED bytes in a row. docs/proofs/work.md.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Literal, names_read, properties_of
from dpsql.limits import LONGEST_COPIED, MOST_TEXT, WIDEST_COPIED
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import (
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    LightUnits,
    PerUnit,
    Project,
    Relation,
    SemiJoin,
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
    """The same rows; longer texts than may be copied are NULL."""
    known = facts_of(relation).any_row
    if not any(map(_is_open_text, known.values())):
        return relation
    return Project(relation, tuple((name, _short(name, properties)) for name, properties in known.items()))


def _short(name: str, properties: Properties) -> Expression:
    column = Column(name, properties.type)
    if not _is_open_text(properties):
        return column
    size = Call(FUNCTIONS["STRLEN"], (column,), Integer())
    fits = Call(FUNCTIONS["<="], (size, Literal(LONGEST_COPIED, Integer())), Boolean())
    return Call(FUNCTIONS["CASE"], (fits, column, Literal(None, Text())), Text())


def shortens_texts(aggregate: Aggregate) -> bool:
    """Whether a text is read that may be NULL because its row is multiplied."""
    above = list(_above_light_units(aggregate.source))
    read = [expression for part in above for expression, _ in _computed(part)]
    read += [*aggregate.keys, *(argument for call in aggregate.calls for argument in call.arguments)]
    light = [light.source for part in above for light in below(part) if isinstance(light, LightUnits)]
    short = [name for part in light if isinstance(part, Project) for name, value in part.columns if _makes_text(value)]
    return not names_read(*read).isdisjoint(short)


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
