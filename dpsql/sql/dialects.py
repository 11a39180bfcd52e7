"""Functions of other SQL dialects, rewritten to DuckDB's before names are resolved.

IFF(a, b, c)                        IF(a, b, c)
SAFE_DIVIDE(a, b)                   a / NULLIF(b, 0)
TO_CHAR(day, 'YYYY-MM')             STRFTIME(day, '%Y-%m')
DATEADD(month, 3, day)              day + INTERVAL 3 MONTH
x IN UNNEST([1, 2])                 x IN (1, 2)

`dialect=` of connect() says whose grammar is meant where DuckDB's would read something else (BigQuery's backquotes and
DATE_TRUNC(day, MONTH)); what a function computes is DuckDB's, and where the other database would compute something else
the query is refused.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import copied, nodes, nodes_of
from dpsql.sql.parameters import CLOCKS, at_time, reads_clock
from dpsql.sql.syntax import (
    DUCKDB,
    UNTRANSLATED,
    extra_clauses,
    has_aggregate,
    output_name,
    read_expression,
    typed_text,
    with_marks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# -- date formats ------------------------------------------------------------------------------------------------------
# Formats of dates as PostgreSQL and Snowflake write them: 'YYYY-MM' for '%Y-%m'.

FORMATS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MONTH": "%B",
    "MON": "%b",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "DAY": "%A",
    "DY": "%a",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "AM": "%p",
    "PM": "%p",
    "IYYY": "%G",
    "IW": "%V",
    "ID": "%u",
}
"""The codes of TO_CHAR."""
FORMAT = re.compile("|".join(sorted(FORMATS, key=len, reverse=True)) + r'|"[^"]*"|[^A-Za-z"]+|.', re.IGNORECASE)


class Unreadable(Exception):
    """SQL without a meaning here; the message says why, the second argument what to write instead."""


def format_of(form: str) -> str:
    """
    >>> format_of("YYYY-MM")
    '%Y-%m'
    """
    codes = []
    for piece in FORMAT.findall(form):
        if piece.upper() in FORMATS:
            if piece.upper() in ("MONTH", "DAY", "MON", "DY") and not piece.istitle():
                raise Unreadable(f"TO_CHAR does not support {piece}", f"write {piece.title()}, or UPPER(TO_CHAR(...))")
            codes.append(FORMATS[piece.upper()])
        elif piece.isalpha():
            raise Unreadable(f"TO_CHAR does not support {piece}", f"it supports {', '.join(FORMATS)}")
        else:
            codes.append(piece.strip('"').replace("%", "%%"))
    return "".join(codes)


# -- other meanings ----------------------------------------------------------------------------------------------------
# Where the same words mean something else in another database: they are put right, or refused.
#
# bigquery    DATE_TRUNC(day, WEEK)     the Sunday before: DATE_TRUNC('week', day + 1) - 1
# postgres    a / b                     of whole numbers, cut off: refused
# snowflake   FLOAT                     has 64 bits

if TYPE_CHECKING:
    Respelled = Callable[[exp.Expr], exp.Expr]

WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
WIDEST, ABOVE = 38, 9
"""Digits of a numeric above the aggregates, and after its point."""


def _whole_division(node: exp.Expr) -> exp.Expr:
    """Between integers PostgreSQL cuts off the fraction."""
    if any(_is_fraction(side) for side in (node.this, node.expression)):
        return node
    raise Unreadable("in PostgreSQL, / between integers gives an integer", "write a::float / b, or DIV(a, b)")


def _is_fraction(node: exp.Expr) -> bool:
    """Whether it is visibly not an integer."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return not node.is_string and not node.is_int
    if isinstance(node, exp.Cast):
        return node.to.this in (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT, exp.DataType.Type.DECIMAL)
    if isinstance(node, exp.Avg):
        return True
    return isinstance(node, exp.Binary | exp.Neg) and any(map(_is_fraction, node.iter_expressions()))


def _sized(precision: int, scale: int) -> Respelled:
    def rule(node: exp.Expr) -> exp.Expr:
        if node.this == exp.DataType.Type.DECIMAL and not node.expressions:
            sizes = [exp.DataTypeParam(this=exp.Literal.number(size)) for size in (precision, scale)]
            return exp.DataType(this=node.this, expressions=sizes)
        return node

    return rule


def _unsized(node: exp.Expr) -> exp.Expr:
    if node.this == exp.DataType.Type.DECIMAL and not node.expressions:
        if isinstance(node.parent, exp.Cast) and has_aggregate(node.parent.this):
            return exp.DataType.build(f"decimal({WIDEST}, {ABOVE})")
        raise Unreadable("in PostgreSQL, numeric has any number of digits", "write numeric(18, 6)")
    return _wide(node)


