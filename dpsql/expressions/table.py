"""The closed table of all scalar functions, with the parser's nodes and names for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions import arithmetic, date_arithmetic, dates, logic, math, patterns, text

if TYPE_CHECKING:
    from dpsql.expressions.tree import Function

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for module in (arithmetic, logic, patterns, math, text, dates, date_arithmetic)
    for function in module.FUNCTIONS
}

THIS = ("this",)
PAIR = ("this", "expression")

# Which function a node is, and under which names the node keeps its arguments, in order.
NODES: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Mul: ("*", PAIR),
    exp.Div: ("/", PAIR),
    exp.IntDiv: ("//", PAIR),
    exp.Mod: ("%", PAIR),
    exp.BitwiseAnd: ("&", PAIR),
    exp.BitwiseOr: ("|", PAIR),
    exp.BitwiseXor: ("XOR", PAIR),
    exp.EQ: ("=", PAIR),
    exp.NEQ: ("<>", PAIR),
    exp.LT: ("<", PAIR),
    exp.LTE: ("<=", PAIR),
    exp.GT: (">", PAIR),
    exp.GTE: (">=", PAIR),
    exp.NullSafeEQ: ("IS NOT DISTINCT FROM", PAIR),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", PAIR),
    exp.Not: ("NOT", THIS),
    exp.Coalesce: ("COALESCE", ("this", "expressions")),
    exp.Nullif: ("NULLIF", PAIR),
    exp.Least: ("LEAST", ("this", "expressions")),
    exp.Greatest: ("GREATEST", ("this", "expressions")),
    exp.Abs: ("ABS", THIS),
    exp.Sign: ("SIGN", THIS),
    exp.Floor: ("FLOOR", THIS),
    exp.Ceil: ("CEIL", THIS),
    exp.Trunc: ("TRUNC", ("this", "decimals")),
    exp.Round: ("ROUND", ("this", "decimals")),
    exp.WidthBucket: ("WIDTH_BUCKET", ("this", "min_value", "max_value", "num_buckets")),
    exp.Sqrt: ("SQRT", THIS),
    exp.Cbrt: ("CBRT", THIS),
    exp.Ln: ("LN", THIS),
    exp.Exp: ("EXP", THIS),
    exp.Pow: ("POWER", PAIR),
    exp.Sin: ("SIN", THIS),
    exp.Cos: ("COS", THIS),
    exp.Tan: ("TAN", THIS),
    exp.Asin: ("ASIN", THIS),
    exp.Acos: ("ACOS", THIS),
    exp.Atan: ("ATAN", THIS),
    exp.Atan2: ("ATAN2", PAIR),
    exp.Degrees: ("DEGREES", THIS),
    exp.Radians: ("RADIANS", THIS),
    exp.Pi: ("PI", ()),
    exp.SimilarTo: ("SIMILAR TO", PAIR),
    exp.RegexpLike: ("REGEXP_MATCHES", ("this", "expression", "flag")),
    exp.RegexpFullMatch: ("REGEXP_FULL_MATCH", ("this", "expression", "options")),
    exp.Glob: ("GLOB", PAIR),
    exp.RegexpReplace: ("REGEXP_REPLACE", ("this", "expression", "replacement", "modifiers")),
    exp.RegexpExtract: ("REGEXP_EXTRACT", ("this", "expression", "group")),
    exp.Lower: ("LOWER", THIS),
    exp.Upper: ("UPPER", THIS),
    exp.Reverse: ("REVERSE", THIS),
    exp.Length: ("LENGTH", THIS),
    exp.Substring: ("SUBSTRING", ("this", "start", "length")),
    exp.Left: ("LEFT", PAIR),
    exp.Right: ("RIGHT", PAIR),
    exp.Replace: ("REPLACE", ("this", "expression", "replacement")),
    exp.SplitPart: ("SPLIT_PART", ("this", "delimiter", "part_index")),
    exp.StrPosition: ("STRPOS", ("this", "substr")),
    exp.Levenshtein: ("LEVENSHTEIN", PAIR),
    exp.MD5: ("MD5", THIS),
    exp.Ascii: ("ASCII", THIS),
    exp.Unicode: ("UNICODE", THIS),
    exp.StartsWith: ("STARTS_WITH", PAIR),
    exp.EndsWith: ("ENDS_WITH", PAIR),
    exp.Contains: ("CONTAINS", PAIR),
    exp.DPipe: ("||", PAIR),
    exp.Concat: ("CONCAT", ("expressions",)),
    exp.ConcatWs: ("CONCAT_WS", ("expressions",)),
    exp.Year: ("YEAR", THIS),
    exp.Month: ("MONTH", THIS),
    exp.Quarter: ("QUARTER", THIS),
    exp.Day: ("DAY", THIS),
    exp.DayOfMonth: ("DAY", THIS),
    exp.DayOfYear: ("DAYOFYEAR", THIS),
    exp.DayOfWeek: ("DAYOFWEEK", THIS),
    exp.DayOfWeekIso: ("ISODOW", THIS),
    exp.Week: ("WEEK", THIS),
    exp.WeekOfYear: ("WEEK", THIS),
    exp.Hour: ("HOUR", THIS),
    exp.Minute: ("MINUTE", THIS),
    exp.Second: ("SECOND", THIS),
    exp.TimeToUnix: ("EPOCH", THIS),
    exp.LastDay: ("LAST_DAY", THIS),
    exp.DateFromParts: ("MAKE_DATE", ("year", "month", "day")),
    exp.Dayname: ("DAYNAME", THIS),
    exp.Monthname: ("MONTHNAME", THIS),
    exp.StrToTime: ("STRPTIME", ("this", "format")),
}

# Functions that the parser leaves as they are written.
NAMES = {
    "SUFFIX": "ENDS_WITH",
    "PREFIX": "STARTS_WITH",
    "ORD": "UNICODE",
    "WEEKDAY": "DAYOFWEEK",
    "TRY_STRPTIME": "STRPTIME",
    **{part: part for part in ("DECADE", "CENTURY", "MILLENNIUM", "ISOYEAR", "YEARWEEK")},
}
NAMES_OF_TWO = {"SUFFIX", "PREFIX", "TRY_STRPTIME"}
"""Those with two arguments; the others have one."""
DATE_PARTS = {
    "doy": "DAYOFYEAR",
    "dow": "DAYOFWEEK",
    "weekday": "DAYOFWEEK",
    **{part: part.upper() for part in (*dates.PARTS, "yearweek", "epoch")},
}

# Notes of the parser to its own writer; they say nothing about what the analyst asked.
PARSER_NOTES = {
    *("safe", "typed", "big_int", "coalesce", "ignore_nulls", "null_if_pos_overflow", "date_part_boundary", "_type"),
    "single_replace",
}
