"""Why a function is not in the table, said so that the analyst knows what to write instead."""

from __future__ import annotations

import re
from datetime import date
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.format import format_expression, format_name
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Literal, compared_type, type_properties
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dpsql.errors import Place
    from dpsql.expressions.tree import Expression
    from dpsql.schema.types import ColumnType

# -- elsewhere ---------------------------------------------------------------------------------------------------------
# Functions that other systems have and dpsql does not, each with what is written here instead.
#
# They are of PostgreSQL, MySQL, BigQuery, Snowflake, SQL Server, Oracle and DuckDB itself.

DATES = {
    "DATE_FORMAT FORMAT_TIMESTAMP": "STRFTIME(day, '%Y-%m')",
    "TO_DATE PARSE_DATE STR_TO_DATE TRY_STRPTIME STR_TO_TIME TO_TIMESTAMP PARSE_TIMESTAMP": (
        # They are answered with a format.
        "CAST(STRPTIME(text, '%d.%m.%Y') AS DATE)"
    ),
    "DATE_BIN TIMESTAMP_BUCKET DATE_BUCKET TIME_SLICE": "DATE_TRUNC('week', day)",
    "DATEADD DATE_ADD TIMESTAMPADD ADD_MONTHS TIMESTAMP_ADD": "day + INTERVAL 3 MONTH",
    "DATEDIFF TIMESTAMPDIFF TIMESTAMP_DIFF MONTHS_BETWEEN": "DATE_DIFF('day', a, b)",
    "DATE_GETFIELD": "EXTRACT(month FROM day)",
    "UNIX_TIMESTAMP UNIX_SECONDS UNIX_MILLIS": "EPOCH(day)",
}
CHOICE = {
    "IFF IIF": "CASE WHEN condition THEN a ELSE b END",
    "DECODE": "CASE x WHEN 'a' THEN 1 ELSE 0 END",
    "ISNULL": "x IS NULL, or COALESCE(x, 0) to replace it",
    "ISNOTNULL": "x IS NOT NULL",
    "ZEROIFNULL": "COALESCE(x, 0)",
    "NULLIFZERO": "NULLIF(x, 0)",
    "DIV0 DIV0NULL": "a / b, which is NULL where b is 0",
    "CHOOSE FIELD ELT": "CASE x WHEN 1 THEN 'a' WHEN 2 THEN 'b' END",
    "BOOLAND": "a AND b",
    "BOOLOR": "a OR b",
    "BOOLNOT": "NOT a",
}
"""Some are answered with other arguments, or under a dialect that has them."""
TEXTS = {
    "REGEXP_CONTAINS RLIKE REGEX": "REGEXP_MATCHES(text, 'pattern')",
    "REGEXP_SUBSTR REGEXP_EXTRACT_ALL": "REGEXP_EXTRACT(text, 'pattern')",
    "REGEXP_COUNT REGEXP_INSTR": "REGEXP_MATCHES(text, 'pattern')",
    "INITCAP PROPER": "UPPER(LEFT(text, 1)) || LOWER(SUBSTRING(text, 2))",
    "CHARINDEX LOCATE": "STRPOS(text, 'part')",
    "STUFF INSERT": "LEFT(text, 2) || 'new' || SUBSTRING(text, 5)",
    "REPLICATE": "CONCAT(text, text)",
    "SOUNDEX DIFFERENCE EDITDIST3 EDIT_DISTANCE JACCARD JARO_WINKLER_SIMILARITY": "LEVENSHTEIN(text, 'other')",
    "SHA1 SHA256 SHA2 HASH FARM_FINGERPRINT MURMUR_HASH": "MD5(text)",
    "STRING_SPLIT SPLIT STR_SPLIT REGEXP_SPLIT_TO_ARRAY STRING_TO_ARRAY": "SPLIT_PART(text, ',', 1)",
    "JSON_EXTRACT JSON_VALUE JSON_EXTRACT_SCALAR GET_JSON_OBJECT GET_PATH PARSE_JSON -> ->>": (
        "text ->> 'name'; on engines other than DuckDB ask the data owner for separate columns"
    ),
}
NUMBER_FUNCTIONS = {
    "SQUARE": "POWER(x, 2)",
    "LOG1P": "LN(1 + x)",
    "TO_NUMBER VAL": "CAST(x AS DOUBLE)",
}
AGGREGATES = {
    "HISTOGRAM": "SELECT FLOOR(x / 10) * 10 AS bin, COUNT(*) FROM t GROUP BY bin",
    "APPROX_TOP_COUNT APPROX_TOP_K APPROX_TOP_SUM TOP_K TOPK": (
        "SELECT x, COUNT(*) AS n FROM t GROUP BY x ORDER BY n DESC LIMIT 3; MODE(x) for the first"
    ),
    "APPROX_PERCENTILE PERCENTILE PERCENTILE_APPROX RESERVOIR_QUANTILE": "QUANTILE_CONT(x, 0.9)",
    "APPROX_DISTINCT HLL_COUNT HLL NDV UNIQ COUNT_DISTINCT": "COUNT(DISTINCT x)",
    "ARG_MAX MAX_BY": "SELECT x, MAX(y) AS most FROM t GROUP BY x ORDER BY most DESC LIMIT 1",
    "ARG_MIN MIN_BY": "SELECT x, MIN(y) AS least FROM t GROUP BY x ORDER BY least LIMIT 1",
    "PRODUCT": "EXP(SUM(LN(x), contribution_bounds_per_row => (-10, 10)))",
    "ENTROPY": "SELECT x, COUNT(*) FROM t GROUP BY x; it follows from the counts",
    "FIRST FIRST_VALUE LAST LAST_VALUE ARBITRARY ANY_VALUE": (
        "MIN(x) or MAX(x) of numbers and dates, MODE(x) of declared values; one person's value cannot be shown"
    ),
    "ARRAY_AGG LIST GROUP_CONCAT STRING_AGG LISTAGG COLLECT_LIST ARRAY_CONCAT_AGG JSON_AGG": (
        "SELECT x, COUNT(*) FROM t GROUP BY x; lists of people's values cannot be shown"
    ),
    "KURTOSIS SKEWNESS MAD": "STDDEV(x), and QUANTILE_CONT(x, [0.1, 0.5, 0.9])",
    "BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR LOGICAL_AND LOGICAL_OR EVERY": "COUNT_IF(condition), beside COUNT(*)",
    "NTILE PERCENT_RANK CUME_DIST": "QUANTILE_CONT(x, [0.25, 0.5, 0.75])",
    "UNNEST EXPLODE": "FROM t JOIN (VALUES (1), (2)) AS v(x) ON TRUE: lists are not supported",
}
INSTEAD = {
    name: written
    for table in (DATES, CHOICE, TEXTS, NUMBER_FUNCTIONS, AGGREGATES)
    for names, written in table.items()
    for name in names.split()
}
"""By the name of the function, in capitals, what is written here."""