def _wide(node: exp.Expr) -> exp.Expr:
    """FLOAT has 64 bits there."""
    return exp.DataType.build("double") if node.this == exp.DataType.Type.FLOAT else node


def _snowflake_type(node: exp.Expr) -> exp.Expr:
    return _sized(38, 0)(_wide(node))


def _sunday_is_one(node: exp.Expr) -> exp.Expr:
    """BigQuery counts days of the week from 1, and weeks from the first Sunday of the year."""
    part, day = node.this.name.upper(), node.expression
    if part == "DAYOFWEEK":
        return exp.Paren(this=exp.Add(this=copied(node), expression=exp.Literal.number(1)))
    if part == "WEEK":
        year, week = (exp.Extract(this=exp.var(unit), expression=copied(day)) for unit in ("DOY", "DOW"))
        begun = exp.Sub(this=exp.Add(this=year, expression=exp.Literal.number(6)), expression=week)
        return exp.Paren(this=exp.IntDiv(this=exp.Paren(this=begun), expression=exp.Literal.number(7)))
    if part == "ISOWEEK":
        return exp.Extract(this=exp.var("WEEK"), expression=day)
    if isinstance(node.this, exp.WeekStart):
        raise Unreadable("only weeks that start on Sunday can be numbered", "write WEEK or ISOWEEK")
    return node


def _week_start(unit: exp.Expr | None) -> int | None:
    """How many days before Monday the week of WEEK, ISOWEEK or WEEK(SATURDAY) begins; None for other units."""
    if isinstance(unit, exp.WeekStart):
        return -WEEKDAYS.index(unit.name.upper()) % 7
    name = unit.name.upper() if unit is not None else ""
    return {"WEEK": 1, "ISOWEEK": 0}.get(name)


def _start_of_week(moment: exp.Expr, before: int) -> exp.Expr:
    """DATE_TRUNC('week', day + 1) - 1 for weeks that begin on Sunday."""
    span = exp.Interval(this=exp.Literal.number(before), unit=exp.var("DAY"))
    shifted = exp.Paren(this=exp.Add(this=moment, expression=span)) if before else moment
    start = exp.TimestampTrunc(this=shifted, unit=exp.var("WEEK"))
    return exp.Paren(this=exp.Sub(this=start, expression=copied(span))) if before else start


def _truncated_date(node: exp.Expr) -> exp.Expr:
    """BigQuery's DATE_TRUNC returns a date."""
    unit = node.args["unit"]
    before = _week_start(unit)
    plain = exp.TimestampTrunc(this=node.this, unit=exp.var(unit.name.upper()))
    found = plain if before is None else _start_of_week(node.this, before)
    return exp.cast(found, "DATE") if isinstance(node, exp.DateTrunc) else found


def _weeks_between(node: exp.Expr) -> exp.Expr:
    """DATE_DIFF(a, b, WEEK) counts the Sundays between."""
    before = _week_start(node.args.get("unit"))
    if before is None:
        return node
    last, first = (_start_of_week(moment, before) for moment in (node.this, node.expression))
    days = exp.DateDiff(this=last, expression=first, unit=exp.var("DAY"))
    return exp.Paren(this=exp.IntDiv(this=days, expression=exp.Literal.number(7)))


def _any_type(node: exp.Expr) -> exp.Expr:
    """Without the parser's note to its own writer."""
    node.set("input_type_preserved", None)
    return node


def _whole_units(node: exp.Expr) -> exp.Expr:
    """TIMESTAMP_DIFF counts whole units, as DATE_SUB of DuckDB does."""
    if node.args.get("unit") is None:
        raise Unreadable("TIMESTAMP_DIFF takes two moments and a unit", "write TIMESTAMP_DIFF(later, earlier, HOUR)")
    unit = exp.Literal.string(node.args["unit"].name.lower())
    return exp.Anonymous(this="DATE_SUB", expressions=[unit, node.expression, node.this])


MEANT: dict[str, dict[type[exp.Expr], Respelled]] = {
    "postgres": {exp.Div: _whole_division, exp.DataType: _unsized},
    "bigquery": {
        exp.Extract: _sunday_is_one,
        exp.DateTrunc: _truncated_date,
        exp.TimestampTrunc: _truncated_date,
        exp.DateDiff: _weeks_between,
        exp.TimestampDiff: _whole_units,
        exp.DataType: _sized(38, 9),
    },
    "snowflake": {
        exp.DataType: _snowflake_type,
        exp.TimestampTrunc: _any_type,
        exp.DateTrunc: _any_type,
    },
}


# -- other words -------------------------------------------------------------------------------------------------------

