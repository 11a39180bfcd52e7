"""Writes a tree as PostgreSQL's SQL, such that no row can raise an error.

A value that is read more than once is computed in a subquery with an OFFSET, which the planner leaves as it is. Texts
are compared by code points wherever they come from: every text constant and every cast to text says so. What the engine
has no words for that keep the rule of engine_sql/tree.py is refused before anything is charged.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import UNIT
from dpsql.engine_sql.tree import (
    AggFunc,
    Alias,
    Cast,
    Constant,
    Exists,
    Field,
    Func,
    Joined,
    Ordered,
    Select,
    Short,
    Subquery,
    Table,
    TryCast,
    Wide,
    WindowFunc,
    parts_of,
)
from dpsql.engines.postgresql import KIND, scalars
from dpsql.engines.postgresql.scalars import by_code_points, no_cast, try_cast, type_name
from dpsql.engines.ranges import ServedRenderer
from dpsql.engines.render import STANDARD, STANDARD_INFIX, literal, quanta_in_one, quoted
from dpsql.errors import Unsupported
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dpsql.engine_sql.tree import CTE, AroundRank, Kind, Known, Let, Operand, Query, Series, Source, Term
    from dpsql.engines.render import Renderer

# -- around rank -------------------------------------------------------------------------------------------------------
# The values around one rank: counted by point, summed up in their order, and cut to the ranks that are needed.
#
#     _values  what each unit may bring: a value per row
#     _points  how often each point occurs in a group; NULL is none, and keeps groups without a value
#     _sums    how many values there are up to each point, and in the whole group
#
# Only points of the needed ranks are collected.


def around_rank(renderer: Renderer, profile: AroundRank) -> str:
    keys = [renderer.quoted(name) for name in profile.keys]
    value, point = renderer.quoted(profile.value), renderer.term(profile.point)
    first, last = _ranks(profile, renderer.blanks[profile.reach])
    by_keys = f"PARTITION BY {', '.join(keys)}" if keys else ""
    parts = {
        "_values": renderer.query(profile.values),
        "_pointed": f"SELECT {_listed(keys, f'{point} AS _point', value)} FROM _values",
        "_points": (
            f"SELECT {_listed(keys, '_point', f'count({value}) AS _count')} FROM _pointed "
            f"GROUP BY {_listed(keys, '_point')}"
        ),
        "_sums": (
            f"SELECT {_listed(keys, '_point', '_count')}, sum(_count) OVER ({by_keys} ORDER BY _point) AS _upto, "
            f"sum(_count) OVER ({by_keys}) AS _rows FROM _points"
        ),
    }
    needed = f"_point IS NOT NULL AND _upto >= {first} AND _upto - _count < {last}"
    points, counts, below, rows = map(renderer.quoted, profile.names)
    columns = [
        *(
            f"coalesce(array_agg({part} ORDER BY _point) FILTER (WHERE {needed}), '{{}}') AS {name}"
            for part, name in (("_point", points), ("_count", counts))
        ),
        f"CAST(coalesce(min(_upto - _count) FILTER (WHERE {needed}), 0) AS BIGINT) AS {below}",
        f"CAST(coalesce(max(_rows), 0) AS BIGINT) AS {rows}",
    ]
    before = ", ".join(f"{name} AS ({sql})" for name, sql in parts.items())
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"WITH {before} SELECT {_listed(keys, *columns)} FROM _sums{grouping}"


def _ranks(profile: AroundRank, reach: int) -> tuple[str, str]:
    """The first and the last rank needed; a group with values always needs at least one."""
    above, below = profile.fraction.numerator, profile.fraction.denominator
    middle = f"div(_rows * {above}, {below})"
    return f"least(greatest({middle} - {reach}, 1), _rows)", f"greatest(least({middle} + 1 + {reach}, _rows), 1)"


def _listed(keys: list[str], *others: str) -> str:
    return ", ".join([*keys, *others])


# -- groups ------------------------------------------------------------------------------------------------------------
# Groups in the shapes that PostgreSQL plans best: sorted once.

ORDER = "_order"


def in_sorted_order(select: Select) -> Select:
    """Groups of a unit ranked by a hash are sorted by it. Grouping by the hash too changes nothing, since it
    follows from unit and keys, they need not be sorted or hashed once more."""
    by = select.group_by
    if not by or (rows := _with_order(select.source, by)) is None:
        return select
    return replace(select, source=rows, group_by=(by[0], Field(ORDER), *by[1:]))


def _with_order(source: Source | None, by: tuple[Term, ...]) -> Subquery | None:
    """The same rows with the hash that their groups were ranked by, here or below."""
    match source:
        case Subquery(Select(group_by=(), distinct=False) as rows):
            below = _with_order(rows.source, by) if _passes_on(rows, by) else None
            order: Term | None = Field(ORDER) if below is not None else _rank_order(rows, by)
            if order is not None:
                columns = (*rows.columns, Alias(order, ORDER))
                return replace(source, query=replace(rows, columns=columns, source=below or rows.source))
    return None


def _rank_order(rows: Select, by: tuple[Term, ...]) -> Term | None:
    for column in rows.columns:
        match column.value:
            case WindowFunc(AggFunc("dense_rank"), owner, (Ordered(hashed), *keys)):
                if (*owner, *(key.value for key in keys)) == by:
                    return hashed
    return None


def _passes_on(rows: Select, by: tuple[Term, ...]) -> bool:
    """Whether what is grouped by is what it is below."""
    same = {own.name for own in rows.columns if isinstance(own.value, Field) and own.value.name == own.name}
    return all(isinstance(part, Field) and part.name in same for part in by)


def _instead(select: Select, below: Select) -> Subquery:
    assert isinstance(select.source, Subquery)
    return replace(select.source, query=below)


def sorted_units(select: Select) -> Select:
    """Whole numbers of which nothing but themselves is read are sorted faster than hashed, and then grouped at once."""
    match select:
        case Select(
            group_by=(Field(name, kind=Integer()),), source=Subquery(Select(columns=(Alias(_, only),)) as rows)
        ):
            if only == name:
                return replace(select, source=_instead(select, replace(rows, order_by=(Ordered(Field(name)),))))
    return select


# -- render ------------------------------------------------------------------------------------------------------------

LONGEST_COLUMN = 200
"""Characters of a column that may be computed again wherever it is read."""
LONGEST_STORED = 1_000
"""The same for a column of a table, clamped or compared with a list: behind a fence no condition would reach its rows
before they are joined, and no statistics the planner.
"""
FENCE = "OFFSET bigint '0'"
"""A number without a type is none yet when it is decided whether several processes may share the query."""
LONGEST_NAME = 63
"""Bytes. The engine cuts off the rest, and two names would be one."""
UNICODE = 'COLLATE "C.utf8"'
EVERY_SECOND_BIT = "(-6148914691236517206)"
INFIX = {**STANDARD_INFIX, "xor": "#"}
SPELLED: dict[str, Callable[..., str]] = {
    **STANDARD,
    "is finite": lambda value: f"(abs({value}) < {scalars.INFINITE})",
    "is nan": lambda value: f"({value} = float8 'NaN')",
    "by code points": by_code_points,
    "bytes": lambda text: f"CAST(octet_length({text}) AS BIGINT)",
    "length": lambda text: f"CAST(length({text}) AS BIGINT)",
    "lower": lambda text: by_code_points(f"lower({text} {UNICODE})"),
    # The one letter for which the C library has another opinion than the tables of Unicode.
    "upper": lambda text: by_code_points(f"replace(upper({text} {UNICODE}), 'ß', 'ẞ')"),
    "trim": lambda *parts: f"btrim({', '.join(parts)})",
    "strpos": lambda text, part: f"CAST(strpos({text}, {part}) AS BIGINT)",
    "ascii": lambda text: f"CAST(ascii({text}) AS BIGINT)",
    "contains": lambda text, part: f"(strpos({text}, {part}) > 0)",
    "like": lambda text, pattern, escape="''": f"({text} LIKE {pattern} ESCAPE {escape})",
    "ilike": lambda text, pattern, escape="''": (
        f"({text} {UNICODE} ILIKE {pattern} {UNICODE} ESCAPE {escape} {UNICODE})"
    ),
    "date - date": lambda left, right: f"CAST({left} - {right} AS BIGINT)",
    "last day": scalars.last_day,
    "epoch": lambda moment: (
        f"(CAST({scalars.microseconds(scalars.timestamp(moment))} AS DOUBLE PRECISION) / float8 '1000000')"
    ),
    "epoch days": lambda day: f"CAST({day} - {scalars.EPOCH} AS BIGINT)",
    "epoch microseconds": scalars.microseconds,
    "from epoch days": lambda days: f"({scalars.EPOCH} + CAST({days} AS INTEGER))",
    "dayname": lambda moment: by_code_points(f"to_char({scalars.timestamp(moment)}, 'FMDay')"),
    "monthname": lambda moment: by_code_points(f"to_char({scalars.timestamp(moment)}, 'FMMonth')"),
    "one in 32": lambda hashed: f"(({hashed} & 31) = 0)",
    "position": lambda value, *choices: f"CAST(array_position(ARRAY[{', '.join(choices)}], {value}) - 1 AS BIGINT)",
}
REPEATED: dict[str, Callable[..., str]] = {
    "unicode": lambda text: f"CASE WHEN {text} = '' THEN -1 ELSE CAST(ascii({text}) AS BIGINT) END",
    "date + days": scalars.days_later,
    "make date": scalars.made,
    "from epoch microseconds": scalars.from_microseconds,
    "exp": scalars.exponential,
}
"""What reads its arguments more than once."""
EXACT = {"+", "-", "*", "try +", "try -", "try *"}
ANGLES = {"degrees": Fraction(57.29577951308232), "radians": Fraction(0.017453292519943295)}


def render(query: Query, blanks: Mapping[str, int] | None = None, tables: Mapping[str, str] | None = None) -> str:
    return PostgreSQL(blanks, tables).query(query)


class PostgreSQL(ServedRenderer):
    def __init__(self, blanks: Mapping[str, int] | None = None, tables: Mapping[str, str] | None = None) -> None:
        super().__init__(blanks, tables)
        self.longest: list[int] = [0]

    # -- names and constants ------------------------------------------------------------------------------------------

    def quoted(self, name: str) -> str:
        if len(name.encode()) > LONGEST_NAME:
            name = f"{name[:8]}_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return quoted(name)

    def type_name(self, kind: Kind) -> str:
        return type_name(kind)

    def constant(self, constant: Constant) -> str:
        value, kind = constant.value, constant.kind
        if value is None:
            return "NULL" if kind is None else f"CAST(NULL AS {type_name(kind)})"
        match kind:
            case None:
                return f"({value})" if isinstance(value, int) and value < 0 else str(value)
            case Boolean():
                return "true" if value else "false"
            case Integer() | Short():
                return f"{type_name(kind)} '{value}'"
            case Wide():
                return f"numeric '{value}'"
            case Double():
                assert isinstance(value, int | Fraction)
                return scalars.number(float(value))
            case Decimal(scale=scale):
                assert isinstance(value, int | Fraction)
                return f"CAST('{round(Fraction(value) * 10**scale)}e-{scale}' AS {type_name(kind)})"
            case Date():
                assert isinstance(value, date)
                return f"DATE '{value.isoformat()}'"
            case Timestamp():
                assert isinstance(value, datetime)
                return f"TIMESTAMP '{value.isoformat(' ')}'"
            case _:
                return by_code_points(f"text {self.text(str(value))}")

    def text(self, value: str) -> str:
        if "\0" in value:
            raise Unsupported("PostgreSQL text cannot contain the character NUL", hint="remove it from the constant")
        return literal(value)

    # -- values -------------------------------------------------------------------------------------------------------

    def computed_once(self, values: Sequence[str], write: Callable[..., str]) -> str:
        number = next(self.numbers)
        names = [f"_v{number}_{place}" for place in range(len(values))]
        bound = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
        return f"(SELECT {write(*names)} FROM (SELECT {bound} {FENCE}) AS _b{number})"

    def apply(self, operation: str, arguments: list[str], node: Func) -> str:
        if (problem := KIND.refused(operation)) is not None:
            raise problem
        if operation in EXACT or operation in ("/", "pow", "round", "trunc", *ANGLES):
            return self.arithmetic(operation, arguments, node)
        if operation == "same" and all(isinstance(side, Field) and side.table for side in node.arguments):
            # Arrays are equal where both hold NULL, and the planner can hash them.
            return f"(ARRAY[{arguments[0]}] = ARRAY[{arguments[1]}])"
        if operation in INFIX:
            left, right = arguments
            return f"({left} {INFIX[operation]} {right})"
        if operation in SPELLED:
            return SPELLED[operation](*arguments)
        if operation in REPEATED:
            return self.once(arguments, REPEATED[operation])
        match operation, node.arguments:
            case "//", _ if isinstance(node.kind, Integer):
                return _infix("/", arguments)
            case "//", _:
                return f"div({', '.join(f'CAST({part} AS NUMERIC)' for part in arguments)})"
            case "keyed hash", (_, *parts):
                return self.hashed(arguments, [self.kind_of(part) for part in parts])
            case ">>", (_, Constant(int(bits))):
                return f"floor({arguments[0]} * numeric '{_digits(bits)}')"
            case "date part", (Constant(str(name)), _):
                return self.once(arguments[1:], lambda moment: scalars.part(name, moment))
            case "date trunc", _:
                return f"date_trunc({arguments[0]}, {arguments[1]})"
            case "date diff", (Constant(str(unit)), *_):
                return self.once(arguments[1:], lambda first, last: scalars.starts_between(unit, first, last))
            case "date sub", (Constant(str(unit)), *_):
                return scalars.whole_units_between(unit, *arguments[1:])
            case "shift", (_, Constant(int(amount)), Constant(str(unit))):
                return self.once(arguments[:1], lambda moment: scalars.shifted(moment, amount, unit))
            case "strftime", (_, Constant(str(pattern))):
                return by_code_points(scalars.formatted(arguments[0], pattern, self.text))
            case "ends_with", (_, Constant(str(end))):
                return f"(right({arguments[0]}, {len(end)}) = {arguments[1]})"
        return f"{operation}({', '.join(arguments)})"

    def hashed(self, arguments: list[str], kinds: list[Known]) -> str:
        """The hash of each part is the key of the next.

        Units may be hashed alike, values may not, since groups may be known by their hashes. Of whole numbers
        PostgreSQL hashes both halves as one, so one of them is hashed before; NULL is hashed as some value, and turned
        over.
        """
        salt, unit, *parts = arguments
        key = _hash(unit, kinds[0], salt)
        for part, kind in zip(parts, kinds[1:], strict=True):
            if isinstance(kind, Integer):
                key = _hash(f"{part} >> 32", kind, key)
            key = _hash(part, kind, key)
            if not isinstance(kind, Short):
                key = f"({key} # CASE WHEN {part} IS NULL THEN {EVERY_SECOND_BIT} ELSE 0 END)"
        return key

    def arithmetic(self, operation: str, arguments: list[str], node: Func) -> str:
        """Arithmetic by scalars.py, or exactly in NUMERIC."""
        kind = node.kind if node.kind is not None else self.kind_of(node.arguments[0])
        if isinstance(kind, Double):
            return self.in_doubles(operation, arguments, node)
        if operation.startswith("try "):
            assert isinstance(kind, Decimal)
            return self.fitted(operation.removeprefix("try "), arguments, node)
        if operation in ("round", "trunc"):
            return f"{operation}({', '.join(arguments)})"
        return _infix(operation, arguments)

    def fitted(self, operator: str, arguments: list[str], node: Func) -> str:
        """A decimal of at most 38 digits, with the scale that the operation gives."""
        scales = [kind.scale for part in node.arguments if isinstance(kind := self.kind_of(part), Decimal)]
        scale = sum(scales) if operator == "*" else max(scales)
        return try_cast(_infix(operator, arguments), Wide(), Decimal(38, min(scale, 38)), self.once)

    def in_doubles(self, operation: str, arguments: list[str], node: Func) -> str:
        first, *rest = arguments
        constant = _number(node.arguments[-1])
        match operation:
            case "round" | "trunc":
                whole = scalars.rounded if operation == "round" else (lambda value: f"trunc({value})")
                return self.to_digits(whole, first, _number(node.arguments[1]) if rest else Fraction(0))
            case "degrees" | "radians":
                return self.times(first, ANGLES[operation], self.most(node.arguments[0]))
            case "pow":
                if constant is None:
                    raise Unsupported(
                        "on PostgreSQL a power needs a constant exponent", hint="write POWER(x, 2), or EXP(y * LN(x))"
                    )
                return self.once([first], lambda value: scalars.raised(value, float(constant)))
            case "*" if constant is not None:
                return self.times(first, constant, self.most(node.arguments[0]))
            case "*" if (factor := _number(node.arguments[0])) is not None:
                return self.times(rest[0], factor, self.most(node.arguments[1]))
            case "/" if constant is not None and constant != 0:
                return self.divided_by(first, constant, self.most(node.arguments[0]))
            case "+" | "-" if min(map(self.most, node.arguments)) <= scalars.CANNOT_CARRY:
                return _infix(operation, arguments)
            case "+" | "-":
                return self.once(arguments, lambda left, right: scalars.added(left, operation, right))
            case "*":
                most = max(map(self.most, node.arguments))
                return self.once(arguments, lambda left, right: scalars.multiplied(left, right, most))
            case _:
                return self.once(arguments, scalars.divided)

    def times(self, value: str, factor: Fraction, most: float = math.inf) -> str:
        by = scalars.number(float(factor))
        return self.once([value], lambda short: scalars.scaled(short, factor, f"({short} * {by})", most))

    def divided_by(self, value: str, divisor: Fraction, most: float = math.inf) -> str:
        by = scalars.number(float(divisor))
        return self.once([value], lambda short: scalars.scaled(short, 1 / divisor, f"({short} / {by})", most))

    def to_digits(self, whole: Callable[[str], str], value: str, digits: Fraction | None) -> str:
        """Rounds to this many digits; unchanged where the scaled number is not a finite double."""
        assert digits is not None
        if digits == 0:
            return self.once([value], whole)
        step = Fraction(10) ** abs(int(digits))
        there, back = (self.times, self.divided_by) if digits > 0 else (self.divided_by, self.times)

        def written(short: str) -> str:
            def chosen(scaled: str) -> str:
                result = back(self.once([scaled], whole), step)
                return f"CASE WHEN abs({scaled}) < {scalars.INFINITE} THEN {result} ELSE {short} END"

            return self.once([there(short, step)], chosen)

        return self.once([value], written)

    def cast(self, cast: Cast) -> str:
        """Cannot fail; of an unknown kind is only what is a number."""
        source = self.kind_of(cast.value)
        match source, cast.kind:
            case Double(), Text():
                raise no_cast(source, cast.kind)
            case None, Text():
                raise no_cast(source, cast.kind)
            case (Boolean(), _) | (_, Text()):
                return try_cast(self.term(cast.value), source, cast.kind, self.once)
        return f"CAST({self.term(cast.value)} AS {type_name(cast.kind)})"

    def try_cast(self, cast: TryCast) -> str:
        if isinstance(cast.value, Constant) and cast.value.value is None:
            return f"CAST(NULL AS {type_name(cast.kind)})"
        if self.surely_fits(cast):
            return f"CAST({self.term(cast.value)} AS {type_name(cast.kind)})"
        return try_cast(self.term(cast.value), self.kind_of(cast.value), cast.kind, self.once)

    def let(self, let: Let) -> str:
        number = next(self.numbers)
        values = [self.term(value) for value in let.values]
        bound = ", ".join(f"{value} AS _o{number}_{place}" for place, value in enumerate(values))
        with self.bound(f"_o{number}", let.values):
            body = self.term(let.body)
        return f"(SELECT {body} FROM (SELECT {bound} {FENCE}) AS _b{number})"

    def operand(self, operand: Operand) -> str:
        return f"{self.operands[-1][0]}_{operand.number}"

    def fold(self, fold: AggFunc) -> str:
        if fold.name == "sum of quanta":
            return f"trunc(sum({self.listed(fold.arguments)}) * {self.constant(quanta_in_one(fold))})"
        name, arguments = fold.name, [self.term(argument) for argument in fold.arguments]
        if name in ("min", "max") and isinstance(self.kind_of(fold.arguments[0]), Boolean):
            name = "bool_and" if name == "min" else "bool_or"
        if name == "collect":
            name = "array_agg"
        # These take no 64-bit numbers.
        if name in ("ntile", "lag", "lead", "nth_value"):
            place = 0 if name == "ntile" else 1
            arguments[place : place + 1] = [f"CAST({part} AS INTEGER)" for part in arguments[place : place + 1]]
        inside = ", ".join(arguments) or ("*" if name == "count" else "")
        order = f" ORDER BY {self.ordered(fold.order_by)}" if fold.order_by else ""
        where = "" if fold.where is None else f" FILTER (WHERE {self.term(fold.where)})"
        return f"{name}({'DISTINCT ' if fold.distinct else ''}{inside}{order}){where}"

    def over(self, window: WindowFunc) -> str:
        over = super().over(window)
        return f"CAST({over} AS BIGINT)" if window.fold.name == "ntile" else over

    # -- queries ------------------------------------------------------------------------------------------------------

    def part(self, part: CTE) -> str:
        """A part that is read twice is materialised, because joining all rows twice would take far longer."""
        return super().part(replace(part, kept=part.kept or None))

    def select(self, select: Select) -> str:
        """Fenced off where a column takes long to compute: the planner would do it wherever the column is read."""
        for column in select.columns:
            check_matches(column.value)
        self.longest.append(0)
        sql = super().select(sorted_units(in_sorted_order(select)))
        # With groups or windows it is computed where it stands, and nowhere else.
        has_own_rows = bool(select.group_by) or any(isinstance(column.value, WindowFunc) for column in select.columns)
        is_long = self.longest.pop() > (LONGEST_STORED if _reads_table(select.source) else LONGEST_COLUMN)
        return f"{sql} {FENCE}" if is_long and not has_own_rows else sql

    def named(self, column: Alias) -> str:
        sql = super().named(column)
        self.longest[-1] = max(self.longest[-1], len(sql))
        return sql

    def source(self, source: Source) -> str:
        if isinstance(source, Joined) and source.kind == "FULL" and not _meets_in_a_column(source.on):
            raise Unsupported(
                "on PostgreSQL a FULL JOIN needs an equality of two columns",
                hint="add one, or query the LEFT and the RIGHT JOIN separately",
            )
        return super().source(source)

    def series(self, series: Series) -> str:
        numbers = f"generate_series(bigint '0', bigint '{series.count - 1}')"
        return f"SELECT number AS {self.quoted(series.name)} FROM {numbers} AS numbers(number)"

    def around_rank(self, profile: AroundRank) -> str:
        with self.reading(self.ranges.of_query(profile.values)):
            return around_rank(self, profile)


def _reads_table(source: Source | None) -> bool:
    """Whether columns are those of a declared table, perhaps beside the owners of its keys."""
    rows = source.left if isinstance(source, Joined) else source
    return isinstance(rows, Table) and rows.alias is not None


def check_matches(value: Term) -> None:
    """As a value PostgreSQL looks a match up by its hash, or else reads all of the other rows for each row."""
    if isinstance(value, Exists) and not _is_hashed(value.query):
        raise Unsupported(
            "on PostgreSQL this EXISTS or IN would compare every row with every other",
            hint="make it a condition of its own in WHERE, joined by AND; or compare columns that are never NULL "
            "with =",
        )
    for part in parts_of(value):
        check_matches(part)


def _is_hashed(query: Query) -> bool:
    """Whether all conditions equate the two sides; rows of the public are few."""
    assert isinstance(query, Select)
    tests = list(_conjuncts(query.where)) if query.where is not None else []
    of_units = [part for part in tests if {field.name for field in _fields(part)} == {UNIT}]
    return not of_units or all(isinstance(part, Func) and part.operation == "=" for part in tests)


def _fields(value: Term) -> Iterator[Field]:
    if isinstance(value, Field):
        yield value
    for part in parts_of(value):
        yield from _fields(part)


def _conjuncts(value: Term) -> Iterator[Term]:
    if isinstance(value, Func) and value.operation == "and":
        for part in value.arguments:
            yield from _conjuncts(part)
    else:
        yield value


def _meets_in_a_column(on: Term | None) -> bool:
    parts = on.arguments if isinstance(on, Func) and on.operation == "and" else (on,)
    return any(
        isinstance(part, Func) and part.operation == "=" and all(isinstance(side, Field) for side in part.arguments)
        for part in parts
    )


def _hash(value: str, kind: Known, key: str) -> str:
    """A 64-bit hash; NULL has the hash of some value."""
    if isinstance(kind, Integer | Short):
        return f"hashint8extended(coalesce({value}, 0), {key})"
    if isinstance(kind, Double):
        return f"hashfloat8extended(coalesce({value}, 0), {key})"
    return f"hashtextextended(coalesce(CAST({value} AS TEXT), '') COLLATE \"C\", {key})"


def _infix(operator: str, arguments: list[str]) -> str:
    return f"({arguments[0]} {operator} {arguments[1]})"


def _number(value: Term) -> Fraction | None:
    """What a constant number is, as the double that it becomes."""
    if isinstance(value, TryCast) and isinstance(value.kind, Double):
        value = value.value
    if isinstance(value, Constant) and isinstance(value.value, int | Fraction):
        return Fraction(float(value.value))
    return None


def _digits(bits: int) -> str:
    """
    >>> _digits(3)
    '0.125'
    """
    return f"0.{5**bits:0{bits}d}" if bits else "1"
