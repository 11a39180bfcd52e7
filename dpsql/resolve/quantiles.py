"""The many ways to write a quantile, as one: QUANTILE_CONT(x, 0.9) or QUANTILE_DISC(x, 0.9).

MEDIAN(x)                                       QUANTILE_CONT(x, 0.5)
PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)  QUANTILE_CONT(x, 0.9)
APPROX_QUANTILE(x, 0.9), QUANTILE(x, 0.9)       QUANTILE_DISC(x, 0.9)
QUANTILE_CONT(x, [0.1, 0.9])                    [QUANTILE_CONT(x, 0.1), QUANTILE_CONT(x, 0.9)]
APPROX_QUANTILES(x, 4)                          [QUANTILE_DISC(x, 0), QUANTILE_DISC(x, 0.25), ...]
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.resolve.bounds import written_number

CONTINUOUS = (exp.Median, exp.PercentileCont)
KINDS = (*CONTINUOUS, exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile, exp.ApproxQuantiles)
MOST_BUCKETS = 1000


@dataclass(frozen=True)
class Quantiles:
    name: str
    value: exp.Expr
    fractions: tuple[Fraction, ...]
    listed: bool
    """Whether the answer is a list."""


def is_quantile(node: exp.Expr) -> bool:
    return isinstance(node, KINDS) or (isinstance(node, exp.WithinGroup) and isinstance(node.this, KINDS))


def read_quantiles(node: exp.Expr) -> Quantiles | None:
    """What is asked for; None if it is not written in one of the ways above."""
    value, asked, descending = _parts(node)
    if value is None or asked is None:
        return None
    kind = node.this if isinstance(node, exp.WithinGroup) else node
    name = "QUANTILE_CONT" if isinstance(kind, CONTINUOUS) else "QUANTILE_DISC"
    if isinstance(kind, exp.ApproxQuantiles):
        buckets = written_number(asked)
        if buckets is None or buckets.denominator != 1 or not 1 <= buckets <= MOST_BUCKETS:
            return None
        return Quantiles(name, value, tuple(part / buckets for part in map(Fraction, range(int(buckets) + 1))), True)
    listed = isinstance(asked, exp.Array | exp.Tuple)
    fractions = [written_number(part) for part in (asked.expressions if listed else [asked])]
    known = tuple(1 - fraction if descending else fraction for fraction in fractions if fraction is not None)
    return Quantiles(name, value, known, listed) if known and len(known) == len(fractions) else None


def _parts(node: exp.Expr) -> tuple[exp.Expr | None, exp.Expr | None, bool]:
    """The column, the fraction as written, and whether ranks are counted from the top."""
    if isinstance(node, exp.Median):
        return node.this, exp.Literal.number("0.5"), False
    if isinstance(node, exp.WithinGroup):
        (ordered, *more) = node.expression.expressions
        if more or node.this.args.get("expression") is not None:
            return None, None, False
        return ordered.this, node.this.this, bool(ordered.args.get("desc"))
    return node.this, node.args.get("quantile") or node.args.get("expression"), False
