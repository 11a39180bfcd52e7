"""Functions that other systems have and dpsql does not, each with what is written here instead.

They are of PostgreSQL, MySQL, BigQuery, Snowflake, SQL Server, Oracle and DuckDB itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

DATES = {
    "DATE_FORMAT FORMAT_TIMESTAMP": "STRFTIME(day, '%Y-%m')",
    "TO_DATE PARSE_DATE STR_TO_DATE STRPTIME TRY_STRPTIME STR_TO_TIME TO_TIMESTAMP PARSE_TIMESTAMP": (
        # They are answered of constants.
        "CAST(text AS DATE), which reads '2024-01-31'; other spellings in parts: "
        "MAKE_DATE(CAST(SUBSTRING(text, 7, 4) AS INT), CAST(SUBSTRING(text, 4, 2) AS INT), "
        "CAST(LEFT(text, 2) AS INT))"
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
    "ISNULL": "x IS NULL, or COALESCE(x, 0) for a value in its place",
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
    "JSON_EXTRACT JSON_VALUE JSON_EXTRACT_SCALAR GET_JSON_OBJECT GET_PATH JSON_EXTRACT_STRING PARSE_JSON -> ->>": (
        'REGEXP_EXTRACT(text, \'"name": *"([^"]*)"\', 1); or ask the data owner for a column of its own'
    ),
}
NUMBERS = {
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
    "ARG_MAX ARG_MIN MAX_BY MIN_BY": "SELECT x, MAX(y) AS most FROM t GROUP BY x ORDER BY most DESC LIMIT 1",
    "PRODUCT": "EXP(SUM(LN(x)))",
    "ENTROPY": "SELECT x, COUNT(*) FROM t GROUP BY x; it follows from the counts",
    "FIRST FIRST_VALUE LAST LAST_VALUE ARBITRARY ANY_VALUE": (
        "MIN(x), MAX(x) or MODE(x): one person's value cannot be shown"
    ),
    "ARRAY_AGG LIST GROUP_CONCAT STRING_AGG LISTAGG COLLECT_LIST ARRAY_CONCAT_AGG JSON_AGG": (
        "SELECT x, COUNT(*) FROM t GROUP BY x: a list of people's values cannot be shown"
    ),
    "KURTOSIS SKEWNESS MAD": "STDDEV(x), and QUANTILE_CONT(x, [0.1, 0.5, 0.9])",
    "BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR LOGICAL_AND LOGICAL_OR EVERY": "COUNT_IF(condition), beside COUNT(*)",
    "NTILE PERCENT_RANK CUME_DIST": "QUANTILE_CONT(x, [0.25, 0.5, 0.75])",
    "UNNEST EXPLODE": "FROM t JOIN (VALUES (1), (2)) AS v(x) ON TRUE: lists cannot be read",
}
INSTEAD = {
    name: written
    for table in (DATES, CHOICE, TEXTS, NUMBERS, AGGREGATES)
    for names, written in table.items()
    for name in names.split()
}
"""By the name of the function, in capitals, what is written here."""

EXAMPLES = re.compile(r"(?<!')\b(day|text|x)\b(?!')")
OTHERS = re.compile(r"(?<!')\b(a|b|t|year|condition)\b(?!')")
"""Names that stand for something else than the one column which a call is about."""


def written_instead(name: str, call: exp.Expr) -> str:
    """What is written here, about the column that the call is about, where there is just one.

    >>> from sqlglot import parse_one
    >>> written_instead("DATE_FORMAT", parse_one("FOO(visited, 'x')"))
    "STRFTIME(visited, '%Y-%m')"
    """
    from sqlglot import exp

    columns = {column.sql() for column in call.find_all(exp.Column)}
    if len(columns) != 1 or OTHERS.search(INSTEAD[name]):
        return INSTEAD[name]
    return EXAMPLES.sub(lambda _: min(columns), INSTEAD[name])
