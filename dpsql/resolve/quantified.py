"""x > ANY (...), x <> ALL (...): comparisons with all values of a list or of public rows.

x > ANY (VALUES (3), (5))                 x > 3 OR x > 5
x <= ALL ([3, 5])                         x <= 3 AND x <= 5
x LIKE ANY ('a%', 'b%')                   x LIKE 'a%' OR x LIKE 'b%'
x > ANY (SELECT seats FROM places)        x > (SELECT MIN(seats) ...); false over no rows, open where one is NULL

Rows of people are not compared with each other: what is over these is left as it is, and refused where it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import copied
from dpsql.resolve.syntax import typed_text, unaliased, unwrapped, with_marks

if TYPE_CHECKING:
    from collections.abc import Callable

    IsPublic = Callable[[exp.Expr], bool]

COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
PATTERNS = (exp.Like, exp.ILike)
RISING = (exp.GT, exp.GTE)
VALUE, ROWS = "_compared", "_compared_rows"


def unquantified(node: exp.Expr, is_public: IsPublic) -> exp.Expr:
    """The comparison without ANY or ALL, where it can be said so."""
    other = node.expression
    # The parser knows ALL before a query only.
    called = isinstance(other, exp.Anonymous) and other.name.upper() == "ALL" and len(other.expressions) == 1
    if not isinstance(node, (*COMPARED, *PATTERNS)) or not (called or isinstance(other, exp.Any | exp.All)):
        return node
    if isinstance(node.parent, exp.Not) and isinstance(node, PATTERNS):
        return node  # NOT LIKE ANY is read in two ways: as the negation, and pattern by pattern
    every = not isinstance(other, exp.Any)
    query = unwrapped(unaliased(other.expressions[0] if called else other.this))
    if isinstance(query, exp.Query) and not isinstance(node, PATTERNS):
        member = _member(node, query, every=every)
        if member is not None:
            return member
        return _with_rows(node, query, every=every) if is_public(query) else node
    listed = list(query.expressions) if isinstance(node, PATTERNS) and _are_texts(query) else _listed(query)
    if not listed:
        return node  # NULL = ANY ([]) is false, NULL IN () is not
    if isinstance(node, exp.EQ) and not every:
        return with_marks(exp.In(this=node.this, expressions=listed), node)
    parts = [with_marks(type(node)(this=copied(node.this), expression=value), node) for value in listed]
    return exp.Paren(this=exp.and_(*parts, copy=False) if every else exp.or_(*parts, copy=False))


def _member(node: exp.Expr, query: exp.Query, *, every: bool) -> exp.Expr | None:
    if isinstance(node, exp.EQ) and not every:
        return with_marks(exp.In(this=node.this, query=exp.Subquery(this=query)), node)
    if isinstance(node, exp.NEQ) and every:
        return exp.Not(this=with_marks(exp.In(this=node.this, query=exp.Subquery(this=query)), node))
    return None


def _listed(choices: exp.Expr) -> list[exp.Expr]:
    """The values of an array, or of VALUES with one column; none for anything else."""
    if isinstance(choices, exp.Array):
        return [typed_text(value) for value in choices.expressions]
    if isinstance(choices, exp.Values) and all(len(row.expressions) == 1 for row in choices.expressions):
        return [typed_text(row.expressions[0]) for row in choices.expressions]
    return []


def _are_texts(choices: exp.Expr) -> bool:
    """('a%', 'b%'), or one text in parentheses that is gone."""
    return isinstance(choices, exp.Tuple | exp.Array) and all(part.is_string for part in choices.expressions)


def _with_rows(node: exp.Expr, query: exp.Query, *, every: bool) -> exp.Expr:
    if isinstance(node, exp.EQ | exp.NEQ):  # = ALL and <> ANY, its negation
        ends = [
            _with_rows(kind(this=copied(node.this), expression=copied(node.expression)), query, every=True)
            for kind in (exp.GTE, exp.LTE)
        ]
        both = exp.Paren(this=exp.and_(*ends, copy=False))
        return both if every else exp.Not(this=both)
    nearest = "MIN" if isinstance(node, RISING) != every else "MAX"
    compared = with_marks(
        type(node)(this=copied(node.this), expression=_about(query, exp.func(nearest, exp.column(VALUE)))), node
    )
    neutral = exp.Boolean(this=every)
    missing = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Count(this=exp.column(VALUE)))
    unknown = _about(query, exp.Case(ifs=[exp.If(this=missing, true=exp.Null())], default=copied(neutral)))
    empty = exp.EQ(this=_about(query, exp.Count(this=exp.Star())), expression=exp.Literal.number(0))
    whole = exp.and_(compared, unknown, copy=False) if every else exp.or_(compared, unknown, copy=False)
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=empty, true=neutral)], default=exp.Paren(this=whole)))


def _about(query: exp.Query, value: exp.Expr) -> exp.Expr:
    """One value about all rows of the query."""
    alias = exp.TableAlias(this=exp.to_identifier(ROWS), columns=[exp.to_identifier(VALUE)])
    rows = exp.Subquery(this=copied(query), alias=alias)
    return exp.Subquery(this=exp.Select(expressions=[value], from_=exp.From(this=rows)))