QUOTED = re.compile("'[^']*'|\"[^\"]*\"")
DIALECTS = ("duckdb", "bigquery", "snowflake", "postgres")
WORDS = (
    *("SAFE_DIVIDE", "DIV0", "NVL", "NVL2", "IFNULL", "IIF", "ZEROIFNULL", "DECODE", "EQUAL_NULL", "COUNTIF"),
    *("TO_CHAR", "TO_DATE", "FORMAT_DATE", "DATEADD", "DATEDIFF", "TO_NUMBER", "TO_DOUBLE", "SAFE_CAST"),
    *("REGEXP_CONTAINS", "x IN UNNEST([1, 2])", "REGR_COUNT", "REGR_AVGX", "REGR_AVGY", "REGR_SXX", "REGR_SYY"),
    *("REGR_SXY", "RANGE_BUCKET", "OVERLAY", "RATIO_TO_REPORT", "TO_TIMESTAMP", "x LIKE ANY ('a%', 'b%')"),
)
"""What the parser knows besides, in the grammar that it is written in; NAMES are those that it leaves as they are."""


def respell(tree: exp.Expr, dialect: str, text: str, now: datetime | None = None) -> None:
    """Rewrites the tree in place. Columns without a name are called by what was written, not by what it became.

    `now` is the time of asking.
    """
    called: dict[tuple[int, int], tuple[exp.Select, str | None]] = {}
    for node in nodes(tree)[::-1]:
        rule = _rule(node, dialect, now)
        if rule is None:
            continue
        item = _item_around(node)
        name = _called(item, text) if item is not None and _place(item) not in called else None
        try:
            new = rule(node)
        except Unreadable as problem:
            why, hint = problem.args
            raise Unsupported(why, at=place_of(node, text), hint=hint) from None
        if new is node:
            continue
        if item is not None:
            called.setdefault(_place(item), (item.parent, name))  # type: ignore[arg-type]
        node.replace(with_marks(new, node))
    for (_, index), (select, name) in called.items():
        item = select.expressions[index]
        if name is not None:
            item.replace(exp.alias_(copied(item), name, quoted=True))


def _rule(node: exp.Expr, dialect: str, now: datetime | None) -> Respelled | None:
    if now is not None and reads_clock(node):
        return partial(_at_time, now=now)
    rule = RULES.get(type(node)) or (NAMES.get(node.name.upper()) if isinstance(node, exp.Anonymous) else None)
    return MEANT.get(dialect, {}).get(type(node)) if rule is None and dialect != "duckdb" else rule


def _at_time(node: exp.Expr, now: datetime) -> exp.Expr:
    if type(node) in CLOCKS and extra_clauses(node, {"sysdate"}):
        raise Unreadable("the time of asking has microseconds and no time zone", "omit the argument: it is in UTC")
    return at_time(node, now)


# -- words of DuckDB ---------------------------------------------------------------------------------------------------
# What DuckDB 2.0 reads and the parser leaves as it is written, or half reads.
#
# name.upper().left(1)          LEFT(UPPER(name), 1)
# ['low', 'high'][i]            CASE i WHEN 1 THEN 'low' WHEN 2 THEN 'high' END
# MAP {'a': 1, 'b': 2}[x]       CASE x WHEN 'a' THEN 1 WHEN 'b' THEN 2 END
# LIST_POSITION(['a', 'b'], x)  CASE x WHEN 'a' THEN 1 WHEN 'b' THEN 2 END
# STRING_SPLIT(s, ',')[2]       SPLIT_PART(s, ',', 2), and NULL beyond the last part
# TRY(CAST(x AS INTEGER))       TRY_CAST(x AS INTEGER)

CHAINED = "_chained"


def unchained(tree: exp.Expr) -> exp.Expr:
    """Calls in the manner of methods become plain ones, in place: the function is read again with all its arguments."""
    for node in nodes_of(tree, exp.Dot)[::-1]:
        call = node.expression
        if isinstance(call, exp.Anonymous) and isinstance(call.this, str) and call.this.isidentifier():
            values = [_as_columns(node.this), *call.expressions]
            names = [
                DUCKDB.generate(value) if isinstance(value, exp.Literal) else f"{CHAINED}{place}"
                for place, value in enumerate(values)
            ]
            try:
                plain = read_expression(f"{call.this}({', '.join(names)})")
            except SqlglotError:
                continue
            held = {f"{CHAINED}{place}": value for place, value in enumerate(values)}
            for column in nodes_of(plain, exp.Column):
                if column.name in held:
                    column.replace(held[column.name])
            node.replace(plain)
            tree = plain if node is tree else tree
    return tree


