"""Writes a tree as Spark's SQL, such that no row can raise an error.

A Let is a lambda over an array of one, as in DuckDB. Wide integers are decimals of 38 digits; operations on 64 bits
that may leave them are Spark's own try_add and its like, which are many times faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import WIDE, apply, in_64_bits, integer
from dpsql.engine_sql.tree import (
    Alias,
    Cast,
    Constant,
    Exists,
    Field,
    Func,
    Let,
    Scalar,
    Select,
    Short,
    Subquery,
    TryCast,
    Values,
    Wide,
    WindowFunc,
    is_one_scan,
    parts_of,
)
from dpsql.engines.ranges import ServedRenderer
from dpsql.engines.render import STANDARD, STANDARD_INFIX, quanta_in_one
from dpsql.engines.spark import KIND, scalars
from dpsql.engines.spark.public_groups import looked_up, with_all_groups
from dpsql.engines.spark.scalars import no_cast, try_cast, type_name
from dpsql.errors import Unsupported
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpsql.engine_sql.tree import (
        CTE,
        AggFunc,
        AroundRank,
        Kind,
        Known,
        Operand,
        Ordered,
        Query,
        Series,
        Term,
    )
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
    first, last = _ranks(renderer, profile)
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
    collected = f"array_sort(collect_list(CASE WHEN {needed} THEN struct(_point, _count) END))"
    columns = [
        *(
            f"transform({collected}, _p -> _p.{part}) AS {name}"
            for part, name in (("_point", points), ("_count", counts))
        ),
        f"coalesce(min(_upto - _count) FILTER (WHERE {needed}), 0L) AS {below}",
        f"coalesce(max(_rows), 0L) AS {rows}",
    ]
    before = ", ".join(f"{name} AS ({sql})" for name, sql in parts.items())
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"WITH {before} SELECT {_listed(keys, *columns)} FROM _sums{grouping}"


def _ranks(renderer: Renderer, profile: AroundRank) -> tuple[str, str]:
    """The first and the last rank needed; a group with values always needs at least one."""
    above, below = (integer(part) for part in profile.fraction.as_integer_ratio())
    product = apply("*", Field("_rows", kind=WIDE), above, kind=WIDE)
    middle = renderer.term(in_64_bits(apply("//", product, below, kind=WIDE)))
    reach = renderer.blanks[profile.reach]
    return f"least(greatest({middle} - {reach}, 1), _rows)", f"greatest(least({middle} + 1 + {reach}, _rows), 1)"


def _listed(keys: list[str], *others: str) -> str:
    return ", ".join([*keys, *others])


# -- clustered ---------------------------------------------------------------------------------------------------------
# Rows sorted by their unit before they are ranked within it: CLUSTER BY.
#
#     SELECT row_number() OVER (PARTITION BY _unit ORDER BY hash(...)) FROM (SELECT ... CLUSTER BY _unit)
#
# Spark sorts by one whole number in linear time (radix sort), and by several values with comparisons, most of which are
# of a unit's own rows and read these from all over the memory. In rows that are sorted by their unit the second sort
# finds those of a unit side by side. Rows are sent to where their unit's are once, as they would be anyway.


@dataclass(frozen=True, slots=True)
class Clustered(Select):
    """Its rows are sent to where others with the same value of a column are, and sorted by it there."""

    by: str = ""


def clustered(select: Select) -> Select:
    """The same over clustered rows, where it ranks rows of one table within units that are whole numbers. Those of a
    join may be sorted by their unit already."""
    match select.source:
        case Subquery(Select(columns, source, where, (), (), False) as rows) if is_one_scan(rows):
            unit = _ranked_within(select)
            if unit is None:
                return select
            below = Clustered(columns, source, where, by=unit)
            return replace(select, source=replace(select.source, query=below))
    return select


def _ranked_within(select: Select) -> str | None:
    """The column that all ranks are within, if there is one."""
    names = {_partition(column.value) for column in select.columns} - {None}
    return names.pop() if len(names) == 1 else None


def _partition(value: Term) -> str | None:
    """What a rank by something computed is within: else Spark takes both sorts for one."""
    match value:
        case WindowFunc(partition_by=(Field(name, kind=Integer()), *_), order_by=order):
            return name if any(isinstance(part.value, Func) for part in order) else None
    return None


# -- render ------------------------------------------------------------------------------------------------------------

HALF_BITS = 20
LARGEST_HALF = 2**HALF_BITS
"""Of numbers that are no larger 2^42 can be summed in 64 bits, which is more than a table has rows. Of larger ones both
halves of their bits can."""
EMPTY = "''"
INFIX = {
    **STANDARD_INFIX,
    "same": "<=>",
    "xor": "^",
    "/": "/",
}
SPELLED: dict[str, Callable[..., str]] = {
    **STANDARD,
    "is finite": lambda value: f"(abs({value}) < {scalars.INFINITE})",
    "is nan": lambda value: f"({value} = CAST('NaN' AS DOUBLE))",
    "try +": lambda left, right: f"try_add({left}, {right})",
    "try -": lambda left, right: f"try_subtract({left}, {right})",
    "try *": lambda left, right: f"try_multiply({left}, {right})",
    "by code points": lambda text: text,
    "bytes": lambda text: f"CAST(octet_length({text}) AS BIGINT)",
    "length": lambda text: f"CAST(char_length({text}) AS BIGINT)",
    "strpos": lambda text, part: f"CAST(instr({text}, {part}) AS BIGINT)",
    "ascii": lambda text: f"CAST(ascii({text}) AS BIGINT)",
    "starts_with": lambda text, part: f"startswith({text}, {part})",
    "ends_with": lambda text, part: f"endswith({text}, {part})",
    "trim": lambda text, *those: _trimmed("BOTH", text, *those),
    "ltrim": lambda text, *those: _trimmed("LEADING", text, *those),
    "rtrim": lambda text, *those: _trimmed("TRAILING", text, *those),
    "concat": lambda *parts: f"concat({', '.join(f'coalesce({part}, {EMPTY})' for part in parts)})",
    "date trunc": lambda unit, moment: scalars.without_zone(f"date_trunc({unit}, {scalars.timestamp(moment)})"),
    "date + days": lambda day, days: f"date_add({day}, {days})",
    "date - date": lambda left, right: f"CAST(datediff({left}, {right}) AS BIGINT)",
    "last day": lambda moment: f"last_day(CAST({moment} AS DATE))",
    "epoch": lambda moment: f"(CAST({scalars.microseconds(moment)} AS DOUBLE) / 1000000D)",
    "epoch days": lambda day: f"CAST(unix_date({day}) AS BIGINT)",
    "epoch microseconds": scalars.microseconds,
    "from epoch days": lambda days: f"date_from_unix_date(CAST({days} AS INT))",
    "from epoch microseconds": lambda count: scalars.without_zone(f"timestamp_micros({count})"),
    "dayname": lambda moment: f"date_format({scalars.timestamp(moment)}, 'EEEE')",
    "monthname": lambda moment: f"date_format({scalars.timestamp(moment)}, 'MMMM')",
    # NULL leaves the hash as it is, so which parts are NULL is hashed too. A number would be a part of the code that
    # Spark compiles, anew for each salt; a text is handed to it.
    "keyed hash": lambda salt, *parts: (
        f"xxhash64('{salt}', {', '.join(parts)}, {', '.join(f'({part}) IS NULL' for part in parts)})"
    ),
    "one in 32": lambda hashed: f"(({hashed} & 31) = 0)",
    "position": lambda value, *choices: f"(nullif(array_position(array({', '.join(choices)}), {value}), 0) - 1)",
}
REPEATED: dict[str, Callable[..., str]] = {
    "lower": scalars.lower,
    "upper": scalars.upper,
    "unicode": lambda text: f"CASE WHEN {text} = '' THEN -1L ELSE CAST(ascii({text}) AS BIGINT) END",
    "make date": scalars.made,
    "pow": scalars.raised,
}
"""What reads its arguments more than once."""
TRIED = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
ROUNDED: dict[str, Callable[[str], str]] = {
    "floor": scalars.floor,
    "ceil": scalars.ceil,
    "trunc": scalars.truncated,
    "round": scalars.rounded,
}
SHORT_PLACES = ("row_number", "rank", "dense_rank", "ntile")
PLACES = (*SHORT_PLACES, "percent_rank", "cume_dist", "lag", "lead")
ANGLES = {"degrees": 57.29577951308232, "radians": 0.017453292519943295}


def render(query: Query, blanks: Mapping[str, int] | None = None, tables: Mapping[str, str] | None = None) -> str:
    return Spark(blanks, tables).query(query)


class Spark(ServedRenderer):
    # -- names and constants ------------------------------------------------------------------------------------------

    def quoted(self, name: str) -> str:
        return scalars.quoted(name)

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
            case Integer():
                assert isinstance(value, int)
                return f"({value}L)" if value < 0 else f"{value}L"
            case Wide() | Short():
                return f"CAST('{value}' AS {type_name(kind)})"
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
                return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
            case _:
                return scalars.literal(str(value))

    # -- values -------------------------------------------------------------------------------------------------------

    def computed_once(self, values: Sequence[str], write: Callable[..., str]) -> str:
        name = f"_v{next(self.numbers)}"
        return _bound(name, values, write(*(f"{name}.v{place}" for place in range(len(values)))))

    def apply(self, operation: str, arguments: list[str], node: Func) -> str:
        if (problem := KIND.refused(operation)) is not None:
            raise problem
        if operation in ("//", ">>"):
            return self.divided(operation, arguments, node)
        if operation in ROUNDED:
            return self.rounded(operation, arguments, node)
        if operation in ("negate", "abs") and (long := _long(self.kind_of(node.arguments[0]))):
            return self.once(arguments, lambda value: _with_sign(operation, value, long))
        if operation in INFIX:
            left, right = arguments
            return f"({left} {INFIX[operation]} {right})"
        if operation in SPELLED:
            return SPELLED[operation](*arguments)
        if operation in REPEATED:
            return self.once(arguments, REPEATED[operation])
        if operation in ANGLES:
            return f"({arguments[0]} * {ANGLES[operation]!r}D)"
        match operation, node.arguments:
            case "left" | "right" | "split_part", (*_, Constant(int(number))) if number < 0:
                raise Unsupported(
                    "on Spark positions from the end have a different meaning, so dpsql does not use them there",
                    hint="count from the start",
                )
            case "like" | "ilike", (_, Constant(str(wanted)), *escape):
                mark = next((str(part.value) for part in escape if isinstance(part, Constant)), None)
                return self.like(operation, arguments[0], scalars.pattern(wanted, mark))
            case "date part", (Constant(str(name)), _):
                return scalars.part(name, arguments[1])
            case "date diff", (Constant(str(unit)), *_):
                return self.once(arguments[1:], lambda first, last: scalars.starts_between(unit, first, last))
            case "date sub", (Constant(str(unit)), *_):
                return scalars.whole_units_between(unit, *arguments[1:])
            case "shift", (_, Constant(int(amount)), Constant(str(unit))):
                return scalars.shifted(arguments[0], amount, unit)
            case "strftime", (_, Constant(str(pattern))):
                return scalars.formatted(arguments[0], pattern, scalars.literal)
        return f"{operation}({', '.join(arguments)})"

    def like(self, operation: str, text: str, pattern: str) -> str:
        linear = scalars.linear_pattern(pattern.lower() if operation == "ilike" else pattern)
        if operation == "ilike" and linear is not None and not pattern.isascii():
            raise Unsupported(
                "on Spark ILIKE with several % and letters beyond ASCII could take too long",
                hint="use LIKE, or a pattern with one %",
            )
        if operation == "ilike":
            text, wanted = self.once([text], scalars.lower), f"({scalars.lower(scalars.literal(pattern))})"
        else:
            wanted = scalars.literal(pattern)
        if linear is not None:
            return f"({text} RLIKE {scalars.literal(linear)})"
        return f"({text} LIKE {wanted} ESCAPE '{scalars.ESCAPE}')"

    def divided(self, operation: str, arguments: list[str], node: Func) -> str:
        """Divides wide numbers, subtracting the remainder first so that the quotient is exact."""
        if operation == ">>":
            (_, bits) = node.arguments
            assert isinstance(bits, Constant)
            assert isinstance(bits.value, int)
            power = str(2**bits.value)
            return self.once(arguments[:1], lambda value: _quotient(f"({value} - pmod({value}, {power}))", power))
        if isinstance(node.kind, Integer):
            return f"({arguments[0]} div {arguments[1]})"
        short = [_in_64_bits(part) for part in node.arguments]
        if all(short):
            left, right = (self.term(part) for part in short if part is not None)
            # The one quotient of 64-bit numbers that is longer.
            return self.once(
                [left, right],
                lambda a, b: (
                    f"CASE WHEN {b} = -1 THEN -CAST({a} AS DECIMAL(38, 0)) ELSE CAST({a} div {b} AS DECIMAL(38, 0)) END"
                ),
            )
        # The fewer digits a divisor has, the more are left for the quotient.
        divisor = self.term(short[1]) if short[1] is not None else arguments[1]
        return self.once([arguments[0], divisor], lambda a, b: _quotient(f"({a} - {a} % {b})", b))

    def rounded(self, operation: str, arguments: list[str], node: Func) -> str:
        kind = node.kind if node.kind is not None else self.kind_of(node.arguments[0])
        digits = int(node.arguments[1].value) if len(arguments) > 1 else 0  # type: ignore[union-attr,arg-type]
        if isinstance(kind, Double):
            return self.to_digits(ROUNDED[operation], arguments[0], digits)
        if operation == "trunc":
            return self.once(
                arguments[:1],
                lambda value: f"CASE WHEN {value} < 0 THEN ceil({value}, {digits}) ELSE floor({value}, {digits}) END",
            )
        return f"{operation}({arguments[0]}{f', {digits}' if operation == 'round' else ''})"

    def to_digits(self, whole: Callable[[str], str], value: str, digits: int) -> str:
        """Rounds to this many digits; unchanged where the scaled number is not a finite double."""
        if digits == 0:
            return self.once([value], whole)
        step = scalars.number(10.0 ** abs(digits))
        there, back = ("*", "/") if digits > 0 else ("/", "*")

        def written(short: str) -> str:
            def chosen(scaled: str) -> str:
                result = f"({self.once([scaled], whole)} {back} {step})"
                return f"CASE WHEN abs({scaled}) < {scalars.INFINITE} THEN {result} ELSE {short} END"

            return self.once([f"({short} {there} {step})"], chosen)

        return self.once([value], written)

    def cast(self, cast: Cast) -> str:
        """Cannot fail; of an unknown kind is only what is a number."""
        source = self.kind_of(cast.value)
        match source, cast.kind:
            case ((Double() | None), Text()):
                raise no_cast(source, cast.kind)
            case (Boolean(), _) | (_, Text()):
                return try_cast(self.term(cast.value), source, cast.kind, self.once)
        return f"CAST({self.term(cast.value)} AS {type_name(cast.kind)})"

    def try_cast(self, cast: TryCast) -> str:
        value = cast.value
        if isinstance(value, Constant) and value.value is None:
            return f"CAST(NULL AS {type_name(cast.kind)})"
        if self.surely_fits(cast):
            # The engine's own cast cuts off.
            return f"CAST(rint({self.term(value)}) AS {type_name(cast.kind)})"
        if isinstance(cast.kind, Integer) and isinstance(value, Func) and value.operation in TRIED:
            short = [_in_64_bits(part) for part in value.arguments]
            if all(short):
                sides = ", ".join(self.term(part) for part in short if part is not None)
                return f"{TRIED[value.operation]}({sides})"
        return try_cast(self.term(value), self.kind_of(value), cast.kind, self.once)

    def let(self, let: Let) -> str:
        name = f"_o{next(self.numbers)}"
        values = [self.term(value) for value in let.values]
        with self.bound(name, let.values):
            body = self.term(let.body)
        if _asks(let):
            # A query cannot stand inside a lambda.
            bound = ", ".join(f"{value} AS v{place}" for place, value in enumerate(values))
            return f"(SELECT {body} FROM (SELECT {bound}) AS {name})"
        return _bound(name, values, body)

    def operand(self, operand: Operand) -> str:
        return f"{self.operands[-1][0]}.v{operand.number}"

    def fold(self, fold: AggFunc) -> str:
        if fold.name == "collect":
            return self.collected(fold)
        if fold.name == "sum of quanta":
            (value,) = fold.arguments
            assert isinstance(value.kind, Decimal)
            # Spark's sum has 10 digits more than what is summed: 28 here, and 38 once it is multiplied.
            summed = f"sum(CAST({self.term(value)} AS DECIMAL(18, {value.kind.scale})))"
            return f"CAST(({summed} * {self.constant(quanta_in_one(fold))}) AS DECIMAL(38, 0))"
        if fold.name == "sum" and not fold.distinct and not isinstance(fold.kind, Integer):
            return self.total(fold)
        return self.folded(fold)

    def total(self, fold: AggFunc) -> str:
        """Decimal sums are slow, and a sum of small numbers over any table fits into 64 bits."""
        (value,) = fold.arguments
        most = self.most(value)
        if most > LARGEST_HALF**2 or isinstance(self.kind_of(value), Decimal | Double):
            return self.folded(fold)
        whole = f"CAST({self.term(value)} AS BIGINT)"
        where = "" if fold.where is None else f" FILTER (WHERE {self.term(fold.where)})"
        if most <= LARGEST_HALF:
            return f"CAST(sum({whole}){where} AS DECIMAL(38, 0))"
        high, low = f"shiftright({whole}, {HALF_BITS})", f"({whole} & {LARGEST_HALF - 1}L)"
        return f"(CAST(sum({high}){where} AS DECIMAL(38, 0)) * {LARGEST_HALF} + sum({low}){where})"

    def folded(self, fold: AggFunc) -> str:
        name, arguments = fold.name, [self.term(argument) for argument in fold.arguments]
        if name == "sum" and not isinstance(fold.kind, Integer):
            kind = self.kind_of(fold.arguments[0])
            scale = kind.scale if isinstance(kind, Decimal) else 0
            arguments = [f"CAST({arguments[0]} AS DECIMAL(38, {scale}))"]
        # These take no 64-bit numbers.
        if name in ("ntile", "lag", "lead", "nth_value"):
            place = 0 if name == "ntile" else 1
            arguments[place : place + 1] = [f"CAST({part} AS INT)" for part in arguments[place : place + 1]]
        inside = ", ".join(arguments) or ("*" if name == "count" else "")
        where = "" if fold.where is None else f" FILTER (WHERE {self.term(fold.where)})"
        return f"{name}({'DISTINCT ' if fold.distinct else ''}{inside}){where}"

    def collected(self, fold: AggFunc) -> str:
        """In structs, since NULL is not collected by itself, sorted by what stands before the value; NULL of none."""
        (value,) = fold.arguments
        parts = [f"{self.term(part.value)} AS o{place}" for place, part in enumerate(fold.order_by)]
        row = f"struct({', '.join([*parts, f'{self.term(value)} AS v'])})"
        kept = row if fold.where is None else f"CASE WHEN {self.term(fold.where)} THEN {row} END"
        listed = f"transform(array_sort(collect_list({kept}), {_comparison(fold.order_by)}), _e -> _e.v)"
        return f"CASE WHEN count({kept}) > 0 THEN {listed} END"

    def over(self, window: WindowFunc) -> str:
        """Ranking functions have a fixed frame and accept no other; their results have 32 bits."""
        over = super().over(replace(window, frame="") if window.fold.name in PLACES else window)
        return f"CAST({over} AS BIGINT)" if window.fold.name in SHORT_PLACES else over

    # -- queries ------------------------------------------------------------------------------------------------------

    def query(self, query: Query) -> str:
        return super().query(with_all_groups(query) if isinstance(query, Select) else query)

    def part(self, part: CTE) -> str:
        """Spark recomputes every part, and cannot materialise one."""
        return super().part(replace(part, kept=None))

    def select(self, select: Select) -> str:
        """Listed values that differ are not made different by one more shuffle. What is sorted is the result, which
        goes to one place anyway: to sort it in parts, Spark would run its last steps twice."""
        if select.distinct and _lists_different_values(select):
            select = replace(select, distinct=False)
        sql = super().select(clustered(looked_up(select)))
        if isinstance(select, Clustered):
            return f"{sql} CLUSTER BY {self.quoted(select.by)}"
        return sql.replace("SELECT", "SELECT /*+ COALESCE(1) */", 1) if select.order_by else sql

    def series(self, series: Series) -> str:
        return f"SELECT id AS {self.quoted(series.name)} FROM range(0, {series.count})"

    def around_rank(self, profile: AroundRank) -> str:
        with self.reading(self.ranges.of_query(profile.values)):
            return around_rank(self, profile)


def _bound(name: str, values: Sequence[str], body: str) -> str:
    fields = ", ".join(f"{value} AS v{place}" for place, value in enumerate(values))
    return f"element_at(transform(array(struct({fields})), {name} -> {body}), 1)"


def _lists_different_values(select: Select) -> bool:
    match select:
        case Select((Alias(Field(name)),), Subquery(Values((listed,), _, rows))):
            return name == listed and len(set(rows)) == len(rows)
    return False


def _asks(value: Term) -> bool:
    """Whether a part of it is a subquery."""
    if isinstance(value, Let):
        return any(map(_asks, value.values)) or _asks(value.body)
    return isinstance(value, Exists | Scalar) or any(map(_asks, parts_of(value)))


def _in_64_bits(value: Term) -> Term | None:
    """The 64-bit value behind a wide number, if it fits."""
    if isinstance(value, Cast) and isinstance(value.kind, Wide):
        return _in_64_bits(value.value)
    if isinstance(value, Constant) and isinstance(value.value, int) and -(2**63) <= value.value < 2**63:
        return Constant(value.value, Integer())
    return value if isinstance(value.kind, Integer) else None


def _quotient(dividend: str, divisor: str) -> str:
    return f"CAST(try_divide({dividend}, {divisor}) AS DECIMAL(38, 0))"


def _trimmed(side: str, text: str, those: str = "' '") -> str:
    return f"TRIM({side} {those} FROM {text})"


def _comparison(order: Sequence[Ordered]) -> str:
    """A comparator for array_sort: -1, 0 or 1 for two structs."""
    tests = []
    for place, part in enumerate(order):
        first, last = (1, -1) if part.descending else (-1, 1)
        left, right = f"_l.o{place}", f"_r.o{place}"
        null, other = (-1, 1) if part.nulls_first else (1, -1)
        tests += [
            f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {null} "
            f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {other} "
            f"WHEN {left} < {right} THEN {first} WHEN {left} > {right} THEN {last}"
        ]
    return f"(_l, _r) -> CASE {' '.join(tests)} ELSE 0 END" if tests else "(_l, _r) -> 0"


def _long(kind: Known) -> str | None:
    """The type if it has more than 34 digits: the engine rounds to these when it changes a sign, or fails."""
    long = isinstance(kind, Wide) or (isinstance(kind, Decimal) and kind.precision > 34)
    return type_name(kind) if long and kind is not None else None


def _with_sign(operation: str, value: str, type_: str) -> str:
    text = f"CAST({value} AS STRING)"
    positive = text if operation == "abs" else f"concat('-', {text})"
    return f"TRY_CAST(CASE WHEN {value} < 0 THEN substring({text}, 2) ELSE {positive} END AS {type_})"
