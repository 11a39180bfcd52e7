"""Every operation that engines are asked for is run on extreme values: it fails on no row, and keeps its rule.

The rules stand in dpsql/engine_sql/tree.py. What is expected here is computed by Python, on the same values;
where a rule refers to DuckDB itself, that nothing fails is all that is asked of DuckDB, and the same values of others.
What an engine has no words for is listed by name.
"""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, Protocol

import duckdb
import pytest

from dpsql.aggregates.measure import SumValues
from dpsql.engine_sql.build import (
    NULL,
    SHORT,
    WIDE,
    apply,
    cast,
    clamp,
    count,
    double,
    fields,
    finite_clamp,
    integer,
    select,
    short_total,
    total,
)
from dpsql.engine_sql.tree import (
    CTE,
    FOLDS,
    OPERATIONS,
    AggFunc,
    Alias,
    Blank,
    Case,
    Constant,
    Exists,
    Field,
    Func,
    Joined,
    Kind,
    Let,
    Operand,
    Ordered,
    Select,
    Series,
    SetOperation,
    Short,
    Subquery,
    Table,
    Term,
    TryCast,
    Values,
    WindowFunc,
    With,
    parts_of,
    tables_read,
)
from dpsql.engines.duckdb.render import DuckDB
from dpsql.engines.postgresql.render import PostgreSQL
from dpsql.engines.render import Renderer
from dpsql.engines.spark.engine import SETTINGS
from dpsql.engines.spark.render import Spark
from dpsql.errors import Unsupported
from dpsql.expressions.tree import Column
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

LONG = 2**63 - 1
exact = decimal.Decimal
CENTS = Decimal(18, 2)
KINDS: dict[str, Kind] = {
    "i": Integer(),
    "w": WIDE,
    "x": Double(),
    "c": CENTS,
    "s": Text(),
    "d": Date(),
    "m": Timestamp(),
    "b": Boolean(),
}
EXTREME: dict[str, list[Any]] = {
    "i": [None, 0, 1, -1, 7, -8, LONG, -LONG - 1, 2**31, -(2**53) - 1],
    "w": [None, 0, 1, -1, 7, -8, 2**100, -(2**100), 2**64 + 1, -(2**70) - 3],
    "x": [None, 0.0, -0.0, 0.5, -2.5, 5e-324, -1.7e308, math.inf, -math.inf, math.nan, 1e15 + 0.5],
    "c": [
        None,
        exact("0.00"),
        exact("1.50"),
        exact("-2.50"),
        exact("9999999999999999.99"),
        exact("-9999999999999999.99"),
        exact("0.01"),
    ],
    "s": [None, "", "a", "A", "Ä", "ß", "\U0001f600e\u0301", "a%b_c", "0123", "x" * 300, "é\n"],
    "d": [None, date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), date(1969, 12, 31), date(1900, 3, 1)],
    "m": [None, datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(2024, 2, 29, 23, 59, 59)],
    "b": [None, True, False],
}
FINITE = [value for value in EXTREME["x"] if value is None or math.isfinite(value)]


def field(name: str) -> Field:
    return Field(name, kind=KINDS[name.rstrip("2")])


def text(value: str) -> Constant:
    return Constant(value, Text())


# -- the rules in Python ----------------------------------------------------------------------------------------------


def half_away(value: float) -> float:
    whole = math.trunc(value)
    return float(whole + (math.copysign(1, value) if abs(value - whole) >= 0.5 else 0))


def doubles(work: Callable[..., float]) -> Callable[..., float | None]:
    """Python raises where doubles become infinite."""

    def of(*values: float) -> float | None:
        try:
            return work(*values)
        except OverflowError:
            return math.inf

    return of


