"""Writes a tree as DuckDB's SQL.

A Let is a lambda over a list of one: the only place of this engine's SQL where an expression gets a name, so that what
is read twice is computed once. (An engine that puts the expression behind a column in the column's place would not.)
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import SALT, UNIT, apply
from dpsql.engine_sql.tree import Blank, Case, Constant, Field, Func, Short, Wide
from dpsql.engines.base import engine_type
from dpsql.engines.render import STANDARD, STANDARD_INFIX, Renderer, literal, quanta_in_one, quoted
from dpsql.schema.types import Boolean, Date, Decimal, Double, Integer, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpsql.engine_sql.tree import (
        AggFunc,
        AroundRank,
        Kind,
        Let,
        Operand,
        Query,
        Series,
        Stored,
        Term,
        TryCast,
    )

# -- around rank -------------------------------------------------------------------------------------------------------
# The values around one rank, by DuckDB's lists:
#
#     _values   what each unit may bring: a value per row
#     _guess    from one unit in 32: two fences that should hold the rank and `reach` ranks on both sides
#     _counted  how many values are below, on and above the fences; those between them, sorted
#     _again    the same without fences, for groups where they do not hold the ranks
#
# so a guess that was wrong costs time and nothing else. Values become points only at the end: that keeps their order.
# Only the needed ranks leave the engine.

SAMPLED = 32
"""One unit in so many is in the sample that the fences come from."""
CHANCE = 2
"""A sampled rank is expected to be off by less than this times the root of the sample: four standard deviations."""
MARGIN = 2
"""Ranks to spare where they are compared as doubles."""


def around_rank(renderer: Renderer, profile: AroundRank) -> str:
    return ProfileWriter(renderer, profile).sql()


@dataclass(frozen=True)
class ProfileWriter:
    renderer: Renderer
    profile: AroundRank

    @property
    def keys(self) -> list[str]:
        return [quoted(name) for name in self.profile.keys]

    @property
    def value(self) -> str:
        return quoted(self.profile.value)

    @property
    def reach(self) -> int:
        return self.renderer.blanks[self.profile.reach]

    @property
    def fraction(self) -> str:
        return self.renderer.term(Constant(self.profile.fraction, Double()))

    def sql(self) -> str:
        kept = "NOT MATERIALIZED" if self.profile.single else "MATERIALIZED"
        parts = {
            f"_values AS {kept}": self.renderer.query(self.profile.values),
            "_guess AS MATERIALIZED": self.guess(),
            "_counted AS MATERIALIZED": self.fences_counted(),
            "_again AS MATERIALIZED": f"{self.unfenced()} WHERE _rows > 0",
        }
        before = ", ".join(f"{name} ({sql})" for name, sql in parts.items())
        found = f"SELECT * FROM _counted WHERE {self.HOLDS} UNION ALL SELECT * FROM _again"
        return f"WITH {before} {self.collected(found)}"

    def guess(self) -> str:
        """Two fences for each group that was sampled; none where the sample does not reach as far."""
        hashed = self.renderer.term(apply("one in 32", apply("keyed hash", Blank(SALT), Field(UNIT))))
        sample = f"SELECT * FROM _values WHERE {hashed}"
        values = f"list_sort(list({self.value}) FILTER (WHERE {self.value} IS NOT NULL)) AS _sample"
        off = f"{self.reach // SAMPLED + 1} + {CHANCE} * sqrt({self.profile.most_rows} * len(_sample))"
        low = f"TRY_CAST(floor({self.fraction} * len(_sample) - ({off})) AS BIGINT)"
        high = f"TRY_CAST(ceil({self.fraction} * len(_sample) + ({off})) AS BIGINT)"
        # There is nothing at place 0, nor beyond the end; a negative place would be counted from there.
        fences = f"_sample[greatest({low}, 0)] AS _low", f"_sample[{high}] AS _high"
        return f"SELECT {', '.join([*self.keys, *fences])} FROM ({self.by_keys([values], sample)}) AS _below"

    def by_keys(self, columns: list[str], below: str) -> str:
        grouping = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        return f"SELECT {', '.join([*self.keys, *columns])} FROM ({below}) AS _below{grouping}"

    def same_keys(self, one: str, other: str) -> str:
        return " AND ".join(f"({one}.{key} IS NOT DISTINCT FROM {other}.{key})" for key in self.keys) or "true"

    def with_fences(self, rows: str) -> str:
        """The values of a group, or their counts, together with its fences."""
        return f"{rows} LEFT JOIN _guess ON {self.same_keys(rows, '_guess')}" if self.keys else f"{rows}, _guess"

    def unfenced(self) -> str:
        """The values of those groups whose fences do not hold."""
        failed = f"SELECT * FROM _counted WHERE NOT ({self.HOLDS})"
        values = (
            f"SELECT _values.* FROM _values SEMI JOIN ({failed}) AS _failed ON {self.same_keys('_values', '_failed')}"
        )
        nothing = [f"CAST(0 AS BIGINT) AS {name}" for name in ("_under", "_on_low", "_on_high")]
        none = self.renderer.typed_null(self.profile.kind)
        sums = self.counted(values, nothing, f"{self.value} IS NOT NULL")
        return self.with_ranks(sums, f"{none} AS _low, {none} AS _high", "_below")

    def fences_counted(self) -> str:
        """A fence that is NULL has nothing on it and nothing beyond."""
        value = self.value
        columns = [
            _count(f"{value} < _low", "_under"),
            _count(f"{value} = _low", "_on_low"),
            _count(f"{value} = _high AND ({value} > _low) IS NOT FALSE", "_on_high"),
        ]
        inside = f"{value} IS NOT NULL AND ({value} > _low) IS NOT FALSE AND ({value} < _high) IS NOT FALSE"
        values = f"SELECT _values.*, _low, _high FROM {self.with_fences('_values')}"
        # Beside sums once more, which are few: to carry fences through the sums takes longer.
        return self.with_ranks(self.counted(values, columns, inside), "_low, _high", self.with_fences("_below"))

    def counted(self, values: str, fences: list[str], inside: str) -> str:
        """The counts below, between and above the fences."""
        value = self.value
        columns = [
            f"count({value}) AS _rows",
            *fences,
            f"list_sort(coalesce(list({value}) FILTER (WHERE {inside}), [])) AS _inside",
        ]
        return self.by_keys(columns, values)

    def with_ranks(self, sums: str, fences: str, source: str) -> str:
        """The same with the fences and the ranks that are needed."""
        middle = f"{self.fraction} * _rows"
        ranks = (
            f"TRY_CAST(floor({middle}) AS BIGINT) - {self.reach + MARGIN} AS _first",
            f"TRY_CAST(ceil({middle}) AS BIGINT) + {self.reach + MARGIN} AS _last",
            "_under + _on_low AS _before",
            "_under + _on_low + len(_inside) AS _upto",
        )
        return f"WITH _below AS ({sums}) SELECT _below.*, {fences}, {', '.join(ranks)} FROM {source}"

    HOLDS = "_under < greatest(_first, 1) AND _upto + _on_high >= least(_last, _rows)"
    """Whether every rank that is needed lies on the fences or between them."""

    def collected(self, found: str) -> str:
        """The points of the needed ranks, how often each occurs, what is below them, and the number of rows."""
        points, counts, below, rows = map(quoted, self.profile.names)
        point = self.renderer.term(self.profile.point)
        first, last = "greatest(_first - _before, 1)", "greatest(least(_last - _before, len(_inside)), 0)"
        needed = (
            f"_inside[{first}:{last}] AS _between",
            "_first <= _before AND _on_low > 0 AS _with_low",
            "_last > _upto AND _on_high > 0 AS _with_high",
        )

        def joined(low: str, between: str, high: str) -> str:
            sides = f"CASE WHEN _with_low THEN [{low}] ELSE [] END", f"CASE WHEN _with_high THEN [{high}] ELSE [] END"
            return f"list_concat({sides[0]}, {between}, {sides[1]})"

        columns = [
            *self.keys,
            f"list_transform({joined('_low', '_between', '_high')}, lambda {self.value}: {point}) AS {points}",
            f"{joined('_on_low', f'list_transform(_between, lambda {self.value}: 1)', '_on_high')} AS {counts}",
            f"CASE WHEN _with_low THEN _under ELSE least(greatest(_before, _first - 1), _upto) END AS {below}",
            f"_rows AS {rows}",
        ]
        ranks = f"SELECT *, {', '.join(needed)} FROM ({found}) AS _below"
        return f"SELECT {', '.join(columns)} FROM ({ranks}) AS _below"


def _count(condition: str, name: str) -> str:
    """Twice as fast as count(*) FILTER (WHERE ...); over nothing it would be NULL."""
    return f"CAST(coalesce(count_if({condition}), 0) AS BIGINT) AS {name}"


# -- render ------------------------------------------------------------------------------------------------------------

PLAIN = re.compile("_[a-z0-9_]+|[ms][0-9]+(_count)?")
"""Names that need no quotes, as most of our own."""
OPERANDS = "_operands"
INFIX = {
    **STANDARD_INFIX,
    **{symbol: symbol for symbol in ("/", "//", ">>")},
    "double %": "%",
    "glob": "GLOB",
    "date + days": "+",
    "date - date": "-",
}
SHORT = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER"}
EPOCH = "CAST('1970-01-01' AS DATE)"
LARGEST = sys.float_info.max
SPELLED: dict[str, Callable[..., str]] = {
    **STANDARD,
    # Twice as fast as isfinite(); NaN is above all numbers here.
    "is finite": lambda value: f"({value} BETWEEN {double(-LARGEST)} AND {double(LARGEST)})",
    "is nan": lambda value: f"isnan({value})",
    **{f"try {symbol}": lambda left, right, symbol=symbol: f"TRY(({left} {symbol} {right}))" for symbol in "+-*"},
    "by code points": lambda text: f"({text} COLLATE C)",
    # TRY keeps the optimizer away, which fails where it knows that every text is NULL.
    "split_part": lambda *parts: f"TRY(split_part({', '.join(parts)}))",
    "json_extract_string": lambda text, path: f"TRY(json_extract_string({text}, {path}))",
    "bytes": lambda text: f"strlen({text})",
    "like": lambda *parts: f"({parts[0]} LIKE {' ESCAPE '.join(parts[1:])})",
    "ilike": lambda *parts: f"({parts[0]} ILIKE {' ESCAPE '.join(parts[1:])})",
    "date part": lambda part, moment: f"date_part({part}, {moment})",
    "date trunc": lambda unit, moment: f"date_trunc({unit}, {moment})",
    "date diff": lambda unit, first, last: f"date_diff({unit}, {first}, {last})",
    "date sub": lambda unit, first, last: f"date_sub({unit}, {first}, {last})",
    "strptime": lambda text, pattern: f"try_strptime({text}, {pattern})",
    "last day": lambda moment: f"last_day({moment})",
    # The engine reads what it cannot make: 2024-2-30 is NULL, and nothing fails.
    "make date": lambda *parts: f"TRY_CAST(concat_ws('-', {', '.join(parts)}) AS DATE)",
    "epoch days": lambda day: f"date_diff('day', {EPOCH}, {day})",
    "epoch microseconds": lambda moment: f"epoch_us({moment})",
    "from epoch days": lambda days: f"({EPOCH} + CAST({days} AS INTEGER))",
    "from epoch microseconds": lambda count: f"make_timestamp({count})",
    # Hashed twice, because once is not uniform. With all of its bits a unit and a hash would not fit into the 16 bytes
    # that this engine sorts fastest; equal ones are told apart by what was hashed.
    "keyed hash": lambda *parts: f"CAST(hash(hash({', '.join(parts)})) >> 32 AS UINTEGER)",
    "one in 32": lambda hashed: f"({hashed} & 31 = 0)",
    "position": lambda value, *choices: f"CAST(list_position([{', '.join(choices)}], {value}) - 1 AS BIGINT)",
}


def type_name(kind: Kind) -> str:
    match kind:
        case Wide():
            return "HUGEINT"
        case Short(bits):
            return SHORT[bits]
        case _:
            return engine_type(kind)


def render(query: Query, blanks: Mapping[str, int] | None = None) -> str:
    return DuckDB(blanks).query(query)


def render_term(term: Term) -> str:
    """For the post-processing database, whose queries are the analyst's own."""
    return DuckDB().term(term)