def _as_columns(node: exp.Expr) -> exp.Expr:
    """The parser takes the columns before a dot for parts of one long name."""
    if isinstance(node, exp.Identifier):
        return with_marks(exp.Column(this=copied(node)), node)
    if (
        isinstance(node, exp.Dot)
        and isinstance(node.this, exp.Identifier)
        and isinstance(node.expression, exp.Identifier)
    ):
        return with_marks(exp.Column(this=copied(node.expression), table=copied(node.this)), node)
    if not isinstance(node, exp.Column):
        for part in [*node.iter_expressions()]:
            found = _as_columns(part)
            if found is not part:
                part.replace(found)
    return node


def _chosen_from(key: exp.Expr, pairs: Sequence[tuple[exp.Expr, exp.Expr]]) -> exp.Expr:
    """CASE key WHEN a THEN b ... END"""
    return exp.Case(this=key, ifs=[exp.If(this=copied(wanted), true=copied(then)) for wanted, then in pairs])


def _taken(node: exp.Expr) -> exp.Expr:
    """An element of a list that is written down, or of a text that is split."""
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        return node
    index, values = node.expressions[0], node.this.expressions
    if isinstance(node.this, exp.Split):
        return _split_part(node.this, index) or node
    if not isinstance(node.this, exp.Array) or not values or any(isinstance(value, exp.Query) for value in values):
        return node
    first = [(exp.Literal.number(place), typed_text(value)) for place, value in enumerate(values, 1)]
    last = [(exp.Literal.number(f"-{place}"), typed_text(value)) for place, value in enumerate(values[::-1], 1)]
    return _chosen_from(exp.cast(index, "BIGINT"), [*first, *last])


def _split_part(split: exp.Expr, index: exp.Expr) -> exp.Expr | None:
    text, delimiter = split.this, split.expression
    place = int(index.name) if isinstance(index, exp.Literal) and index.is_int else 0
    if place < 1 or extra_clauses(split, {"this", "expression"}):
        return None
    if not (isinstance(delimiter, exp.Literal) and delimiter.is_string and delimiter.name) or text.find(exp.SplitPart):
        return None  # a split of a split of a split would be written out many times
    part = exp.SplitPart(this=text, delimiter=delimiter, part_index=exp.Literal.number(place))
    if place == 1:
        return part
    without = exp.Replace(this=copied(text), expression=copied(delimiter), replacement=exp.Literal.string(""))
    removed = exp.Sub(this=exp.Length(this=copied(text)), expression=exp.Length(this=without))
    enough = exp.GTE(this=removed, expression=exp.Literal.number((place - 1) * len(delimiter.name)))
    return exp.Case(ifs=[exp.If(this=enough, true=part)])


def _looked_up(node: exp.Expr) -> exp.Expr:
    """MAP {'a': 1}[x], which the parser reads as a map of {'a': 1}[x]."""
    bracket = node.this
    entries = bracket.this.expressions if isinstance(bracket, exp.Bracket) else []
    if not entries or len(bracket.expressions) != 1 or not isinstance(bracket.this, exp.Struct):
        return node
    if not all(isinstance(entry, exp.PropertyEQ) for entry in entries):
        return node
    pairs = [(typed_text(entry.this), typed_text(entry.expression)) for entry in entries]
    return _chosen_from(bracket.expressions[0], pairs)


def _position_in(values: exp.Expr, value: exp.Expr) -> exp.Expr:
    listed = values.expressions if isinstance(values, exp.Array) else []
    if not listed or any(isinstance(part, exp.Null) for part in listed):
        return exp.Anonymous(this="LIST_POSITION", expressions=[values, value])
    return _chosen_from(value, [(typed_text(part), exp.Literal.number(place)) for place, part in enumerate(listed, 1)])


def _tried(node: exp.Expr) -> exp.Expr:
    """A cast that fails is NULL here, and not all that is computed from it: nothing else may stand in TRY."""
    cast = node.this
    if type(cast) not in (exp.Cast, exp.TryCast) or not isinstance(cast.this, exp.Column):
        return node
    return exp.TryCast(this=cast.this, to=cast.to)


def _printed(node: exp.Expr) -> exp.Expr:
    """PRINTF('%s-%d', a, b) is FORMAT('{}-{}', a, b)."""
    form, *values = node.expressions
    if (
        not isinstance(form, exp.Literal)
        or set(re.findall("%.?", form.name)) - {"%s", "%d"}
        or set(form.name) & set("{}")
    ):
        return node
    return exp.Format(this=exp.Literal.string(re.sub("%[sd]", "{}", form.name)), expressions=values)


def _item_around(node: exp.Expr) -> exp.Expr | None:
    """The item of a SELECT list that a node stands in, or is."""
    around: exp.Expr | None = node
    while around is not None and not isinstance(around.parent, exp.Select):
        around = around.parent
    return around if around is not None and around.arg_key == "expressions" else None