def in_order(work: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Engines put NaN above everything, where it equals itself."""

    def of(left: Any, right: Any) -> bool:
        return work(
            *(((math.isnan(v), 0.0 if math.isnan(v) else v) if isinstance(v, float) else v) for v in (left, right))
        )

    return of


def cut(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def and_(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def or_(values: list[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SEVEN, NOT_ZERO = integer(7), (integer(-8), integer(3))
Example = tuple[tuple[Term, ...], Any, Callable[..., Any] | None]
"""The arguments, the kind in which it is done, and the rule for values that are not NULL."""

N, W, X, C, S, DAY, M, B = (field(name) for name in KINDS)
N2, W2, X2, C2, S2, DAY2, M2, B2 = (field(f"{name}2") for name in KINDS)
"""The same values in every combination with the first."""
OPEN = {"same", "different", "and", "or", "is null", "is not null", "is not false", "least", "greatest", "coalesce"}
OPEN |= {"concat", "concat_ws", "in", "keyed hash"}
"""Operations that NULL has a meaning for."""


def last_day(day: date) -> date:
    return date(day.year, 12, 31) if day.month == 12 else date(day.year, day.month + 1, 1) - timedelta(days=1)


def least(*values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


def greatest(*values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def among(value: Any, *choices: Any) -> bool | None:
    return None if value is None else value in choices


HALF, LONGEST = Fraction(1, 2), Decimal(38, 19)
EPOCH, MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
BETWEEN_0_AND_1 = apply("least", apply("greatest", X, double(0), kind=Double()), double(1), kind=Double())
FUNCTIONS_OF_DOUBLES = ["sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians", "cbrt", "sqrt"]
OF_ONE_TEXT = ["lower", "upper", "reverse", "trim", "ltrim", "rtrim", "length", "ascii", "unicode", "md5"]
EXAMPLES: dict[str, list[Example]] = {
    **{
        symbol: [
            ((N, N2), None, work),
            ((S, S2), None, work),
            ((X, X2), None, in_order(work)),
            ((DAY, DAY2), None, work),
        ]
        for symbol, work in COMPARED.items()
    },
    "same": [((N, N2), None, operator.eq), ((S, S2), None, operator.eq)],
    "different": [((N, N2), None, operator.ne), ((S, S2), None, operator.ne)],
    "and": [((B, B2), None, lambda *values: and_(list(values)))],
    "or": [((B, B2), None, lambda *values: or_(list(values)))],
    "not": [((B,), None, operator.not_)],
    "is null": [((N,), None, lambda value: value is None)],
    "is not null": [((S,), None, lambda value: value is not None)],
    "is not false": [((B,), None, lambda value: value is not False)],
    "in": [((N, SEVEN, integer(1)), None, among), ((S, text("A"), text("Ä")), None, among)],
    "between": [((N, integer(-1), SEVEN), None, lambda value, low, high: low <= value <= high)],
    "is finite": [((X,), None, math.isfinite)],
    "is nan": [((X,), None, math.isnan)],
    "least": [((N, N2), Integer(), least), ((S, S2), Text(), least)],
    "greatest": [((W, W2), WIDE, greatest), ((DAY, DAY2), Date(), greatest)],
    "coalesce": [((N, N2), Integer(), lambda first, second: second if first is None else first)],
    "+": [((W, W2), WIDE, operator.add), ((X, X2), Double(), doubles(operator.add))],
    "-": [((W, W2), WIDE, operator.sub), ((X, X2), Double(), doubles(operator.sub))],
    "*": [
        ((W, integer(2**20)), WIDE, operator.mul),
        ((X, X2), Double(), doubles(operator.mul)),
        ((cast(C, Decimal(37, 2)), Constant(HALF, Decimal(1, 1))), Decimal(38, 3), operator.mul),
    ],
    **{f"try {symbol}": [((TryCast(C, LONGEST), TryCast(C2, LONGEST)), LONGEST, None)] for symbol in "+-*"},
    "/": [((X, double(-5 * HALF)), Double(), operator.truediv)],
    "//": [((W, divisor), WIDE, cut) for divisor in NOT_ZERO],
    "%": [((W, divisor), WIDE, lambda a, b: a - b * cut(a, b)) for divisor in NOT_ZERO],
    "double %": [((X, double(5 * HALF)), Double(), lambda a, b: math.fmod(a, b) if math.isfinite(a) else math.nan)],
    "negate": [((X,), Double(), operator.neg), ((C,), CENTS, operator.neg)],
    "&": [((N, N2), Integer(), operator.and_)],
    "|": [((N, N2), Integer(), operator.or_)],
    "xor": [((N, N2), Integer(), operator.xor)],
    ">>": [((W, integer(5)), WIDE, operator.rshift)],
    "abs": [((W,), WIDE, abs), ((X,), Double(), abs), ((C,), CENTS, abs)],
    "sign": [((W,), None, lambda value: (value > 0) - (value < 0))],
    "floor": [((TryCast(C, Double()),), Double(), math.floor), ((C,), Decimal(18, 0), math.floor)],
    "ceil": [((TryCast(C, Double()),), Double(), math.ceil), ((C,), Decimal(18, 0), math.ceil)],
    "trunc": [((TryCast(C, Double()),), Double(), math.trunc), ((X, integer(2)), Double(), None)],
    "round": [((TryCast(C, Double()),), Double(), half_away), ((X, integer(-3)), Double(), None)],
    **{name: [((BETWEEN_0_AND_1,), Double(), None)] for name in FUNCTIONS_OF_DOUBLES},
    **{
        name: [((apply("greatest", X, double(Fraction(1, 10**300))),), Double(), None)]
        for name in ("ln", "log10", "log2")
    },
    "exp": [((X,), Double(), lambda value: doubles(math.exp)(value))],
    "pow": [((X, double(2)), Double(), None), ((X, X2), Double(), None)],
    "atan2": [((BETWEEN_0_AND_1, double(HALF)), Double(), None)],
    "by code points": [((S,), Text(), lambda value: value)],
    "bytes": [((S,), Integer(), lambda value: len(value.encode()))],
    **{name: [((S,), Text(), None)] for name in OF_ONE_TEXT},
    "length": [((S,), Integer(), len)],
    "reverse": [((S,), Text(), None)],
    "replace": [((S, text("a"), text("'")), Text(), lambda value, old, new: value.replace(old, new))],
    "substring": [
        ((S, integer(2), integer(3)), Text(), lambda value, start, size: value[start - 1 : start - 1 + size])
    ],
    "left": [((S, integer(2)), Text(), lambda value, size: value[:size])],
    "right": [((S, integer(2)), Text(), lambda value, size: value[-size:])],
    "lpad": [((S, integer(4), text("-")), Text(), lambda value, size, fill: value[:size].rjust(size, fill))],
    "rpad": [((S, integer(4), text("-")), Text(), lambda value, size, fill: value[:size].ljust(size, fill))],
    "split_part": [((S, text("%"), integer(2)), Text(), lambda value, at, part: [*value.split(at), ""][part - 1])],
    "strpos": [((S, text("b")), Integer(), lambda value, part: value.find(part) + 1)],
    "levenshtein": [((S, text("abc")), Integer(), None)],
    "starts_with": [((S, text("a")), None, str.startswith)],
    "ends_with": [((S, text("c")), None, str.endswith)],
    "contains": [((S, text("%")), None, operator.contains)],
    "||": [((S, S2), Text(), operator.add)],
    "concat": [((S, S2), Text(), lambda *parts: "".join(part for part in parts if part is not None))],
    "concat_ws": [
        ((text("-"), S, S2), Text(), lambda between, *parts: between.join(part for part in parts if part is not None))
    ],
    "like": [
        ((S, text("a%")), None, lambda value, _: value.startswith("a")),
        ((S, text("a!%%"), text("!")), None, None),
    ],
    "ilike": [((S, text("a%")), None, lambda value, _: value.lower().startswith("a"))],
    "glob": [((S, text("a*")), None, lambda value, _: value.startswith("a"))],
    "regexp_matches": [((S, text("^a")), None, lambda value, _: value.startswith("a"))],
    "regexp_full_match": [((S, text("[0-9]+")), None, lambda value, _: value.isdigit())],
    "regexp_replace": [((S, text("a"), text("b")), Text(), lambda value, old, new: value.replace(old, new, 1))],
    "regexp_extract": [((S, text("[0-9]+")), Text(), None)],
    "date part": [
        ((text("year"), DAY), Integer(), lambda _, day: day.year),
        ((text("isodow"), M), Integer(), lambda _, moment: moment.isoweekday()),
        ((text("week"), DAY), Integer(), lambda _, day: day.isocalendar().week),
    ],
    "date trunc": [((text("month"), M), Timestamp(), lambda _, at: datetime(at.year, at.month, 1))],
    "date diff": [((text("day"), DAY, DAY2), Integer(), lambda _, first, last: (last - first).days)],
    "date sub": [((text("day"), DAY, DAY2), Integer(), lambda _, first, last: (last - first).days)],
    "date + days": [((DAY, Constant(-31, Short(32))), Date(), None)],
    "date - date": [((DAY, DAY2), Integer(), lambda first, last: (first - last).days)],
    "shift": [
        ((M, integer(-14), text("month")), Timestamp(), None),
        ((M, integer(30), text("second")), Timestamp(), None),
    ],
    "last day": [((DAY,), Date(), last_day)],
    "make date": [((integer(2023), integer(2), integer(day)), Date(), None) for day in (28, 29)],
    "epoch": [((M,), Double(), lambda at: (at - EPOCH) / MICROSECOND / 1e6)],
    "epoch days": [((DAY,), Integer(), lambda day: (day - EPOCH.date()).days)],
    "epoch microseconds": [((M,), Integer(), lambda at: (at - EPOCH) // MICROSECOND)],
    "from epoch days": [((apply("epoch days", DAY, kind=Integer()),), Date(), None)],
    "from epoch microseconds": [((apply("epoch microseconds", M, kind=Integer()),), Timestamp(), None)],
    "dayname": [((DAY,), Text(), lambda day: day.strftime("%A"))],
    "monthname": [((DAY,), Text(), lambda day: day.strftime("%B"))],
    "strftime": [((DAY, text("%d.%m.")), Text(), lambda day, _: f"{day.day:02}.{day.month:02}.")],
    "strptime": [((apply("coalesce", S, text("29.02.2024")), text("%d.%m.%Y")), Timestamp(), None)],
    "json_extract_string": [
        ((apply("coalesce", S, text('{"a": [1, "x"]}')), text(path)), Text(), None)
        for path in ("$.a[1]", '$."b"', "$.a")
    ],
    "keyed hash": [((Blank("salt"), N, S, X, DAY), None, None)],
    "one in 32": [((apply("keyed hash", Blank("salt"), N),), None, None)],
    "position": [((N, integer(0), SEVEN), Integer(), lambda value, *choices: {0: 0, 7: 1}.get(value))],
}


def test_every_operation_is_tried() -> None:
    assert EXAMPLES.keys() == OPERATIONS.keys()


# -- running them -----------------------------------------------------------------------------------------------------


class Engine(Protocol):
    """Tables of every column beside itself, all combinations."""

    name: str

    def renderer(self, blanks: dict[str, int] | None = None) -> Renderer: ...

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...

    def type_of(self, sql: str) -> str: ...


class InDuckDB:
    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def renderer(self, blanks: dict[str, int] | None = None) -> Renderer:
        return DuckDB(blanks)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def type_of(self, sql: str) -> str:
        return str(self.rows(f"SELECT replace(typeof({sql}), ',', ', ')")[0][0])


class InPostgreSQL:
    name = "postgresql"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def renderer(self, blanks: dict[str, int] | None = None) -> Renderer:
        return PostgreSQL(blanks)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(map(as_in_duckdb, row)) for row in self.connection.execute(sql).fetchall()]

    def type_of(self, sql: str) -> str:
        kind = str(self.connection.execute(f"SELECT {sql} AS x").description[0].type_display)
        return NAMES.get(kind, kind.replace(",", ", ").upper())


NAMES = {"float8": "DOUBLE PRECISION", "int8": "BIGINT", "bool": "BOOLEAN"}


class InSpark:
    name = "spark"

    def __init__(self, session: Any) -> None:
        self.session = session
        self.known: dict[str, list[tuple[Any, ...]]] = {}

    def renderer(self, blanks: dict[str, int] | None = None) -> Renderer:
        return Spark(blanks)

    def ask_together(self, queries: list[tuple[list[str], str]]) -> None:
        """What is selected from the same tables in one query: each takes Spark as long as many do."""
        by_source: dict[str, list[list[str]]] = {}
        for columns, source in queries:
            by_source.setdefault(source, []).append(columns)
        for source, several in by_source.items():
            rows = self.fetched(select_list([part for columns in several for part in columns], source))
            first = 0
            for columns in several:
                last = first + len(columns)
                self.known[select_list(columns, source)] = [row[first:last] for row in rows]
                first = last

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.known[sql] if sql in self.known else self.fetched(sql)

    def fetched(self, sql: str) -> list[tuple[Any, ...]]:
        frame = self.session.sql(sql)
        frame = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
        read: dict[str, Callable[[str], Any]] = {"date": date.fromisoformat, "timestamp_ntz": datetime.fromisoformat}
        moments = {name: read[kind] for name, kind in frame.dtypes if kind in read}
        for name in moments:
            frame = frame.withColumn(name, frame[name].cast("string"))
        return [
            tuple(
                or_text(moments[name], value) if name in moments else as_in_duckdb(value)
                for name, value in zip(frame.columns, row, strict=True)
            )
            for row in frame.collect()
        ]

    def type_of(self, sql: str) -> str:
        ((_, kind),) = self.session.sql(f"SELECT {sql} AS x").dtypes
        return str(kind).replace(",", ", ").upper()


def or_text(read: Callable[[str], Any], value: str | None) -> Any:
    """A moment that Python has no value for stays a text."""
    try:
        return None if value is None else read(value)
    except ValueError:
        return value


def as_in_duckdb(value: Any) -> Any:
    """Wide integers are decimals without digits after the point."""
    is_whole = isinstance(value, decimal.Decimal) and value.as_tuple().exponent == 0
    return int(value) if is_whole else value


def filled(engine: Engine, execute: Callable[..., Any], executemany: Callable[..., Any], mark: str) -> Engine:
    for name, values in EXTREME.items():
        kind = engine.renderer().type_name(KINDS[name])
        spelled = ' COLLATE "C"' if name == "s" else ""  # as a scan has it, whatever a column is compared by
        execute(f"CREATE TEMP TABLE one_{name} ({name} {kind}{spelled})")
        executemany(f"INSERT INTO one_{name} VALUES ({mark})", [[value] for value in values])
        execute(f"CREATE TEMP TABLE two_{name} AS SELECT a.{name}, b.{name} AS {name}2 FROM one_{name} a, one_{name} b")
    return engine


def beyond_python(read: Callable[[str], Any]) -> Any:
    """Reads dates; one that Python has no value for stays a text."""
    from psycopg.adapt import Loader

    class Reader(Loader):
        def load(self, data: Any) -> Any:
            return or_text(read, bytes(data).decode())

    return Reader


@contextmanager
def duckdb_engine(*, optimizer: bool) -> Iterator[Engine]:
    with duckdb.connect() as connection:
        if not optimizer:
            connection.execute("PRAGMA disable_optimizer")
        yield filled(InDuckDB(connection), connection.execute, connection.executemany, "?")


@pytest.fixture(scope="module")
def postgresql(postgresql_url: str) -> Iterator[Engine]:
    import psycopg

    with psycopg.connect(postgresql_url, autocommit=True) as connection, connection.cursor() as cursor:
        connection.adapters.register_loader("date", beyond_python(date.fromisoformat))
        connection.adapters.register_loader("timestamp", beyond_python(datetime.fromisoformat))
        yield filled(InPostgreSQL(connection), cursor.execute, cursor.executemany, "%s")


@pytest.fixture(scope="module")
def in_spark(spark: Any) -> Engine:
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    for name, values in EXTREME.items():
        kind = Spark().type_name(KINDS[name])
        rows = [(exact(value) if name == "w" and value is not None else value,) for value in values]
        session.createDataFrame(rows, f"{name} {kind}").write.mode("overwrite").saveAsTable(f"one_{name}")
        pairs = session.sql(f"SELECT a.{name}, b.{name} AS {name}2 FROM one_{name} AS a CROSS JOIN one_{name} AS b")
        pairs.write.mode("overwrite").saveAsTable(f"two_{name}")
    engine = InSpark(session)
    terms = [
        (Func(operation, arguments, kind), arguments)
        for operation, number in CASES
        if (operation, number) not in REFUSED_BY["spark"]
        for arguments, kind, _ in [EXAMPLES[operation][number]]
    ]
    terms += [
        (TryCast(field(source), KINDS[target]), (field(source),))
        for source, target in CASTS
        if source + target not in CASTS_REFUSED
    ]
    constants = [Spark().term(plain_constant(value, kind)) for value, kind in CONSTANTS]
    engine.ask_together([written(engine, *term) for term in terms] + [([sql], "") for sql in constants])
    return engine


IN_SPARK = pytest.param("in_spark", marks=pytest.mark.spark)


@pytest.fixture(scope="module", params=["optimizer on", "optimizer off", "postgresql", IN_SPARK])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if not request.param.startswith("optimizer"):
        yield request.getfixturevalue(request.param)
    else:
        with duckdb_engine(optimizer=request.param == "optimizer on") as engine:
            yield engine


def columns_of(term: Term) -> set[str]:
    own = {term.name} if isinstance(term, Field) else set()
    return own.union(*map(columns_of, parts_of(term)))


def run(engine: Engine, term: Term, arguments: tuple[Term, ...]) -> list[tuple[Any, ...]]:
    """What the engine makes of the arguments, beside the arguments."""
    return engine.rows(select_list(*written(engine, term, arguments)))


def written(engine: Engine, term: Term, arguments: tuple[Term, ...]) -> tuple[list[str], str]:
    names = sorted({name.rstrip("2") for part in arguments for name in columns_of(part)})
    source = f" FROM {', '.join(f'two_{name}' for name in names)}" if names else ""
    return [engine.renderer({"salt": 42}).term(part) for part in (term, *arguments)], source


def select_list(columns: list[str], source: str) -> str:
    return f"SELECT {', '.join(columns)}{source} LIMIT 5000"


REFUSED = {
    *((operation, 0) for operation in ("reverse", "levenshtein", "glob", "double %", "strptime")),
    *(("json_extract_string", number) for number in range(3)),
    *((f"regexp_{name}", 0) for name in ("matches", "full_match", "replace", "extract")),
}
REFUSED_BY: dict[str, set[tuple[str, int]]] = {
    "duckdb": set(),
    "postgresql": {*REFUSED, ("log2", 0), ("pow", 1)},  # an exponent that is no constant
    "spark": REFUSED,
}
"""An operation and the number of its example."""
CASTS_REFUSED = {"xs", "si", "sw", "sx", "sc", "sb", "sd", "sm"}
CASTS_REFUSED_BY = {"duckdb": set[str](), "postgresql": CASTS_REFUSED, "spark": CASTS_REFUSED}


CASES = [(operation, number) for operation, examples in EXAMPLES.items() for number in range(len(examples))]


@pytest.mark.parametrize(("operation", "number"), CASES)
def test_operations_keep_their_rule(operation: str, number: int, engine: Engine) -> None:
    arguments, kind, rule = EXAMPLES[operation][number]
    if (operation, number) in REFUSED_BY[engine.name]:
        with pytest.raises(Unsupported, match=r"on (PostgreSQL|Spark)"):
            run(engine, Func(operation, arguments, kind), arguments)
        return
    for found, *values in run(engine, Func(operation, arguments, kind), arguments):
        if operation not in OPEN and None in values:
            assert found is None, values
        elif rule is not None:
            assert equal(found, rule(*values)), (values, found)


@pytest.mark.parametrize("name", ["postgresql", IN_SPARK])
def test_others_are_as_duckdb_where_a_rule_names_it(name: str, request: pytest.FixtureRequest) -> None:
    """And on all values that Python has no rule for."""
    other: Engine = request.getfixturevalue(name)
    with duckdb_engine(optimizer=True) as model:
        for operation, number in CASES:
            arguments, kind, rule = EXAMPLES[operation][number]
            if rule is None and (operation, number) not in REFUSED_BY[other.name] and operation not in HASHES:
                term = Func(operation, arguments, kind)
                found, wanted = (by_arguments(run(engine, term, arguments)) for engine in (other, model))
                assert found.keys() == wanted.keys()
                for values, value in wanted.items():
                    beyond_python = isinstance(value, str) and isinstance(kind, Date | Timestamp)
                    assert beyond_python or equal(found[values], value), (operation, values, found[values], value)


HASHES = ("keyed hash", "one in 32")


def by_arguments(rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    return {repr(tuple(map(str, values))): found for found, *values in rows}


def equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and wanted is not None:
        return math.isclose(found, wanted, rel_tol=1e-15) or (math.isnan(found) and math.isnan(wanted))
    return bool(found == wanted)


@pytest.mark.parametrize("kind", "isdb")
def test_different_values_have_different_hashes(kind: str, engine: Engine) -> None:
    """NULL too: groups may be known by their hashes alone."""
    column = field(kind)
    found = run(engine, apply("keyed hash", Blank("salt"), Constant(1, Integer()), column), (column,))
    assert len({hashed for hashed, _ in found}) == len(EXTREME[kind])


# -- casts, choices, names --------------------------------------------------------------------------------------------


def one(engine: Engine, term: Term) -> Any:
    return engine.rows(select_list([engine.renderer().term(term)], ""))[0][0]


NUMBERS_AND_TEXTS, MOMENTS_AND_TEXTS = "iwxcbs", "dms"
CASTS = [(a, b) for kinds in (NUMBERS_AND_TEXTS, MOMENTS_AND_TEXTS) for a in kinds for b in kinds]


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_casts_that_may_not_fit_give_null(source: str, target: str, engine: Engine) -> None:
    column = field(source)
    if source + target in CASTS_REFUSED_BY[engine.name]:
        with pytest.raises(Unsupported, match=r"on (PostgreSQL|Spark)"):
            run(engine, TryCast(column, KINDS[target]), (column,))
        return
    for found, value in run(engine, TryCast(column, KINDS[target]), (column,)):
        if value is None:
            assert found is None
        elif target == "i" and source in ("x", "w", "c"):
            assert found == whole_in_64_bits(value), value


def whole_in_64_bits(value: Any, most: int = LONG) -> int | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    half = decimal.ROUND_HALF_UP if isinstance(value, decimal.Decimal) else decimal.ROUND_HALF_EVEN
    rounded = int(exact(value).to_integral_value(half))
    return rounded if -most - 1 <= rounded <= most else None


CONSTANTS: list[tuple[Any, Kind]] = [
    *((value, Integer()) for value in EXTREME["i"]),
    *((value, WIDE) for value in EXTREME["w"]),
    *((value, Double()) for value in FINITE if value is None or value == value),
    *((value, CENTS) for value in EXTREME["c"]),
    *((value, Text()) for value in [*EXTREME["s"], "it's", 'a"b', "\\", "--", "/*", "\u2028"]),
    *((value, Date()) for value in EXTREME["d"]),
    *((value, Timestamp()) for value in EXTREME["m"]),
    *((value, Boolean()) for value in EXTREME["b"]),
]


@pytest.mark.parametrize(("value", "kind"), CONSTANTS, ids=repr)
def test_constants_are_what_they_are(value: Any, kind: Kind, engine: Engine) -> None:
    constant = plain_constant(value, kind)
    assert one(engine, constant) == value
    assert engine.type_of(engine.renderer().term(constant)) == engine.renderer().type_name(kind)


def plain_constant(value: Any, kind: Kind) -> Constant:
    return Constant(Fraction(value) if isinstance(value, float | decimal.Decimal) else value, kind)


def test_names_are_quoted(engine: Engine) -> None:
    odd = 'a"; DROP TABLE x --'
    query = Select((Alias(Field(odd, odd), odd),), Subquery(Select((Alias(integer(1), odd),)), odd))
    assert engine.rows(engine.renderer().query(query)) == [(1,)]


def test_a_let_computes_its_values_once(engine: Engine) -> None:
    squared = Let((apply("+", double(1), double(2), kind=Double()),), apply("*", Operand(0), Operand(0), kind=Double()))
    assert one(engine, Let((squared,), apply("-", Operand(0), double(1), kind=Double()))) == 8
    assert engine.renderer().term(squared).count("2.0") == 1


def test_a_case_without_an_answer_is_null(engine: Engine) -> None:
    assert one(engine, Case(((Constant(False, Boolean()), integer(1)),), NULL)) is None


def test_a_clamp_hides_nothing_from_duckdb() -> None:
    """What it knows of a column makes its counts and sums faster: that none is NULL, and between which two they lie."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT CAST(n AS DECIMAL(9, 2)) AS x FROM range(100) AS _(n)")
        clamped = DuckDB().term(clamp(Field("x", kind=Decimal(9, 2)), integer(5), integer(50)))
        known = connection.execute(f"SELECT stats({clamped}) FROM t LIMIT 1").fetchone()
        assert known is not None
        assert (known[0]["has_null"], known[0]["min"], known[0]["max"]) == (False, 0, 99)
        connection.execute("INSERT INTO t VALUES (NULL)")
        found = connection.execute(f"SELECT min(y), max(y), count(y) FROM (SELECT {clamped} AS y FROM t)").fetchone()
    assert found == (5, 50, 100)