@lru_cache(maxsize=4096)
def spelled(name: str) -> str:
    return name if PLAIN.fullmatch(name) else quoted(name)


class DuckDB(Renderer):
    def __init__(self, blanks: Mapping[str, int] | None = None) -> None:
        super().__init__(blanks)
        self._written: dict[int, tuple[Term, str]] = {}

    def term(self, value: Term) -> str:
        """The SQL of a term does not depend on its context, so a term that occurs often is written once."""
        if isinstance(value, Field):
            return spelled(value.name) if value.table is None else f"{spelled(value.table)}.{spelled(value.name)}"
        if isinstance(value, Constant):
            return self.constant(value)
        known = self._written.get(id(value))
        if known is None:
            known = self._written[id(value)] = value, super().term(value)
        return known[1]

    def quoted(self, name: str) -> str:
        return spelled(name)

    def type_name(self, kind: Kind) -> str:
        return type_name(kind)

    def constant(self, constant: Constant) -> str:
        value, kind = constant.value, constant.kind
        if value is None:
            return "NULL" if kind is None else f"CAST(NULL AS {self.type_name(kind)})"
        match kind:
            case None:
                return whole(value)
            case Boolean():
                return "true" if value else "false"
            case Integer():
                # A bare 2000000000 is 32 bits wide in the engine, and twice that would fail.
                return whole(value) if is_long(value) else f"CAST({whole(value)} AS BIGINT)"
            case Double():
                assert isinstance(value, int | Fraction)
                return double(float(value))
            case Decimal(scale=scale):
                assert isinstance(value, int | Fraction)
                return f"CAST({literal(digits(round(Fraction(value) * 10**scale), scale))} AS {engine_type(kind)})"
            case Date():
                assert isinstance(value, date)
                return f"CAST({literal(value.isoformat())} AS DATE)"
            case Timestamp():
                assert isinstance(value, datetime)
                return f"CAST({literal(value.isoformat(' '))} AS TIMESTAMP)"
            case Wide() | Short():
                return f"CAST({whole(value)} AS {self.type_name(kind)})"
            case _:
                return literal(str(value))

    def apply(self, operation: str, arguments: list[str], node: Func) -> str:
        if operation in INFIX:
            left, right = arguments
            return f"({left} {INFIX[operation]} {right})"
        if operation in SPELLED:
            return SPELLED[operation](*arguments)
        if operation == "shift":
            return shifted(arguments[0], node)
        return f"{operation}({', '.join(arguments)})"

    def try_cast(self, cast: TryCast) -> str:
        return f"TRY_CAST({self.term(cast.value)} AS {self.type_name(cast.kind)})"

    def stored(self, column: Stored) -> str:
        """A unit may be read as a narrower integer than is declared, which sorts faster."""
        name = f"{self.quoted(column.table)}.{self.quoted(column.name)}"
        if column.only_compared and isinstance(column.kind, Integer):
            return name
        return f"TRY_CAST({name} AS {engine_type(column.kind)})"

    def case(self, case: Case) -> str:
        """A clamp ends with its value, which is NULL there. Behind ELSE NULL the engine would no longer know a column's
        extremes, nor that it is never NULL, and would take longer to count and to sum it."""
        return super().case(replace(case, otherwise=case.branches[0][1]) if case.is_clamp else case)

    def let(self, let: Let) -> str:
        """All operands get a name, because an operand with a subquery is not allowed inside a lambda."""
        fields = ", ".join(f"{literal(f'v{number}')}: {self.term(value)}" for number, value in enumerate(let.values))
        return f"list_extract(list_transform([{{{fields}}}], lambda {OPERANDS}: {self.term(let.body)}), 1)"

    def operand(self, operand: Operand) -> str:
        return f"struct_extract({OPERANDS}, {literal(f'v{operand.number}')})"

    def fold(self, fold: AggFunc) -> str:
        if fold.name == "sum of quanta":
            return f"CAST((sum({self.listed(fold.arguments)}) * {self.constant(quanta_in_one(fold))}) AS HUGEINT)"
        name = "list" if fold.name == "collect" else fold.name
        inside = self.listed(fold.arguments) or ("*" if name == "count" else "")
        order = f" ORDER BY {self.ordered(fold.order_by)}" if fold.order_by else ""
        where = "" if fold.where is None else f" FILTER (WHERE {self.term(fold.where)})"
        folded = f"{name}({'DISTINCT ' if fold.distinct else ''}{inside}{order}){where}"
        # A sum has 128 bits here, with which it takes longer to compute.
        return f"TRY_CAST({folded} AS BIGINT)" if name == "sum" and isinstance(fold.kind, Integer) else folded

    def series(self, series: Series) -> str:
        return f"SELECT number AS {quoted(series.name)} FROM range(0, {series.count}) AS numbers(number)"

    def around_rank(self, profile: AroundRank) -> str:
        return around_rank(self, profile)