EXAMPLES = re.compile(r"(?<!')\b(day|text|x)\b(?!')")
OTHERS = re.compile(r"(?<!')\b(a|b|t|year|condition)\b(?!')")
"""Names that stand for something else than the one column which a call is about."""


def written_instead(name: str, call: exp.Expr) -> str:
    """What is written here, about the argument or the column that the call is about, where there is just one.

    >>> from sqlglot import parse_one
    >>> written_instead("DATE_FORMAT", parse_one("FOO(visited, 'x')"))
    "STRFTIME(visited, '%Y-%m')"
    """
    from sqlglot import exp

    columns = {column.sql() for column in call.find_all(exp.Column)}
    arguments = call.expressions if isinstance(call, exp.Anonymous) else list(call.iter_expressions())
    instead = INSTEAD[name]
    if table := table_read(call):
        instead = re.sub(r"\bFROM t\b", lambda _: f"FROM {table}", instead)
    if name in EXTREME_ROW and len(arguments) == 2:
        first, second = (argument.sql(dialect="duckdb") for argument in arguments)
        return re.sub(r"\b[xy]\b", lambda found: first if found[0] == "x" else second, instead)
    if len(arguments) == 1 and columns:
        columns = {arguments[0].sql(dialect="duckdb")}
    return about(min(columns), instead) if len(columns) == 1 else instead


def about(column: str, instead: str) -> str:
    """The same about a column, unless it needs several."""
    return instead if OTHERS.search(instead) else EXAMPLES.sub(lambda _: column, instead)


EXTREME_ROW = frozenset(("ARG_MAX", "MAX_BY", "ARG_MIN", "MIN_BY"))


def table_read(call: exp.Expr) -> str | None:
    """The table that the call's SELECT reads, if it is a single one."""
    select = call.find_ancestor(exp.Select)
    read = None if select is None else select.args.get("from_") or select.args.get("from")
    if read is None or not isinstance(read.this, exp.Table) or select is None or select.args.get("joins"):
        return None
    return read.this.sql(dialect="duckdb")


# -- mismatches --------------------------------------------------------------------------------------------------------
# What to write where two types are compared that do not meet: both are named, with a spelling that works.
#
# age > 'old'           age is an integer, and 'old' is text
# day = '03.05.2024'    '03.05.2024' is not written like a date here