# -- what is left out because a value lies between two numbers ---------------------------------------------------------

BOUNDS = [(0, 500), (-3, 7), (0, 0), (-(2**61), 2**61), (-1e308, 1e308), (0, 5e-324), (-5e-324, 0.5), (0, 1e16)]
TENTH = Fraction(0.1)


@pytest.mark.parametrize("bounds", BOUNDS, ids=repr)
def test_what_is_clamped_twice_is_clamped_and_rounded_the_same(bounds: tuple[float, float], engine: Engine) -> None:
    """A column between its bounds, and its product with another, as sums read them: in fixed point."""
    low, high = map(Fraction, bounds)
    held = [Alias(finite_clamp(field(name), double(low), double(high)), name) for name in ("x", "x2")]
    raw = [Alias(field("x"), "raw"), Alias(field("x2"), "raw2")]
    product = apply("*", field("x"), apply("-", double(1), field("x2"), kind=Double()), kind=Double())
    once_more = [
        Alias(finite_clamp(value, double(low), double(high)), f"clamped{place}")
        for place, value in enumerate((field("x"), product))
    ]
    tenths = [apply("*", column.value, double(TENTH), kind=Double()) for column in once_more]
    quanta = [
        quantum
        for place, tenth in enumerate(tenths)
        for quantum in (
            Alias(TryCast(tenth, Integer()), f"long{place}"),
            Alias(TryCast(tenth, SHORT), f"short{place}"),
            Alias(TryCast(apply("round", tenth, kind=Double()), Integer()), f"away{place}"),
        )
    ]
    below = Select((*raw, *held), Table("two_x"))
    names = [*fields(["raw", "raw2"]), *once_more, *quanta]
    for x, x2, *found in engine.rows(engine.renderer().query(select(names, below))):
        clamped, other = (clamped_to(value, *bounds) for value in (x, x2))
        multiplied = None if clamped is None or other is None else clamped_to(clamped * (1 - other), *bounds)
        wanted = [clamped, multiplied]
        wanted += [
            None if value is None else whole for value in (clamped, multiplied) for whole in wholes((value or 0) * 0.1)
        ]
        assert all(map(equal, found, wanted)), (x, x2, found, wanted)


