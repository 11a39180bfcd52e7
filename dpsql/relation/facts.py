"""Facts about the columns of relations; and SUM and AVG within one unit, as exact totals. docs/proofs/unit_sums.md.

A plain sum of doubles depends on the order of the rows, and so on who else is in the table. Here every value is split
into two integers, which are summed exactly and combined again: the result is a function of the unit's rows alone, and
the correctly rounded sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from dpsql.engine_sql.build import WIDE, apply, cast, count, double, in_64_bits, integer, nonzero, test, total, when
from dpsql.engine_sql.tree import AggFunc, Constant, TryCast
from dpsql.errors import ProgrammingError, UnboundedColumn, Unsupported
from dpsql.expressions.emit import emit_value, written
from dpsql.expressions.narrow import conjuncts, kept_properties, narrow
from dpsql.expressions.properties import (
    Properties,
    bounded,
    double_range,
    magnitude,
    maybe_null,
    power_above,
    property_of,
    range_of,
    union,
)
from dpsql.expressions.tree import Call, Column, Literal, names_read, properties_of
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
from dpsql.relation.units import is_tracked, memoized_on_node, one_row_per_unit
from dpsql.schema.types import WIDEST_DECIMAL, Boolean, Decimal, Double, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dpsql.engine_sql.tree import Term
    from dpsql.expressions.tree import Expression, Known, Written
    from dpsql.relation.relation import AggregateCall, ScanColumn, WindowCall
    from dpsql.schema.types import ColumnType

HIGH_BITS = 62
"""Bits of the leading integer of a value, counted from the column's largest value. Its sum over all rows of a person
fits into 128 bits."""
LOW_BITS = 53
"""Bits of the trailing integer: a double holds this many exactly."""
TAKEN_APART = 50
SMALLEST_POWER, LARGEST_POWER = -900, 1000
"""Ranges between these powers of two keep all factors within the normal doubles."""
SUMMED_DIGITS = 18
"""Decimals with up to this many digits take 64 bits, and their sums 128."""


@dataclass(frozen=True)
class Parts:
    """An aggregate computed from other aggregates: their calls, and the expression over their columns."""

    calls: tuple[AggFunc, ...]
    whole: Callable[[Sequence[Term]], Term]


def sum_parts(asked: AggregateCall, value: Term, properties: Properties) -> Parts:
    """The parts of SUM or AVG over a column."""
    average = asked.name == "AVG"
    match properties.type:
        case Integer():
            parts = _average_parts(total(value), value, 1) if average else Parts((total(value),), _as_integer)
            return replace(parts, calls=tuple(replace(call, distinct=asked.distinct) for call in parts.calls))
        case Decimal():
            _check_digits(asked, properties)
            return _decimal_parts(value, properties.type, average)
        case _:
            return _double_parts(value, _power(asked, properties), average)


def sum_type(kind: ColumnType) -> ColumnType:
    """The type of a total."""
    return Decimal(WIDEST_DECIMAL, kind.scale) if isinstance(kind, Decimal) else kind


def _as_integer(parts: Sequence[Term]) -> Term:
    return in_64_bits(parts[0])


# -- decimals ----------------------------------------------------------------------------------------------------------


def _check_digits(asked: AggregateCall, properties: Properties) -> None:
    kind = properties.type
    assert isinstance(kind, Decimal)
    ends = [
        Fraction(10) ** (kind.precision - kind.scale) if end is None else magnitude(end) for end in range_of(properties)
    ]
    if kind.scale > SUMMED_DIGITS or max(ends) * 10**kind.scale > 10**SUMMED_DIGITS:
        raise Unsupported(
            f"{asked.name} within one person takes decimals of up to {SUMMED_DIGITS} digits, so that no total can "
            "overflow",
            at=asked.at,
            hint="declare bounds on the column, or CAST it to a smaller decimal or to DOUBLE",
        )


def _decimal_parts(value: Term, kind: Decimal, average: bool) -> Parts:
    fitted = TryCast(value, Decimal(SUMMED_DIGITS, kind.scale))
    if not average:
        summed = AggFunc("sum", (fitted,), kind=sum_type(kind))
        return Parts((summed,), lambda parts: cast(parts[0], sum_type(kind)))
    wide = Decimal(WIDEST_DECIMAL, kind.scale)
    digits = apply("*", cast(fitted, wide), Constant(10**kind.scale, Decimal(kind.scale + 1, 0)), kind=wide)
    return _average_parts(total(in_64_bits(digits)), value, 10**kind.scale)


def _average_parts(summed: AggFunc, value: Term, scale: int) -> Parts:
    """An exact total of integers in fixed point: `scale` of them are one."""

    def whole(parts: Sequence[Term]) -> Term:
        (sum_, rows, least, most) = parts
        divisor = apply("*", cast(rows, Double()), double(scale), kind=Double()) if scale > 1 else rows
        mean = apply("/", cast(sum_, Double()), nonzero(divisor, integer(0)), kind=Double())
        return _between(mean, cast(least, Double()), cast(most, Double()))

    return Parts((summed, count(value), AggFunc("min", (value,)), AggFunc("max", (value,))), whole)


def _between(mean: Term, least: Term, most: Term) -> Term:
    """Two roundings can carry a mean past all of its values. All three are NULL together."""
    return apply("greatest", apply("least", mean, most, kind=Double()), least, kind=Double())


# -- doubles -----------------------------------------------------------------------------------------------------------


def _power(asked: AggregateCall, properties: Properties) -> int:
    """The least power of two above all values of the column."""
    low, high = range_of(properties)
    if low is not None and high is not None:
        power = power_above(max(magnitude(low), magnitude(high)))
        if power <= LARGEST_POWER:
            return max(power, SMALLEST_POWER)
    raise UnboundedColumn(
        f"{asked.name} within one person needs a bounded value, so that its sum is exact",
        at=asked.at,
        hint=f"declare bounds on the column, or write {asked.name}(x, contribution_bounds_per_row => (0, 500))",
    )


def _double_parts(value: Term, power: int, average: bool) -> Parts:
    """x = (first * 2^53 + second) * 2^(power - 115), where x has no bits below that."""
    high = apply("trunc", _times(value, HIGH_BITS - power), kind=Double())
    rest = apply("-", value, _times(high, power - HIGH_BITS), kind=Double())
    low = _times(rest, HIGH_BITS + LOW_BITS - power)
    least, most = (AggFunc(name, (value,), kind=Double()) for name in ("min", "max"))
    calls = (total(in_64_bits(high)), total(in_64_bits(low)), count(value), least)

    def summed(parts: Sequence[Term]) -> Term:
        first, second, rows, least = parts[:4]
        # One value is itself, however small it is.
        return when(test("=", rows, integer(1)), least, _rounded(first, second, power))

    def mean(parts: Sequence[Term]) -> Term:
        mean = apply("/", summed(parts), nonzero(parts[2], integer(0)), kind=Double())
        return _between(mean, parts[3], parts[4])

    return Parts((*calls, most), mean) if average else Parts(calls, summed)


def _rounded(first: Term, second: Term, power: int) -> Term:
    """The double nearest to (first * 2^53 + second) * 2^(power - 115), first and second 128 bits wide.

    Either way two doubles that are exact are added once. Where the first is too long for a double, it is taken apart
    itself, and of what lies below it only the sign can matter.
    """
    limb, apart = integer(2**LOW_BITS), integer(2**TAKEN_APART)
    carried = _wide("+", first, _wide("//", second, limb))
    left = _wide("%", second, limb)
    short = _scaled_sum(carried, power - HIGH_BITS, left, power - HIGH_BITS - LOW_BITS)
    ending = _wide("+", _wide("*", _wide("%", carried, apart), integer(2)), apply("sign", left))
    long = _scaled_sum(_wide("//", carried, apart), power - HIGH_BITS + TAKEN_APART, ending, power - HIGH_BITS - 1)
    return when(test("<", apply("abs", carried, kind=WIDE), limb), short, long)


def _scaled_sum(first: Term, first_power: int, second: Term, second_power: int) -> Term:
    scaled = (_times(cast(first, Double()), first_power), _times(cast(second, Double()), second_power))
    return apply("+", *scaled, kind=Double())


def _times(value: Term, power: int) -> Term:
    """The value times two to this power."""
    return apply("*", value, double(Fraction(2) ** power), kind=Double())


def _wide(operation: str, left: Term, right: Term) -> Term:
    return apply(operation, left, right, kind=WIDE)


# -- per unit ----------------------------------------------------------------------------------------------------------
# Aggregates and window functions over the rows of one unit: what their results can be, and their SQL.
#
# They are sound because they read one unit's rows alone, and they must be *functions* of these rows: an engine may read
# rows in another order when somebody else's are gone. So sums are exact (`whole`), ANY_VALUE is the least value, and a
# window's order is completed by all columns that are read.

POSITIONS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "ANY_VALUE", "BOOL_OR", "BOOL_AND")
NEIGHBOURS = ("LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
SHARES = ("PERCENT_RANK", "CUME_DIST")
WINDOWS = (*AGGREGATES, *POSITIONS, *NEIGHBOURS, *SHARES, "NTILE")
BY_POSITION = ("ROW_NUMBER", "NTILE", *NEIGHBOURS)
ARGUMENTS = {
    **dict.fromkeys((*POSITIONS, *SHARES), (0,)),
    **dict.fromkeys(("LAG", "LEAD"), (1, 2, 3)),
    "NTH_VALUE": (2,),
}
"""The number of arguments of functions that take another number than one."""


def check_per_unit(asked: AggregateCall, known: tuple[str, ...]) -> None:
    """Refuses a function that has no meaning within one unit."""
    if asked.name not in known:
        raise Unsupported(
            f"{asked.name} is not supported within one person", at=asked.at, hint="these can: " + ", ".join(known)
        )
    if asked.group_bounds is not None:
        raise Unsupported(
            "bounds per group apply to aggregates over many people, not within one person",
            at=asked.at,
            hint="bound the outer aggregate, or each row:  contribution_bounds_per_row",
        )
    kind = asked.arguments[0].type if asked.arguments else None
    summed = asked.name in ("SUM", "AVG") and isinstance(kind, Integer) and known is AGGREGATES
    if asked.distinct and asked.name not in ("COUNT", "MIN", "MAX") and not summed:
        raise Unsupported(
            f"{asked.name}(DISTINCT ...) is not supported within one person",
            at=asked.at,
            hint="use it on integers, or omit DISTINCT",
        )
    _check_constants(asked)
    if asked.name.startswith("BOOL") and not isinstance(kind, Boolean):
        raise ProgrammingError(f"{asked.name} takes a condition", at=asked.at, hint="compare the value with something")
    if asked.name in ("SUM", "AVG") and not isinstance(kind, Integer | Double | Decimal):
        raise ProgrammingError(f"{asked.name} takes a number", at=asked.at, hint="to count rows, write COUNT(*)")


def _check_constants(asked: AggregateCall) -> None:
    """The numbers in NTILE(4), LAG(x, 2, default) and NTH_VALUE(x, 3)."""
    numbers = asked.arguments[:1] if asked.name == "NTILE" else asked.arguments[1:2]
    least = 0 if asked.name in ("LAG", "LEAD") else 1
    for number in numbers:
        if not isinstance(number, Literal) or not isinstance(number.value, int) or not least <= number.value < 2**31:
            raise ProgrammingError(
                f"{asked.name} takes a constant number of at least {least}",
                at=asked.at,
                hint="write LAG(x, 2), NTILE(4)",
            )
    if len(asked.arguments) == 3 and asked.arguments[2].type != asked.arguments[0].type:
        raise ProgrammingError(
            f"the default of {asked.name} has a different type than its value", at=asked.at, hint="CAST one of them"
        )


def result_type(asked: AggregateCall) -> Properties:
    """The properties of the result that follow from its type alone."""
    if asked.name in ("COUNT", "NTILE", *POSITIONS):
        return property_of(Integer(), nullable=False)
    if asked.name in SHARES:
        return property_of(Double(), nullable=False)
    (value, *_) = asked.arguments
    if asked.name == "AVG":
        return property_of(Double(), nullable=True)
    return property_of(sum_type(value.type) if asked.name == "SUM" else value.type, nullable=True)


def per_unit_properties(asked: AggregateCall, known: Known, single: bool, empty: bool = False) -> Properties:
    """`single`: the unit has one row at most, so that sums are values. `empty`: a frame may hold no row.

    A group is there because it has a row, and a frame that holds its own row has one.
    """
    if asked.name == "COUNT":
        least = 0 if asked.arguments or empty else 1
        return bounded(Integer(), least, _most_counted(asked, known, single), nullable=False)
    if asked.name in POSITIONS:
        return bounded(Integer(), 1, 1 if single else None, nullable=False)
    if asked.name in SHARES:
        return bounded(Double(), 0, 1, nullable=False)
    properties = properties_of(asked.arguments[0], known)
    if asked.name == "NTILE":
        return bounded(Integer(), 1, properties.high, nullable=False)
    if len(asked.arguments) == 3:
        return replace(union([properties, properties_of(asked.arguments[2], known)], properties.type), nullable=True)
    if asked.name == "AVG":
        return bounded(Double(), *double_range(properties), nullable=True)
    if asked.name == "SUM":
        kind, (low, high) = sum_type(properties.type), range_of(properties)
        if not single:
            # Values of one sign have a sum of that sign.
            low, high = (0 if low is not None and low >= 0 else None, 0 if high is not None and high <= 0 else None)
        return bounded(kind, low, high, nullable=True, whole=properties.whole)
    # The least of values that are no NULL is none, where there is one.
    return properties if asked.name in ("MIN", "MAX", "ANY_VALUE") and not empty else replace(properties, nullable=True)


def _most_counted(asked: AggregateCall, known: Known, single: bool) -> int | None:
    if single:
        return 1
    return properties_of(asked.arguments[0], known).size if asked.distinct else None


def per_unit_parts(asked: AggregateCall, known: Known) -> Parts:
    """The aggregate over columns of these names."""
    arguments = [emit_value(argument, known) for argument in asked.arguments]
    match asked.name:
        case "COUNT" if not arguments:
            return _as_it_is(count())
        case "COUNT":
            return _as_it_is(AggFunc("count", tuple(arguments), asked.distinct, kind=Integer()))
        case "SUM" | "AVG":
            return sum_parts(asked, arguments[0], properties_of(asked.arguments[0], known))
        case "ANY_VALUE":
            return _as_it_is(AggFunc("min", tuple(arguments)))
        case _:
            return _as_it_is(AggFunc(asked.name.lower(), tuple(arguments)))


def _as_it_is(fold: AggFunc) -> Parts:
    return Parts((fold,), lambda parts: parts[0])


# -- column facts ------------------------------------------------------------------------------------------------------
# Facts about the columns of a relation, in three strengths.
#
# `any_row` holds for every row that an engine may look at while it evaluates an expression: engines are free to
# evaluate a projection before a filter, so a WHERE does not count. Expressions are written with it (where can there be
# a NULL?), and fail on no row whatever it says. `surviving` holds for the rows that survive the filters; it chooses
# clamps and what is counted. `declared` takes the schema at its word that a column has no NULL: it chooses public
# groups, which NULL is among only if it is declared. A row that breaks its declaration is in none of them, but is
# counted as what it is.


@dataclass(frozen=True)
class ColumnFacts:
    any_row: Known
    surviving: Known
    declared: Known

    def properties_of(self, expression: Expression) -> Properties:
        return properties_of(expression, self.any_row)


Below: TypeAlias = "Callable[[Relation], Known]"
"""Facts of one strength about the inputs of a relation."""


@memoized_on_node
def facts_of(relation: Relation) -> ColumnFacts:
    if isinstance(relation, Scan):
        return _scan_facts(relation)
    return ColumnFacts(
        _properties(relation),
        surviving(relation, lambda below: facts_of(below).surviving),
        surviving(relation, lambda below: facts_of(below).declared),
    )


def _scan_facts(scan: Scan) -> ColumnFacts:
    """The properties of a scanned column, which may be NULL even if it is declared not to be: the scan drops no row."""
    declared = {column.name: column.properties for column in scan.columns}
    kept = {column.name: maybe_null(column.properties, not column.never_null) for column in scan.columns}
    return ColumnFacts(_maybe(declared, missing=True), kept, declared)


def _properties(relation: Relation) -> Known:
    match relation:
        case Project():
            return {name: _computed(value) for name, value in values_of(relation).items()}
        case Filter(source):
            return facts_of(source).any_row
        case PerUnit(source, keys):
            known = facts_of(source).any_row
            return {name: properties_of(key, known) for name, key in keys} | _called(relation, known)
        case SetOp(_, left, right):
            return _either(facts_of(left).any_row, facts_of(right).any_row)
        case _:
            return _combined(relation, lambda below: facts_of(below).any_row)


def _computed(value: Written) -> Properties:
    """The properties of a computed column; those of a column that is passed through are known already."""
    known = value.properties
    return known if known.parts == value.parts else replace(known, parts=value.parts)


def surviving(relation: Relation, known_of: Below) -> Known:
    """The facts about the rows that survive a node, derived from those of its inputs."""
    match relation:
        case Project(source, columns):
            known = known_of(source)
            return {name: kept_properties(expression, known) for name, expression in columns}
        case Filter(source, condition):
            return narrow(known_of(source), condition)
        case Join(_, _, "INNER", condition) | CrossUnitJoin(left=_, right=_, pairs=_, condition=condition) if (
            condition is not None
        ):
            return narrow(_combined(relation, known_of), condition)
        case PerUnit(source, keys):
            known = known_of(source)
            return {name: kept_properties(key, known) for name, key in keys} | _called(relation, known)
        case SetOp(kind, left, right):
            first = known_of(left)
            return first if kind in OF_THE_LEFT else _either(first, known_of(right))
        case _:
            return _combined(relation, known_of)


def _combined(relation: Relation, known_of: Below) -> Known:
    """Nodes that keep all columns, and may add some."""
    match relation:
        case ValuesTable(_, columns):
            return dict(columns)
        case Join(left, right, kind):
            return _maybe(known_of(left), kind in ("RIGHT", "FULL")) | _maybe(known_of(right), kind in ("LEFT", "FULL"))
        case CrossUnitJoin(left=left, right=right):
            return {**known_of(left), **known_of(right)}
        case SemiJoin(source) | Distinct(source) | LightUnits(source):
            return known_of(source)
        case Mark(test, name):
            return {**known_of(test.source), name: property_of(Boolean(), nullable=bool(test.compared))}
        case Window(source):
            known = known_of(source)
            return {**known, **_called(relation, known)}
    raise AssertionError(relation)


@memoized_on_node
def values_of(project: Relation) -> dict[str, Written]:
    """The columns of a projection, written."""
    assert isinstance(project, Project)
    known = facts_of(project.source).any_row
    return {name: written(expression, known) for name, expression in project.columns}


def _maybe(known: Known, missing: bool) -> dict[str, Properties]:
    """The columns of a side, which an outer join may fill with NULL."""
    return {name: maybe_null(properties, missing) for name, properties in known.items()}


def _either(first: Known, second: Known) -> Known:
    return {name: union([properties, second[name]], properties.type) for name, properties in first.items()}


def _called(relation: PerUnit | Window, known: Known) -> dict[str, Properties]:
    single = one_row_per_unit(relation.source)
    if isinstance(relation, PerUnit):
        return {name: per_unit_properties(call, known, single) for name, call in relation.calls}
    return {name: _window_properties(window, known, single) for name, window in relation.columns}


def _window_properties(window: WindowCall, known: Known, single: bool) -> Properties:
    empty = window.frame is not None and window.frame.may_be_empty
    return per_unit_properties(window.call, known, single, empty)


# -- expected ----------------------------------------------------------------------------------------------------------
# The ranges of columns if nobody has more rows than the contribution bounds allow.
#
#     the number n of a customer's orders        n is at most r
#     the sum of their items                     at most r times the most that one can have
#
# This is no fact: somebody may have more rows. It gives a range to sums and quantiles that have none, and their values
# are clamped to it, as to declared bounds; conditions and keys see the values unclamped.


@memoized_on_node
def expected_of(relation: Relation, rows: int) -> Known:
    """The facts about surviving rows; a missing end becomes the one that `rows` rows of a unit would give."""
    if isinstance(relation, Scan):
        return facts_of(relation).surviving
    expected = dict(surviving(relation, lambda below: expected_of(below, rows)))
    if isinstance(relation, PerUnit):
        known = expected_of(relation.source, rows)
        expected |= {name: _filled(expected[name], _of_rows(call, known, rows)) for name, call in relation.calls}
    return {name: _filled(properties, expected[name]) for name, properties in facts_of(relation).surviving.items()}


def _of_rows(call: AggregateCall, known: Known, rows: int) -> Properties | None:
    if call.name == "COUNT":
        return bounded(Integer(), 0, rows, nullable=False)
    if call.name != "SUM":
        return None
    properties = properties_of(call.arguments[0], known)
    low, high = range_of(properties)
    if low is None or high is None:
        return None
    return bounded(properties.type, min(0, low * rows), max(0, high * rows), nullable=True)


def _filled(properties: Properties, expected: Properties | None) -> Properties:
    """The properties with missing ends filled in, unless that contradicts the other end."""
    if expected is None or not properties.is_number or expected.values == () or properties.values is not None:
        return properties
    low = expected.low if properties.low is None else properties.low
    high = expected.high if properties.high is None else properties.high
    known = low == properties.low and high == properties.high
    if known or low is None or high is None or low > high:  # type: ignore[operator]
        return properties
    return replace(properties, low=low, high=high)


# -- implied units -----------------------------------------------------------------------------------------------------
# If equal keys imply equal units, the units need not be looked up and compared.
#
#     orders WHERE EXISTS (lines WHERE lines.order_id = orders.id AND ...)     a line's unit is that of its order
#
# Either the key leads from the one row to the other, whose table has it once, or both rows take their units from the
# same key. docs/proofs/tracking.md. Keys must be read as they are stored: clamped ones are equal where others are not.


def without_units(other: Relation, beside: Relation, condition: Expression | None) -> Relation | None:
    """The other relation without its units, if the condition keeps only rows of the same unit."""
    if condition is None:
        return None
    for part in conjuncts(condition):
        match part:
            case Call(function, (Column(one, _), Column(two, _)), _) if function.name == "=":
                for name, key in ((one, two), (two, one)):
                    found, own = _scanned(other, name), _scanned(beside, key)
                    if found is not None and own is not None and _have_one_unit(*found, *own):
                        return _unowned(other)
    return None


def _scanned(relation: Relation, name: str) -> tuple[Scan, ScanColumn] | None:
    """The scan that a column comes from unchanged, if its rows have the same unit as the relation's."""
    match relation:
        case Scan(columns=columns):
            return next(((relation, column) for column in columns if column.name == name), None)
        case Filter(source) | SemiJoin(source):
            return _scanned(source, name)
        case Project(source, columns):
            value = next((value for column, value in columns if column == name), None)
            return _scanned(source, value.name) if isinstance(value, Column) else None
        case Join(left, right, "INNER"):
            return _scanned(left if name in facts_of(left).any_row else right, name)
    return None