NUMBERS = (Integer, Double, Decimal)
MOMENTS = (Date, Timestamp)
SPOKEN = {
    Integer: "an integer",
    Double: "a number",
    Decimal: "a decimal",
    Text: "text",
    Boolean: "true or false",
    Date: "a date",
    Timestamp: "a timestamp",
}
ORDERED = ("<", "<=", ">", ">=")
SEPARATED = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})")
YEARS = range(1000, 10_000)
DAYS = range(1000_01_01, 9999_12_32)


def mismatch(operator: str, arguments: Sequence[Expression]) -> tuple[str, str] | None:
    """The problem and the way out, where a comparison is between types that do not meet."""
    first, *others = arguments
    for other in others:
        if compared_type([type_properties(first), type_properties(other)]) is None:
            return _problem(first, other), _way_out(operator, first, other)
    return None


def spoken_type(kind: ColumnType) -> str:
    return SPOKEN[type(kind)]


def _problem(left: Expression, right: Expression) -> str:
    for one, other in ((left, right), (right, left)):
        if isinstance(one.type, MOMENTS) and isinstance(other, Literal) and isinstance(other.type, Text):
            return f"{format_expression(other)} is not in the format of {spoken_type(one.type)}"
    kinds = [f"{format_expression(side)} is {spoken_type(side.type)}" for side in (left, right)]
    return ", and ".join(kinds)


def _way_out(operator: str, left: Expression, right: Expression) -> str:
    shown = "=" if operator == "IN" else operator
    for one, other in ((left, right), (right, left)):
        name = format_expression(one)
        match one.type, other:
            case Boolean(), _:
                return f"write  {name}  or  NOT {name}"
            case Date() | Timestamp(), Literal(value) if isinstance(value, str):
                return written_dates(value)
            case Date() | Timestamp(), Literal(value) if isinstance(value, int) and value in YEARS:
                return f"write  YEAR({name}) {shown} {value}"
            case Date() | Timestamp(), Literal(value) if isinstance(value, int) and value in DAYS:
                digits = str(value)
                return f"write  {name} {shown} '{digits[:4]}-{digits[4:6]}-{digits[6:]}'"
            case Text(), _ if isinstance(one, Literal) and isinstance(other.type, NUMBERS):
                return f'write  "{one.value}"  with double quotes if it is a column, or compare numbers'
            case Text(), Literal(value) if isinstance(other.type, NUMBERS) and shown not in ORDERED:
                quoted = f"'{format_expression(other)}'"
                return f"put numbers in quotes: {name} {f'IN ({quoted})' if operator == 'IN' else f'{shown} {quoted}'}"
            case Text(), _ if isinstance(other.type, NUMBERS):
                return f"compare numbers: CAST({name} AS DOUBLE) {shown} {format_expression(other)}"
            case ((Integer() | Double() | Decimal()), Literal(value)) if isinstance(value, str):
                return f"compare it with a number, without quotes: {name} {shown} 10"
    return f"CAST one of them: CAST({format_expression(right)} AS {left.type.name.upper()})"


def written_dates(text: str) -> str:
    """
    >>> written_dates("03.05.2024"), written_dates("05/03/2024"), written_dates("last week")
    ("write  '2024-05-03'", "write  '2024-05-03' or '2024-03-05', whichever you mean", "write it like '2024-01-31'")
    """
    found = SEPARATED.fullmatch(text.strip())
    meant = list(dict.fromkeys(_read(found))) if found else []
    if not meant:
        return "write it like '2024-01-31'"
    dates = " or ".join(f"'{day}'" for day in meant)
    return f"write  {dates}" + ", whichever you mean" * (len(meant) > 1)


def _read(found: re.Match[str]) -> Iterator[date]:
    """Dots stand in dates that begin with the day; other marks in those that begin with the month, too."""
    one, mark, two, year = int(found[1]), found[2], int(found[3]), int(found[4])
    for month, day in ((one, two), (two, one)) if mark != "." else ((two, one),):
        try:
            yield date(year, month, day)
        except ValueError:
            continue


# -- refusals ----------------------------------------------------------------------------------------------------------

CHANCE = ("the answer would depend on chance", "remove it; dpsql adds the noise itself")
CLOCK = ("times of day are not supported there", "write NOW() or CURRENT_DATE, which are the time of asking in UTC")
STATE = ("the answer would depend on earlier queries", "remove it")
SESSION = ("the answer would depend on who asks and where", "write the value itself")
TIMES = (
    "an interval can only be added to or subtracted from a date",
    "write  day + INTERVAL 3 MONTH  or  DATE_DIFF('day', a, b)",
)
WINDOW = "compute it in a subquery with PARTITION BY the unit, or above an aggregate, where every window is supported"
AGGREGATED = frozenset(("COUNT", "SUM", "AVG", "MIN", "MAX", "MEDIAN", "COUNT_IF", "STDDEV", "VARIANCE", "MODE"))
IN_WHERE = (
    "and WHERE looks at one row at a time",
    "to filter groups write HAVING COUNT(*) > 10; to compare rows with it, use a subquery: x > (SELECT AVG(x) FROM t)",
)
IN_AGGREGATE = (
    "and cannot be aggregated in the same SELECT",
    "aggregate first, then again: WITH c AS (SELECT key, COUNT(*) AS n FROM t GROUP BY key) SELECT AVG(n) FROM c",
)
SIMILAR = 0.75
"""So alike is a misspelt name; what is less alike means something else."""
NO_OTHER = "docs/sql.md lists the supported functions"