def wholes(value: float) -> tuple[int | None, ...]:
    return whole_in_64_bits(value), whole_in_64_bits(value, most=2**31 - 1), whole_in_64_bits(half_away(value))


def clamped_to(value: float | None, low: float, high: float) -> float | None:
    return None if value is None or not math.isfinite(value) else float(min(max(value, low), high))


# -- folds and queries ------------------------------------------------------------------------------------------------


FOLDED: dict[str, tuple[Term, ...]] = {
    "count": (),
    "sum": (N,),
    "sum of quanta": (C,),
    "min": (S,),
    "max": (S,),
    "bool_or": (B,),
    "bool_and": (B,),
    "collect": (N,),
}
PLACES: dict[str, tuple[Term, ...]] = {
    **dict.fromkeys(("row_number", "rank", "dense_rank", "percent_rank", "cume_dist"), ()),
    "ntile": (integer(3),),
    **dict.fromkeys(("lag", "lead", "first_value", "last_value"), (N,)),
    "nth_value": (N, integer(2)),
}


def test_every_fold_is_tried() -> None:
    assert {*FOLDED, *PLACES} == FOLDS.keys()


@pytest.mark.parametrize("name", FOLDED)
def test_folds(name: str, engine: Engine) -> None:
    fold = AggFunc(
        name, FOLDED[name], order_by=(Ordered(N, descending=True, nulls_first=True),) if name == "collect" else ()
    )
    column = next(iter(columns_of(fold)), "i")
    (found,) = engine.rows(engine.renderer().query(Select((Alias(fold, "f"),), Table(f"one_{column}"))))[0]
    values = [value for value in EXTREME[column] if value is not None]
    wanted = {
        "count": len(EXTREME["i"]),
        "sum": sum(values) if column == "i" else None,
        "sum of quanta": sum(values) * 100 if column == "c" else None,
        "min": min(values),
        "max": max(values),
        "bool_or": True,
        "bool_and": False,
        "collect": [None, *sorted(values, reverse=True)],
    }
    assert found == wanted[name]