def _have_one_unit(scan: Scan, column: ScanColumn, beside: Scan, key: ScanColumn) -> bool:
    """Whether a row whose column equals another row's key belongs to the same unit."""
    unit, own = scan.unit, beside.unit
    if unit is None or own is None or not unit.path or not _as_stored(column) or not _as_stored(key):
        return False
    hop, *rest = unit.path
    if column.declared != hop.column or not column.properties.type == key.properties.type == hop.type:
        return False
    refers = (beside.table, key.declared) == (hop.to_table, hop.to_column)
    return (refers and own == replace(unit, path=tuple(rest))) or (own == unit and key.declared == hop.column)


def _as_stored(column: ScanColumn) -> bool:
    """Whether the column is read as the foreign key is."""
    known = column.properties
    return isinstance(known.type, Integer | Text) and known.values is None and known.low is None and known.high is None


def _unowned(relation: Relation) -> Relation | None:
    match relation:
        case Scan():
            return replace(relation, unit=None)
        case Filter(source) | Project(source):
            below = _unowned(source)
            return None if below is None else replace(relation, source=below)
    return None


# -- whole tables ------------------------------------------------------------------------------------------------------
# Whole tables behind relations: how many rows a unit has there is no less than it has in the relation.
#
#     SELECT ... FROM lines WHERE price < 5            lines
#     SELECT ... FROM lines JOIN (SELECT DISTINCT code FROM codes) USING (code)      lines
#     SELECT ... FROM lines JOIN codes USING (code)    none: a line may have several codes
#
# Where rows are immutable (a read-only file, a copy), units are counted in the whole table once, not for every
# question, and each list of a public table's keys is computed once.