def _place(item: exp.Expr) -> tuple[int, int]:
    return id(item.parent), item.index or 0


def _called(item: exp.Expr, text: str) -> str | None:
    """What a column without a name is called: its text; None where it has a name, or its text is not to be found."""
    if not isinstance(item, exp.Alias | exp.Subquery) and any(map(reads_clock, nodes(item))):
        return output_name(item)  # the parser does not say where its words stand
    place = place_of(item, text)
    if isinstance(item, exp.Alias | exp.Column | exp.Subquery) or item.is_star or place is None:
        return None
    end = place.end + 1
    while _is_open(written := text[place.start : end]) and end < len(text):
        end += 1
    # A name that is a column's own would be taken for it.
    return None if written.isidentifier() else " ".join(written.split())


def _is_open(written: str) -> bool:
    bare = QUOTED.sub("", written)
    return bare.count("(") > bare.count(")")


def _call(name: str, count: int, make: Callable[..., exp.Expr]) -> dict[str, Respelled]:
    """A function that the parser does not translate."""

    def rule(node: exp.Expr) -> exp.Expr:
        return make(*node.expressions) if len(node.expressions) == count else node

    return {name: rule}


def _if(condition: exp.Expr, yes: exp.Expr, no: exp.Expr) -> exp.Expr:
    return exp.If(this=condition, true=yes, false=no)


NAMES: dict[str, Respelled] = {
    **_call("IFF", 3, _if),
    **_call("ISNULL", 1, lambda value: exp.Is(this=value, expression=exp.Null())),
    **_call("NOTNULL", 1, lambda value: exp.Not(this=exp.Is(this=value, expression=exp.Null()))),
    **_call("STD", 1, lambda value: exp.Stddev(this=value)),
    **_call("VAR", 1, lambda value: exp.Variance(this=value)),
    **_call("MAKE_DATE", 3, lambda year, month, day: exp.DateFromParts(year=year, month=month, day=day)),
}


def _pairs_counted(node: exp.Expr) -> exp.Expr:
    """REGR_COUNT(y, x): the rows that have both."""
    return exp.Count(this=_where_both(node, exp.Literal.number(1)))