@pytest.mark.parametrize("most", [1, 2**20, 2**20 + 1, 2**40, 2**40 + 1, 2**61])
def test_sums_are_exact_however_large_the_numbers(most: int, engine: Engine) -> None:
    """Alone, of some rows, and in a window: an engine may sum small numbers in another way."""
    below = select([Alias(clamp(N, integer(-most), integer(most)), "v")], Select((Alias(N, "i"),), Table("one_i")))
    value = Field("v")
    some = AggFunc("sum", (value,), where=apply("<", value, integer(7)), kind=WIDE)
    windowed = select([Alias(WindowFunc(total(value), (apply("is null", value),)), "w"), *fields(["v"])], below)
    values = [min(max(number, -most), most) for number in EXTREME["i"] if number is not None]
    whole, part = sum(values), sum(number for number in values if number < 7)
    sums = select([Alias(total(value), "t"), Alias(some, "s")], below)
    assert engine.rows(engine.renderer().query(sums)) == [(whole, part)]
    assert {found for found, number in engine.rows(engine.renderer().query(windowed)) if number is not None} == {whole}


@pytest.mark.parametrize(("precision", "scale"), [(4, 2), (18, 0), (18, 6), (18, 8), (8, 8)])
def test_sums_of_decimals_are_exact(precision: int, scale: int, engine: Engine) -> None:
    """Of the largest and the least that clamped decimals can be, in the decimals that are summed as they are."""
    kind, most = Decimal(precision, scale), min(10**precision - 1, 2**40)
    numbers = [-most, -1, 1, 7, *[most] * 50]
    listed = Values(("v",), (kind,), (*((Fraction(number, 10**scale),) for number in numbers), (None,)))
    summed = Alias(AggFunc("sum of quanta", (Field("v", kind=kind),), kind=WIDE), "t")
    assert engine.rows(engine.renderer().query(select([summed], listed))) == [(sum(numbers),)]
    nothing = select([summed], listed, apply("is null", Field("v")))
    assert engine.rows(engine.renderer().query(nothing)) == [(None,)]