def whole_table(relation: Relation) -> Scan | None:
    """The table whose rows are immutable and give at most one row of the relation each."""
    match relation:
        case Scan():
            return relation if relation.immutable else None
        case Filter(source) | Project(source) | SemiJoin(source):
            return whole_table(source)
        case Mark():
            return whole_table(relation.source)
        case Join(left, right, "INNER" | "LEFT", condition) if not is_tracked(right):
            return whole_table(left) if _matches_once(left, right, condition) else None
        case Join(left, right, "INNER" | "RIGHT", condition) if not is_tracked(left):
            return whole_table(right) if _matches_once(right, left, condition) else None
    return None


def has_all_rows(relation: Relation) -> bool:
    """Whether it has every row of its whole table."""
    match relation:
        case Scan():
            return True
        case Project(source):
            return has_all_rows(source)
    return False


def is_immutable(relation: Relation) -> bool:
    """Whether public rows are columns of a whole immutable table, so that they are the same for every query."""
    match relation:
        case Scan(unit=None):
            return relation.immutable
        case Project(source, columns):
            return is_immutable(source) and all(isinstance(value, Column) for _, value in columns)
        case Distinct(source):
            return is_immutable(source)
    return False


def is_whole_list(relation: Relation) -> bool:
    """Whether it has every combination of some columns of a whole public table, each once."""
    return is_immutable(relation) and _are_different(relation)


def _matches_once(rows: Relation, public: Relation, condition: Expression | None) -> bool:
    """Whether a row has at most one match, because public rows are distinct and compared in all columns."""
    if not _are_different(public) or condition is None:
        return False
    own = facts_of(rows).any_row.keys()
    compared = {name for part in conjuncts(condition) for name, other in equated(part) if names_read(other) <= own}
    return compared >= facts_of(public).any_row.keys()


def _are_different(relation: Relation) -> bool:
    """Whether the query's own DISTINCT makes all rows different; columns may have been renamed since."""
    match relation:
        case Distinct():
            return True
        case Project(source, columns):
            return _are_different(source) and facts_of(source).any_row.keys() <= {
                value.name for _, value in columns if isinstance(value, Column)
            }
    return False


def equated(condition: Expression) -> Iterator[tuple[str, Expression]]:
    """A column and the value that the condition sets equal to it. Not for doubles: 0 and -0 are equal, and differ."""
    match condition:
        case Call(function, (first, second)) if function.name == "=" and first.type == second.type != Double():
            sides = (first, second), (second, first)
            yield from ((one.name, other) for one, other in sides if isinstance(one, Column))