VOLATILE = {
    CHANCE: "RAND RANDOM UUID GEN_RANDOM_UUID UUIDV4 UUIDV7 SETSEED",
    CLOCK: "CURRENT_TIME LOCALTIME GET_CURRENT_TIME CURRENT_LOCALTIME AGO",
    STATE: "NEXTVAL CURRVAL TXID_CURRENT GETVARIABLE",
    SESSION: "CURRENT_USER CURRENT_VERSION CURRENT_SCHEMA CURRENT_DATABASE CURRENT_SETTING GETENV VERSION",
    TIMES: "INTERVAL",
}
REASONS = {name: reason for reason, names in VOLATILE.items() for name in names.split()}


def refusal(node: exp.Expr, place: Place | None, columns: Iterable[str] = ()) -> Unsupported:
    name = spoken_name(node, place)
    unquoted = [column for column in columns if column.upper().replace(" ", "").startswith(f"{name}(")]
    if isinstance(node, exp.Anonymous) and unquoted:
        return Unsupported(
            f"there is no {name}", at=place, hint=f"the column is written in quotes: {format_name(unquoted[0])}"
        )
    if name in REASONS:
        reason, hint = REASONS[name]
        return Unsupported(f"{name} cannot be used below an aggregate: {reason}", at=place, hint=hint)
    if name in AGGREGATED:
        inside = node.find_ancestor(exp.Where) is not None or _is_named_in_where(node)
        problem, hint = IN_WHERE if inside else IN_AGGREGATE
        return Unsupported(f"{name} is an aggregate, {problem}", at=place, hint=hint)
    if name in INSTEAD:
        return Unsupported(f"there is no {name}", at=place, hint=f"write  {written_instead(name, node)}")
    if isinstance(node, exp.Window):
        return Unsupported("a window cannot be used there", at=place, hint=WINDOW)
    close = get_close_matches(name, FUNCTIONS, n=2, cutoff=SIMILAR)
    hint = "did you mean " + " or ".join(FUNCTIONS[match].takes for match in close) + "?" if close else NO_OTHER
    return Unsupported(f"{name} cannot be used below an aggregate", at=place, hint=hint)


def _is_named_in_where(node: exp.Expr) -> bool:
    """Whether WHERE reads the aggregate by its alias: SELECT COUNT(*) AS n ... WHERE n > 10."""
    select, named = node.find_ancestor(exp.Select), node.find_ancestor(exp.Alias)
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or named is None:
        return False
    return any(column.name.lower() == named.alias.lower() for column in where.find_all(exp.Column))


SIGNS: dict[type[exp.Expr], str] = {
    **dict.fromkeys((exp.Bracket, exp.Array, exp.Slice), "[...]"),
    exp.Struct: "{...}",
    exp.Any: "ANY",
    exp.All: "ALL",
    exp.Star: "*",
    exp.Tuple: "a list in parentheses",
    exp.Lambda: "a lambda",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    **dict.fromkeys((exp.Subquery, exp.Select, exp.Exists, exp.In), "this subquery"),
    exp.AtTimeZone: "AT TIME ZONE",
    exp.Interval: "INTERVAL",
    exp.BitwiseNot: "~",
    **dict.fromkeys((exp.Map, exp.ToMap, exp.VarMap), "MAP {...}"),
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBContains: "@>",
    exp.Dot: "a.b",
}
"""What people call nodes that have no name: a name of the parser's is nobody's word."""
UNNAMED = "this expression"


def spoken_name(node: exp.Expr, place: Place | None) -> str:
    """The name that the analyst wrote; the parser has one name for several functions."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    name = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
    if place is not None and re.search(rf"\b{name}\b", place.text, re.IGNORECASE):
        return name
    if type(node) in SIGNS:
        return SIGNS[type(node)]
    if not isinstance(node, exp.Func):
        return UNNAMED
    if place is None:
        return name
    before, after = place.text[: place.start], place.text[place.start :]
    written = re.match(r"(\w+)\s*\(", after) or re.search(r"(\w+)\s*\(\s*$", before)
    if written:
        return written[1].upper()
    return name if name in REASONS else UNNAMED