def _where_both(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    known = [exp.Not(this=exp.Is(this=copied(part), expression=exp.Null())) for part in (node.this, node.expression)]
    return exp.Case(ifs=[exp.If(this=exp.and_(*known, copy=False), true=copied(value))])


def _averaged(argument: str) -> Respelled:
    return lambda node: exp.Avg(this=_where_both(node, node.args[argument]))


def _squares(argument: str) -> Respelled:
    """REGR_SXX(y, x): the number of pairs times the variance."""

    def rule(node: exp.Expr) -> exp.Expr:
        spread = exp.VariancePop(this=_where_both(node, node.args[argument]))
        return exp.Paren(this=exp.Mul(this=_pairs_counted(node), expression=spread))

    return rule


def _products(node: exp.Expr) -> exp.Expr:
    covariance = exp.CovarPop(this=copied(node.this), expression=copied(node.expression))
    return exp.Paren(this=exp.Mul(this=_pairs_counted(node), expression=covariance))


def _standard_error(value: exp.Expr) -> exp.Expr:
    """SEM(x)"""
    root = exp.Sqrt(this=exp.Count(this=copied(value)))
    return exp.Paren(this=exp.Div(this=exp.StddevPop(this=value), expression=root, typed=False, safe=True))


def _in_doubles(value: exp.Expr) -> exp.Expr:
    return exp.cast(value, "DOUBLE")


NAMES |= {
    **_call("SEM", 1, _standard_error),
    **_call("GEOMETRIC_MEAN", 1, lambda value: exp.Exp(this=exp.Avg(this=exp.Ln(this=value)))),
    **_call("GEOMEAN", 1, lambda value: exp.Exp(this=exp.Avg(this=exp.Ln(this=value)))),
    **{
        name: rule
        for word in ("FSUM", "KAHAN_SUM", "SUMKAHAN")
        for name, rule in _call(word, 1, lambda value: exp.Sum(this=_in_doubles(value))).items()
    },
    **_call("SUM_NO_OVERFLOW", 1, lambda value: exp.Sum(this=value)),
    **_call("FAVG", 1, lambda value: exp.Avg(this=_in_doubles(value))),
    **_call("COUNT_STAR", 0, lambda: exp.Count(this=exp.Star())),
}
"""Aggregates that are made of others."""


def _safe_divide(node: exp.Expr) -> exp.Expr:
    zero = exp.Nullif(this=node.expression, expression=exp.Literal.number(0))
    return exp.Paren(this=exp.Div(this=exp.Paren(this=node.this), expression=zero, typed=False, safe=True))


def _nvl2(node: exp.Expr) -> exp.Expr:
    missing = exp.Is(this=node.this, expression=exp.Null())
    return _if(exp.Not(this=missing), node.args["true"], node.args.get("false") or exp.Null())


def _to_char(node: exp.Expr) -> exp.Expr:
    form = node.args.get("format")
    if form is None:
        return exp.cast(node.this, "VARCHAR")
    if not (isinstance(form, exp.Literal) and form.is_string):
        raise Unreadable("TO_CHAR takes a constant format", "write TO_CHAR(day, 'YYYY-MM')")
    return exp.TimeToStr(this=node.this, format=exp.Literal.string(format_of(form.name)))


def _parsed(node: exp.Expr) -> exp.Expr:
    """STRPTIME(text, '%d.%m.%Y') and its like: NULL for what cannot be read, of a constant the moment itself."""
    text, form = node.this, node.args.get("format")
    if not (isinstance(form, exp.Literal) and form.is_string):
        return node
    if node.args.get("default_year") is not None and not {"%Y", "%y"} & set(re.findall("%.", form.name)):
        return node  # BigQuery's year is another one
    if not (isinstance(text, exp.Literal) and text.is_string):
        read = exp.Anonymous(this="TRY_STRPTIME", expressions=[text, form])
        return read if isinstance(node, exp.StrToTime) else exp.cast(read, "DATE")
    try:
        moment = datetime.strptime(text.name, form.name)
    except ValueError:
        raise Unreadable(f"'{text.name}' is not in the format {form.name}", "write DATE '2024-01-31'") from None
    kind = "TIMESTAMP" if isinstance(node, exp.StrToTime) else "DATE"
    shown = moment.isoformat(" ") if kind == "TIMESTAMP" else moment.date().isoformat()
    return exp.cast(exp.Literal.string(shown), kind)


def _to_date(node: exp.Expr) -> exp.Expr:
    """TO_DATE(text, 'DD.MM.YYYY'); without a format it is a cast."""
    return exp.cast(node.this, "DATE") if node.args.get("format") is None else _parsed(node)


def _spelled_date(kind: type[exp.Expr]) -> Callable[..., exp.Expr]:
    """TO_DATE(text, 'DD.MM.YYYY') with codes that the parser would half translate."""

    def rule(text: exp.Expr, form: exp.Expr) -> exp.Expr:
        if not (isinstance(form, exp.Literal) and form.is_string):
            raise Unreadable("a date format must be a constant string", "write TO_DATE(text, 'DD.MM.YYYY')")
        written = form.name.removesuffix(".US")  # microseconds, which TO_CHAR does not write
        codes = format_of(written) + ".%f" * (written != form.name)
        return _to_date(kind(this=text, format=exp.Literal.string(codes)))

    return rule


def _range_bucket(node: exp.Expr) -> exp.Expr:
    """RANGE_BUCKET(x, [0, 10, 20]): how many of the rising ends are not above x."""
    ends = node.expression.expressions if isinstance(node.expression, exp.Array) else []
    numbers = [float(end.name) if isinstance(end, exp.Literal) and not end.is_string else None for end in ends]
    if not numbers or None in numbers or numbers != sorted(numbers):  # type: ignore[type-var]
        raise Unreadable("RANGE_BUCKET takes a list of increasing numbers", "write RANGE_BUCKET(x, [0, 10, 20])")
    steps = [
        exp.If(this=exp.LT(this=copied(node.this), expression=copied(end)), true=exp.Literal.number(count))
        for count, end in enumerate(ends)
    ]
    known = exp.Not(this=exp.Is(this=copied(node.this), expression=exp.Null()))
    return exp.Case(ifs=[*steps, exp.If(this=known, true=exp.Literal.number(len(ends)))])


def _overlaid(node: exp.Expr) -> exp.Expr:
    """OVERLAY(text PLACING 'new' FROM 3 FOR 2)"""
    new, start, count = node.expression, node.args["from_"], node.args.get("for_")
    if count is None and isinstance(new, exp.Literal):
        count = exp.Literal.number(len(new.name))
    if not all(isinstance(part, exp.Literal) and part.is_int and int(part.name) > 0 for part in (start, count)):
        raise Unreadable("OVERLAY takes constant places from 1 on", "write OVERLAY(text PLACING 'new' FROM 3 FOR 2)")
    first, after = int(start.name), int(start.name) + int(count.name)  # type: ignore[union-attr]
    before = exp.Left(this=copied(node.this), expression=exp.Literal.number(first - 1))
    rest = exp.Substring(this=copied(node.this), start=exp.Literal.number(after))
    return exp.Paren(this=exp.DPipe(this=exp.DPipe(this=before, expression=new), expression=rest))


def _share_of_all(node: exp.Expr) -> exp.Expr:
    """RATIO_TO_REPORT(x) OVER (...)"""
    call = node.this
    if not (isinstance(call, exp.Anonymous) and call.name.upper() == "RATIO_TO_REPORT" and len(call.expressions) == 1):
        return node
    if node.args.get("order") is not None or node.args.get("spec") is not None:
        raise Unreadable("RATIO_TO_REPORT takes no order", "write OVER (PARTITION BY ...)")
    whole = copied(node)
    whole.set("this", exp.Sum(this=copied(call.expressions[0])))
    return _safe_divide(exp.SafeDivide(this=call.expressions[0], expression=whole))


def _listed(node: exp.Expr) -> exp.Expr:
    """x IN UNNEST([1, 2])"""
    array = node.args.get("unnest")
    values = array.expressions[0] if array is not None and len(array.expressions) == 1 else None
    if not isinstance(values, exp.Array) or not values.expressions:
        return node
    return exp.In(this=node.this, expressions=[typed_text(value) for value in values.expressions])


def _contained(node: exp.Expr) -> exp.Expr:
    """LIST_CONTAINS([1, 2], x): never open, whatever is NULL in the list."""
    plain = isinstance(node.this, exp.Array) and node.this.expressions
    if not plain or any(isinstance(value, exp.Null) for value in node.this.expressions):
        return node
    return exp.In(this=node.expression, expressions=[typed_text(value) for value in node.this.expressions])


def _decoded(node: exp.Expr) -> exp.Expr:
    """DECODE(x, 1, 'one', 'other'): NULL is a value like any other."""
    value, *rest = node.expressions
    default = rest.pop() if len(rest) % 2 else None
    pairs = zip(rest[::2], rest[1::2], strict=True)
    ifs = [exp.If(this=exp.NullSafeEQ(this=copied(value), expression=wanted), true=then) for wanted, then in pairs]
    return exp.Case(ifs=ifs, default=default)


def _shifted(node: exp.Expr) -> exp.Expr:
    """DATEADD(month, 3, day), DATE_SUB(day, INTERVAL 1 MONTH) of BigQuery."""
    unit = node.args.get("unit")
    if unit is None or extra_clauses(node, {"this", "expression", "unit"}):
        return node
    span = exp.Interval(this=node.expression, unit=unit)
    return (exp.Sub if isinstance(node, exp.DateSub) else exp.Add)(this=node.this, expression=span)


def _strict_choice(node: exp.Expr) -> exp.Expr:
    """GREATEST of BigQuery and Snowflake is NULL as soon as one value is."""
    if node.args.get("ignore_nulls") in (None, True):
        return node
    values = [node.this, *node.expressions]
    missing = exp.or_(*(exp.Is(this=copied(value), expression=exp.Null()) for value in values))
    plain = type(node)(this=node.this, expressions=node.expressions, ignore_nulls=True)
    return _if(missing, exp.Null(), plain)


def _strict_concat(node: exp.Expr) -> exp.Expr:
    """CONCAT of BigQuery and Snowflake is NULL as soon as one part is."""
    if node.args.get("coalesce", True):
        return node
    first, *rest = node.expressions
    for part in rest:
        first = exp.DPipe(this=first, expression=part)
    return exp.Paren(this=first)


def _whole_match(node: exp.Expr) -> exp.Expr:
    if not node.args.get("full_match"):
        return node
    return exp.RegexpFullMatch(this=node.this, expression=node.expression, options=node.args.get("flag"))


def _cast_to(kind: str) -> Respelled:
    return lambda node: exp.cast(node.this, kind)


def _number(node: exp.Expr) -> exp.Expr:
    sizes = [node.args[key].name for key in ("precision", "scale") if node.args.get(key) is not None]
    return exp.cast(node.this, f"DECIMAL({', '.join(sizes)})") if sizes else exp.cast(node.this, "DOUBLE")


def _without(*notes: str) -> Respelled:
    """The same node, without annotations that do not restrict its values."""

    def rule(node: exp.Expr) -> exp.Expr:
        for note in notes:
            node.set(note, None)
        return node

    return rule


def _positioned(node: exp.Expr) -> exp.Expr:
    """In Snowflake, position 0 means the first."""
    for key, notes in (("start", ("zero_start",)), ("part_index", ("part_index_zero_as_one",))):
        place = node.args.get(key)
        if isinstance(place, exp.Literal) and place.name == "0" and any(node.args.get(note) for note in notes):
            node.set(key, exp.Literal.number(1))
    return _without("zero_start", "part_index_zero_as_one", "empty_delimiter_returns_whole")(node)


def _short_name(code: str) -> Respelled:
    def rule(node: exp.Expr) -> exp.Expr:
        return exp.TimeToStr(this=node.this, format=exp.Literal.string(code)) if node.args.get("abbreviated") else node

    return rule


def _by_case(node: exp.Expr) -> exp.Expr:
    """The parser takes a third argument for Snowflake's way to pass over case, where DuckDB has a cutoff."""
    if node.args.get("case_insensitive"):
        raise Unreadable("JARO_WINKLER_SIMILARITY takes two texts", "omit the third argument")
    return node


def _date_of_text(node: exp.Expr) -> exp.Expr:
    """TO_DATE(text [, 'YYYY-MM-DD'])"""
    match node.expressions:
        case [text]:
            return exp.cast(text, "DATE")
        case [text, form]:
            return _spelled_date(exp.StrToDate)(text, form)
    return node


def _unix_time(node: exp.Expr) -> exp.Expr:
    """TO_TIMESTAMP(text, 'YYYY-MM-DD'), whose format the parser takes for a number of digits."""
    scale = node.args.get("scale")
    is_format = isinstance(scale, exp.Literal) and scale.is_string and not scale.name.isdecimal()
    return _spelled_date(exp.StrToTime)(node.this, scale) if is_format else node


def _read_by(kind: type[exp.Expr]) -> Callable[..., exp.Expr]:
    return lambda text, form: _parsed(kind(this=text, format=form))


NAMES |= {"TO_DATE": _date_of_text}
for _name in ("LIST_POSITION", "LIST_INDEXOF", "ARRAY_POSITION", "ARRAY_INDEXOF"):
    NAMES |= _call(_name, 2, _position_in)
NAMES |= _call("ARRAY_EXTRACT", 2, lambda value, place: exp.Bracket(this=value, expressions=[place]))
NAMES |= {"PRINTF": _printed}
for _name in ("STRPTIME", "TRY_STRPTIME"):
    NAMES |= _call(_name, 2, _read_by(exp.StrToTime))
NAMES |= _call("PARSE_DATE", 2, lambda form, text: _read_by(exp.StrToDate)(text, form))
NAMES |= _call("PARSE_TIMESTAMP", 2, lambda form, text: _read_by(exp.StrToTime)(text, form))
NAMES |= _call(f"{UNTRANSLATED}TO_DATE", 2, _spelled_date(exp.StrToDate))
NAMES |= _call(f"{UNTRANSLATED}TO_TIMESTAMP", 2, _spelled_date(exp.StrToTime))

RULES: dict[type[exp.Expr], Respelled] = {
    exp.SafeDivide: _safe_divide,
    exp.Nvl2: _nvl2,
    exp.ToChar: _to_char,
    exp.StrToTime: _parsed,
    exp.UnixToTime: _unix_time,
    exp.StrToDate: _parsed,
    exp.In: _listed,
    exp.ArrayContains: _contained,
    exp.Contains: _contained,
    exp.Bracket: _taken,
    exp.ToMap: _looked_up,
    exp.Try: _tried,
    exp.DecodeCase: _decoded,
    exp.EqualNull: lambda node: exp.NullSafeEQ(this=node.this, expression=node.expression),
    exp.RawString: lambda node: exp.Literal.string(node.name),
    exp.DateAdd: _shifted,
    exp.DateSub: _shifted,
    exp.Greatest: _strict_choice,
    exp.Least: _strict_choice,
    exp.Concat: _strict_concat,
    exp.RegexpLike: _whole_match,
    exp.TsOrDsToDate: _to_date,
    exp.RangeBucket: _range_bucket,
    exp.Overlay: _overlaid,
    exp.Window: _share_of_all,
    exp.ToDouble: _cast_to("DOUBLE"),
    exp.ToNumber: _number,
    exp.Length: _without("binary"),
    exp.Substring: _positioned,
    exp.SplitPart: _positioned,
    exp.StrPosition: _without("clamp_position"),
    exp.Round: _without("casts_non_integer_decimals"),
    exp.CountIf: _without("zero_on_all_null"),
    exp.RegrCount: _pairs_counted,
    exp.RegrAvgx: _averaged("expression"),
    exp.RegrAvgy: _averaged("this"),
    exp.RegrSxx: _squares("expression"),
    exp.RegrSyy: _squares("this"),
    exp.RegrSxy: _products,
    exp.JarowinklerSimilarity: _by_case,
    exp.Dayname: _short_name("%a"),
    exp.Monthname: _short_name("%b"),
}


def dialect_named(name: object) -> str:
    if isinstance(name, str) and name.lower() in DIALECTS:
        return name.lower()
    raise ProgrammingError(f"unknown dialect {name!r}", hint=f"available: {', '.join(DIALECTS)}")