def shifted(moment: str, node: Func) -> str:
    _, amount, unit = node.arguments
    return f"({moment} + INTERVAL ({amount.value}) {unit.value})"  # type: ignore[union-attr]


def whole(value: object) -> str:
    """
    >>> whole(5), whole(-5), whole(2**40), whole(2**64)
    ('5', '(-5)', '1099511627776', "CAST('18446744073709551616' AS HUGEINT)")
    """
    assert isinstance(value, int)
    if abs(value) >= 2**63 or value == -(2**31):
        # The parser reads -9223372036854775808 as minus a number that is too large, so such numbers are texts.
        return f"CAST('{value}' AS {'BIGINT' if -(2**63) <= value < 2**63 else 'HUGEINT'})"
    return str(value) if value >= 0 else f"({value})"


def double(value: float) -> str:
    """The shortest text that reads back as the same double; without an exponent it would be a decimal.

    >>> double(0.5), double(-1e300)
    ('0.5e0', '(-1e+300)')
    """
    text = repr(value)
    exact = text if "e" in text else f"{text}e0"
    return exact if value >= 0 else f"({exact})"


def is_long(value: object) -> bool:
    """Whether the engine takes a bare number for 64 bits or more."""
    return isinstance(value, int) and abs(value) >= 2**31


def digits(scaled: int, scale: int) -> str:
    """
    >>> digits(-5, 2)
    '-0.05'
    """
    text = f"{abs(scaled):0{scale + 1}d}"
    before, after = text[: len(text) - scale], text[len(text) - scale :]
    return ("-" if scaled < 0 else "") + before + ("." + after if after else "")