def test_short_numbers_are_summed_in_64_bits(engine: Engine) -> None:
    most = 2**30
    short = Alias(cast(clamp(N, integer(-most), integer(most)), SHORT), "v")
    sums = select([Alias(short_total(Field("v")), "t")], Select((short,), Table("one_i")))
    assert engine.rows(engine.renderer().query(sums)) == [
        (sum(min(max(number, -most), most) for number in EXTREME["i"] if number is not None),)
    ]
    nothing = select([Alias(short_total(Field("v")), "t")], Select((short,), Table("one_i"), apply("is null", N)))
    assert engine.rows(engine.renderer().query(nothing)) == [(None,)]


ROWS_OF_A_UNIT = (0, 1, 11, 2**32, 2**33 - 1)


@pytest.mark.parametrize("rows", [1, 10, 2**20, 2**20 + 1, 2**31 - 1])
@pytest.mark.parametrize("most", [2**30, 2**40], ids=["short", "long"])
def test_sums_of_a_unit_are_scaled_exactly(most: int, rows: int, engine: Engine) -> None:
    """However many rows it has, of those that docs/proofs/bounding.md speaks of, and however large its values are."""
    measure = SumValues(argument=Column("x", Integer()), quantum=Fraction(1), low=-most, high=most, centre=0)
    sums = [
        (sign * max(number * most - less, 0) if number else None, number)
        for number in ROWS_OF_A_UNIT
        for sign in (1, -1)
        for less in (0, 1, number // 2 + 1)
    ]
    kind = Integer() if most == 2**30 else Decimal(38, 0)
    partials = Values(("m", "m_count"), (kind, Integer()), tuple(sums))
    scaled = select([*fields(["m", "m_count"]), Alias(measure.bounded("m", rows), "b")], partials)
    for summed, number, found in engine.rows(engine.renderer().query(scaled)):
        wanted = Fraction(0) if not number else Fraction(int(summed)) * min(Fraction(rows, number), 1)
        assert found == int(abs(wanted) + Fraction(1, 2)) * (1 if wanted >= 0 else -1), (summed, number)


@pytest.mark.parametrize("name", PLACES)
def test_places(name: str, engine: Engine) -> None:
    over = WindowFunc(AggFunc(name, PLACES[name]), (apply("is null", N),), (Ordered(N),))
    rows = engine.rows(engine.renderer().query(Select((Alias(N, "i"), Alias(over, "f")), Table("one_i"))))
    ordered = sorted(value for value in EXTREME["i"] if value is not None)
    found = {value: place for value, place in rows if value is not None}
    if name in ("row_number", "rank", "dense_rank"):
        assert [found[value] for value in ordered] == list(range(1, len(ordered) + 1))
    if name == "lag":
        assert [found[value] for value in ordered] == [None, *ordered[:-1]]


def test_queries(engine: Engine) -> None:
    numbers = Values(("n", "t"), (Integer(), Text()), ((1, "a"), (None, "b"), (3, None)))
    more = SetOperation("UNION ALL", select(fields(["n"]), numbers), select([Alias(Field("k"), "n")], Series(2, "k")))
    query = With((CTE("numbers", more),), Select((Alias(count(Field("n")), "c"),), Table("numbers")))
    assert engine.rows(engine.renderer().query(query)) == [(4,)]
    assert tables_read(query) == {"numbers"}
    empty = Values(("n", "t"), (Integer(), CENTS), ())
    assert engine.rows(engine.renderer().query(empty)) == []
    there = Select((Alias(Exists(Select((), Subquery(numbers, "x"))), "e"),))
    assert engine.rows(engine.renderer().query(there)) == [(True,)]


def test_a_full_join_needs_an_equality_on_postgresql() -> None:
    sides = (Subquery(Select((Alias(integer(1), "a"),)), "x"), Subquery(Select((Alias(integer(1), "b"),)), "y"))
    equal, less = (apply(sign, Field("a"), Field("b")) for sign in ("=", "<"))
    assert "FULL JOIN" in PostgreSQL().query(Select((), Joined("FULL", *sides, apply("and", less, equal))))
    with pytest.raises(Unsupported, match="on PostgreSQL a FULL JOIN"):
        PostgreSQL().query(Select((), Joined("FULL", *sides, less)))


def test_long_names_stay_apart_on_postgresql(postgresql: Engine) -> None:
    """The engine cuts names off at 63 bytes."""
    one, other = ("x" * 70 + end for end in "ab")
    below = Subquery(Select((Alias(integer(1), one), Alias(integer(2), other))), "below")
    query = Select((Alias(Field(other), "found"),), below)
    assert postgresql.rows(postgresql.renderer().query(query)) == [(2,)]


OF_TEXTS = [name for name, examples in EXAMPLES.items() if any(S in arguments for arguments, *_ in examples)]


@pytest.mark.parametrize("operation", OF_TEXTS)
def test_no_function_needs_a_text_that_is_there(operation: str) -> None:
    """Where every text is NULL an optimizer knows it, and computes with that: one person's text must not decide."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE one_s (s VARCHAR); INSERT INTO one_s VALUES (NULL)")
        for arguments, kind, _ in EXAMPLES[operation]:
            if S in arguments and columns_of(Func(operation, arguments)) == {"s"}:
                held = Case(((apply("<=", apply("bytes", S), integer(9)), S),), NULL)
                below = Select((Alias(held, "s"),), Table("one_s"))
                value = Func(operation, arguments, kind)
                condition = apply("=", value, text("f")) if kind == Text() else apply("is null", value)
                connection.execute(DuckDB().query(Select((Alias(count(), "n"),), Subquery(below, "x"), condition)))


def test_what_is_too_long_is_refused() -> None:
    long = Select((Alias(text("x" * 1_000_000), "x"),))
    twice: Any = long
    for _ in range(6):
        twice = SetOperation("UNION ALL", twice, twice)
    with pytest.raises(Unsupported, match="engine SQL would be longer"):
        DuckDB().query(twice)
