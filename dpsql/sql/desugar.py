"""Desugaring: alternative spellings are rewritten to the clauses that dpsql supports.

x = ANY (SELECT ...), x = ANY ([1, 2])         x IN (...)
x <> ALL (SELECT ...)                          NOT x IN (...)
x IN (VALUES (1), (2))                         x IN (1, 2)
(a, b) IN (VALUES (1, 2), (3, 4))              (a = 1 AND b = 2) OR (a = 3 AND b = 4)
(a, b) IN ((1, 2), (3, 4))                     the same with IS NOT DISTINCT FROM
t SEMI JOIN u ON c, t ANTI JOIN u ON c         WHERE [NOT] EXISTS (SELECT 1 FROM u WHERE c)
FROM (t JOIN u ON c)                           FROM t JOIN u ON c
FROM (t JOIN u ON c) AS j                      FROM (SELECT * FROM t JOIN u ON c) AS j
FROM t, LATERAL (SELECT COUNT(*) AS n ...) l   l.n is (SELECT COUNT(*) ...)
t ASOF JOIN u ON t.x >= u.y                    t JOIN u ON t.x >= u.y AND t.x < the next y, where u is public
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.errors import Unsupported
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.sql.syntax import (
    conditions_of,
    copy_in_place,
    extra_clauses,
    from_nodes,
    has_aggregate,
    is_defined,
    output_name,
    typed_text,
    unaliased,
    unwrapped,
    with_marks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

# -- quantified --------------------------------------------------------------------------------------------------------
# x > ANY (...), x <> ALL (...): comparisons with all values of a list or of public rows.
#
# x > ANY (VALUES (3), (5))                 x > 3 OR x > 5
# x <= ALL ([3, 5])                         x <= 3 AND x <= 5
# x LIKE ANY ('a%', 'b%')                   x LIKE 'a%' OR x LIKE 'b%'
# x > ANY (SELECT seats FROM places)        x > (SELECT MIN(seats) ...); false over no rows, open where one is NULL
#
# Rows of people are not compared with each other: what is over these is left as it is, and refused where it is read.

if TYPE_CHECKING:
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


# -- desugar -----------------------------------------------------------------------------------------------------------


def desugar(tree: exp.Expr, is_public: IsPublic) -> None:
    """Rewrites the tree in place. `is_public` says whether a query reads only public tables."""
    for node in nodes_of(tree, *COMPARED, *PATTERNS, exp.In):
        plain = _listed_tuples(node) if isinstance(node, exp.In) else unquantified(node, is_public)
        if plain is not node:
            node.replace(plain)
    for select in nodes_of(tree, exp.Select):
        _open_parentheses(select)
        _name_joins(select)
        _open_joins(select)
        _name_series(select)
        for join in list(select.args.get("joins") or ()):
            if join.kind in ("SEMI", "ANTI") and not extra_clauses(join, {"this", "kind", "on", "using"}):
                _as_exists(select, join)
            elif isinstance(join.this, exp.Lateral):
                _as_values(select, join)
            elif join.method == "ASOF" and is_public(join.this) and not is_public(select):
                _as_ranges(select, join)


def _listed_tuples(node: exp.Expr) -> exp.Expr:
    """Rows of VALUES are compared by column, like those of a subquery; tuples in a list as a whole, with NULLs."""
    value, rows = unaliased(node.this), node.expressions
    equal: type[exp.Binary] = exp.NullSafeEQ
    if len(rows) == 1 and isinstance(rows[0], exp.Values):
        equal, rows = exp.EQ, rows[0].expressions
        if all(len(row.expressions) == 1 for row in rows):
            return with_marks(
                exp.In(this=node.this, expressions=[typed_text(row.expressions[0]) for row in rows]), node
            )
    if not isinstance(value, exp.Tuple) or not rows or not all(isinstance(row, exp.Tuple) for row in rows):
        return node
    if any(len(row.expressions) != len(value.expressions) for row in rows):
        return node  # refused where it is read
    same = []
    for row in rows:
        pairs = zip(value.expressions, row.expressions, strict=True)
        same.append(
            exp.and_(*(equal(this=copied(part), expression=typed_text(wanted)) for part, wanted in pairs), copy=False)
        )
    return exp.Paren(this=exp.or_(*same, copy=False))


def _name_joins(select: exp.Select) -> None:
    """(t JOIN u ON c) AS j is (SELECT * FROM t JOIN u ON c) AS j."""
    for node in from_nodes(select):
        alias = node.args.get("alias")
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and alias is not None:
            table = node.this
            joins = table.args.get("joins") or []
            table.set("joins", None)
            node.set("this", exp.Select(expressions=[exp.Star()], from_=exp.From(this=table), joins=joins))


def _open_joins(select: exp.Select) -> None:
    """t JOIN (u JOIN v ON c) ON d, where all are inner joins, is t, u, v WHERE c AND d."""
    joins = select.args.get("joins") or []
    opened: list[exp.Join] = []
    conditions: list[exp.Expr] = []
    for place, join in enumerate(joins):
        inner = join.this
        if not isinstance(inner, exp.Subquery) or not isinstance(inner.this, exp.Table):
            opened.append(join)
            continue
        table, parts = inner.this, [join, *(inner.this.args.get("joins") or [])]
        outer = any(part.side in ("RIGHT", "FULL") for part in joins[place:])
        if outer or extra_clauses(inner, {"this"}) or not all(map(_is_inner, parts)):
            opened.append(join)
            continue
        table.set("joins", None)
        conditions += [part.args["on"] for part in parts if part.args.get("on") is not None]
        opened += [exp.Join(this=item, kind="CROSS") for item in (table, *(part.this for part in parts[1:]))]
    select.set("joins", opened)
    if conditions:
        select.where(*conditions, copy=False)


def _is_inner(join: exp.Join) -> bool:
    return not join.side and join.kind in ("", "INNER", "CROSS") and not extra_clauses(join, {"this", "kind", "on"})


def _open_parentheses(select: exp.Select) -> None:
    source = select.args.get("from_")
    while source is not None and isinstance(source.this, exp.Subquery) and isinstance(source.this.this, exp.Table):
        if extra_clauses(source.this, {"this"}):
            return
        table = source.this.this
        joins = table.args.get("joins") or []
        table.set("joins", None)
        source.set("this", table)
        select.set("joins", [*joins, *(select.args.get("joins") or [])])


def _name_series(select: exp.Select) -> None:
    """RANGE(5) AS g has one column, which is g; g.range is the same."""
    for node in from_nodes(select):
        alias = node.args.get("alias")
        if not isinstance(node.this, exp.GenerateSeries) or alias is None or alias.columns:
            continue
        name = alias.name
        alias.set("columns", [exp.to_identifier(name)])
        for column in nodes_of(select, exp.Column):
            if column.table.lower() == name.lower() and column.name.lower() in ("range", "generate_series"):
                column.set("this", exp.to_identifier(name))


def _as_exists(select: exp.Select, join: exp.Join) -> None:
    meets = join.args.get("on")
    if join.args.get("using"):
        meets = _used(select, join)
        if meets is None:
            return
    join.pop()
    inner = exp.Select(expressions=[exp.Literal.number(1)], from_=exp.From(this=join.this))
    if meets is not None:
        inner.set("where", exp.Where(this=meets))
    exists: exp.Expr = exp.Exists(this=inner)
    select.where(exp.Not(this=exists) if join.kind == "ANTI" else exists, copy=False)


def _used(select: exp.Select, join: exp.Join) -> exp.Expr | None:
    """The columns of USING, if the left side is one table, whose columns can then be qualified."""
    left, right = from_nodes(select)[0].alias_or_name, join.this.alias_or_name
    if select.args["joins"][0] is not join or not left or left == right:
        return None
    if not right:
        right = "_matched"
        join.this.set("alias", exp.TableAlias(this=exp.to_identifier(right)))
    names = [name.name for name in join.args["using"]]
    return exp.and_(*(exp.EQ(this=exp.column(name, left), expression=exp.column(name, right)) for name in names))


def _as_values(select: exp.Select, join: exp.Join) -> None:
    """A lateral query of aggregates alone has one row, so each of its columns is a value."""
    lateral = join.this
    query = lateral.this.this if isinstance(lateral.this, exp.Subquery) else lateral.this
    meets = join.args.get("on")
    properties = meets is None or (isinstance(meets, exp.Boolean) and meets.this)
    if not isinstance(query, exp.Select) or query.args.get("group") or not lateral.alias or not properties:
        return
    if extra_clauses(join, {"this", "side", "kind", "on"}) or join.side not in ("", "LEFT"):
        return
    if extra_clauses(query, {"expressions", "from_", "joins", "where"}) or not all(map(has_aggregate, query.selects)):
        return
    alias = lateral.args["alias"]
    names = [name.name for name in alias.args.get("columns") or ()] or [output_name(item) for item in query.selects]
    values = {name.lower(): unaliased(item) for name, item in zip(names, query.selects, strict=False)}
    join.pop()
    for column in nodes_of(select, exp.Column):
        if _is_of(column, lateral.alias, select) and column.name.lower() in values:
            one = copied(query)
            one.set("expressions", [copied(values[column.name.lower()])])
            value: exp.Expr = exp.Subquery(this=one)
            item = column.parent is select and column.arg_key == "expressions"
            column.replace(exp.alias_(value, column.name) if item else value)


NEXT = "_next"
BEYOND: dict[type[exp.Expr], tuple[bool, type[exp.Binary]]] = {
    exp.GTE: (False, exp.LT),
    exp.GT: (False, exp.LTE),
    exp.LTE: (True, exp.GT),
    exp.LT: (True, exp.GTE),
}
"""In which order the next public row comes, and how the row compares with it while this one is the nearest."""
MIRRORED: dict[type[exp.Expr], type[exp.Binary]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


def _as_ranges(select: exp.Select, join: exp.Join) -> None:
    """t ASOF JOIN u ON t.k = u.k AND t.x >= u.y: of public rows the nearest, which is valid up to the next one."""
    alias, on = join.this.alias_or_name, join.args.get("on")
    shows_all = any(item.is_star and not has_aggregate(item) for item in select.selects)
    if not alias or on is None or shows_all or extra_clauses(join, {"this", "method", "side", "on"}):
        return
    pairs = [_sides(part, alias) for part in conditions_of(exp.Where(this=copied(on)))]
    if any(pair is None for pair in pairs) or join.side not in ("", "LEFT"):
        return
    nearest = [pair for pair in pairs if pair is not None and pair[0] in BEYOND]
    if len(nearest) != 1:
        return
    ((kind, mine, its),) = nearest
    descending, still = BEYOND[kind]
    window = exp.Window(
        this=exp.Lead(this=copied(its)),
        partition_by=[copied(pair[2]) for pair in pairs if pair is not None and pair[0] is exp.EQ],
        order=exp.Order(expressions=[exp.Ordered(this=copied(its), desc=descending, nulls_first=False)]),
        over="OVER",
    )
    rows = exp.Select(expressions=[exp.Star(), exp.alias_(window, NEXT)], from_=exp.From(this=join.this))
    following = exp.column(NEXT, alias)
    valid = exp.or_(exp.Is(this=following, expression=exp.Null()), still(this=mine, expression=copied(following)))
    join.set("method", None)
    join.set("this", exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(alias))))
    join.set("on", exp.and_(on, valid, copy=False))


def _sides(part: exp.Expr, alias: str) -> tuple[type[exp.Expr], exp.Expr, exp.Expr] | None:
    """A comparison as its kind, the side without and the side with columns of the table of this name only."""
    if type(part) not in (exp.EQ, *BEYOND):
        return None
    if any(not column.table for column in nodes_of(part, exp.Column)):
        return None
    read = [nodes_of(side, exp.Column) for side in (part.this, part.expression)]
    sides = [{column.table.lower() == alias.lower() for column in columns} for columns in read]
    if sides == [{False}, {True}]:
        return type(part), part.this, part.expression
    return (MIRRORED.get(type(part), exp.EQ), part.expression, part.this) if sides == [{True}, {False}] else None


def _is_of(column: exp.Column, alias: str, select: exp.Select) -> bool:
    """Whether a column names the lateral query: by its alias, or alone where nothing else can be meant."""
    if column.table:
        inner = column.parent_select
        own = from_nodes(inner) if inner is not None and inner is not select else []
        hidden = any(item.alias_or_name.lower() == alias.lower() for item in own)
        return column.table.lower() == alias.lower() and not hidden
    aliases = {item.alias.lower() for item in select.selects if isinstance(item, exp.Alias)}
    return column.parent_select is select and column.name.lower() not in aliases


# -- pivots ------------------------------------------------------------------------------------------------------------
# PIVOT and UNPIVOT as what they stand for.
#
# PIVOT (SELECT a, b, n ...) ON b IN ('x', 'y') USING SUM(n)
#     SELECT a, SUM(n) FILTER (WHERE b = 'x') AS x, SUM(n) FILTER (WHERE b = 'y') AS y FROM (...) GROUP BY a
# UNPIVOT (SELECT n, s ...) ON n, s INTO NAME what VALUE v
#     SELECT 'n' AS what, n AS v FROM (...) WHERE n IS NOT NULL UNION ALL SELECT 's', s FROM (...) WHERE s IS NOT NULL
#
# Which columns an answer has must not depend on rows, so the values are listed, or those that the schema declares.

if TYPE_CHECKING:
    ValuesOf = Callable[[exp.Table, str], Collection[Any]]

KNOWN = {"this", "expressions", "fields", "using", "group", "unpivot", "into", "alias", "columns", "with_"}
NOTES = {"identify_pivot_strings", "prefixed_pivot_columns", "pivot_column_naming", "value_columns_first"}
"""Notes of the parser to its own writer."""


def unpivoted(tree: exp.Expr, text: str, values_of: ValuesOf) -> exp.Expr:
    """The statement as a query, where it is a PIVOT; those inside are rewritten in place.

    `values_of` gives what is declared of a column: all that it can be, or None.
    """
    for pivot in nodes_of(tree, exp.Pivot)[::-1]:
        if pivot.arg_key != "pivots":  # a statement, or a query in WITH or FROM
            found = _as_query(pivot, text, values_of)
            if pivot is tree:
                tree = found
            else:
                pivot.replace(found)
    for node in nodes_of(tree, exp.Subquery, exp.Table):
        for pivot in node.args.get("pivots") or ():
            _replace(node, pivot, text, values_of)
    return tree


def _as_query(pivot: exp.Pivot, text: str, values_of: ValuesOf) -> exp.Query:
    """PIVOT t ON a USING SUM(b)"""
    if pivot.args.get("unpivot"):
        names = [part.name for part in pivot.expressions]
        if len(names) == 1 and isinstance(pivot.expressions[0], exp.Columns) and pivot.expressions[0].this.is_star:
            names = _columns(pivot, pivot.this, text, "UNPIVOT")
        return _unpivot(pivot.this, names, *_into(pivot), text)
    return _pivot(pivot, pivot.this, pivot.expressions, pivot.args.get("using") or [], text, values_of)


def _replace(node: exp.Expr, pivot: exp.Pivot, text: str, values_of: ValuesOf) -> None:
    """(SELECT ...) PIVOT (SUM(n) FOR b IN ('x', 'y')) AS p"""
    source = copy_in_place(node)
    source.set("pivots", None)
    alias = source.args.get("alias")
    if len(node.args["pivots"]) > 1 or alias is not None:
        raise _refuse("only one PIVOT may follow a subquery", pivot, "put the first one into a subquery", text)
    if pivot.args.get("unpivot"):
        (field,), (value,) = pivot.args["fields"], pivot.expressions
        query = _unpivot(source, [part.name for part in field.expressions], field.this.name, value.name, text)
    else:
        query = _pivot(pivot, source, pivot.args["fields"], pivot.expressions, text, values_of)
    node.replace(exp.Subquery(this=query, alias=pivot.args.get("alias")))


def _pivot(
    pivot: exp.Expr,
    source: exp.Expr,
    fields: Sequence[exp.Expr],
    calls: Sequence[exp.Expr],
    text: str,
    values_of: ValuesOf,
) -> exp.Select:
    for clause in extra_clauses(pivot, KNOWN | NOTES):
        raise _refuse(f"PIVOT with {clause.replace('_', ' ')} is not supported", pivot, "remove it", text)
    on = fields[0].this if fields and isinstance(fields[0], exp.In) else fields[0] if fields else None
    values = _pivot_values(fields[0]) if on is not None else []
    if on is not None and not values:
        values = [_constant(value) for value in _declared(on, source, values_of)]
    if len(fields) != 1 or on is None or not values or not calls:
        raise _refuse(
            "PIVOT needs one column and its values",
            pivot,
            "list them: ON region IN ('north', 'south') USING SUM(n)",
            text,
        )
    group = pivot.args.get("group")
    keys = list(group.expressions) if group is not None else _others(pivot, source, [on, *calls], text)
    columns = [
        exp.alias_(_filtered(unaliased(call), on, unaliased(value)), _name(value, call, len(calls)), quoted=True)
        for value in values
        for call in calls
    ]
    found = exp.Select(
        expressions=[*(copied(key) for key in keys), *columns],
        from_=exp.From(this=source),
        with_=pivot.args.get("with_"),
    )
    if keys:
        found.set("group", exp.Group(expressions=[copied(key) for key in keys]))
    return found


def _pivot_values(field: exp.Expr) -> list[exp.Expr]:
    """The values that are written; none for ANY and where there are none."""
    listed = list(field.expressions) if isinstance(field, exp.In) else []
    return [] if any(isinstance(value, exp.PivotAny) for value in listed) else listed


def _declared(on: exp.Expr, source: exp.Expr, values_of: ValuesOf) -> list[object]:
    """The possible values of a column of a declared table, followed through renamings in subqueries."""
    name: str | None = on.name if isinstance(on, exp.Column) else None
    while isinstance(source, exp.Subquery) and name is not None:
        select = source.this
        tables = from_nodes(select) if isinstance(select, exp.Select) else []
        items = [item for item in getattr(select, "selects", ()) if output_name(item).lower() == name.lower()]
        column = unaliased(items[0]) if len(items) == 1 else None
        name = column.name if isinstance(column, exp.Column) else None
        if len(tables) != 1:
            return []
        source = tables[0]
    if name is None or not isinstance(source, exp.Table) or is_defined(source):
        return []
    return sorted(values_of(source, name), key=lambda value: (str(type(value)), value))


def _constant(value: object) -> exp.Expr:
    if isinstance(value, bool | int | str):
        return exp.convert(value)
    return exp.cast(exp.Literal.string(str(value)), "DATE")


def _filtered(call: exp.Expr, on: exp.Expr, value: exp.Expr) -> exp.Expr:
    chosen = exp.Where(this=exp.EQ(this=copied(on), expression=copied(value)))
    return exp.Filter(this=copied(call), expression=chosen)


def _name(value: exp.Expr, call: exp.Expr, count: int) -> str:
    """The column name that DuckDB would choose."""
    constant = unaliased(value)
    shown = value.alias or (str(constant.this).lower() if isinstance(constant, exp.Boolean) else constant.name)
    return f"{shown}_{output_name(call)}" if count > 1 or isinstance(call, exp.Alias) else str(shown)


def _others(pivot: exp.Expr, source: exp.Expr, read: Sequence[exp.Expr], text: str) -> list[exp.Expr]:
    """The columns that nothing of the PIVOT reads: its groups."""
    used = {column.name.lower() for part in read for column in nodes_of(part, exp.Column)}
    return [exp.column(name) for name in _columns(pivot, source, text) if name.lower() not in used]


def _columns(pivot: exp.Expr, source: exp.Expr, text: str, word: str = "PIVOT") -> list[str]:
    query = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(query, exp.Select) or any(item.is_star for item in query.selects):
        raise _refuse(
            f"{word} needs known columns",
            pivot,
            f"name them in a subquery: {word} (SELECT a, b, n FROM t) ON ...",
            text,
        )
    return [output_name(item) for item in query.selects]


def _into(pivot: exp.Expr) -> tuple[str, str]:
    """INTO NAME what VALUE v"""
    into = pivot.args.get("into")
    return ("name", "value") if into is None else (into.this.name, into.expressions[0].name)


def _unpivot(source: exp.Expr, names: Sequence[str], name: str, value: str, text: str) -> exp.Query:
    listed = {part.lower() for part in names}
    others = [column for column in _columns(source, source, text, "UNPIVOT") if column.lower() not in listed]
    parts: list[exp.Query] = []
    for part in names:
        missing = exp.Is(this=exp.column(part), expression=exp.Null())
        parts.append(
            exp.Select(
                expressions=[
                    *(exp.column(other) for other in others),
                    exp.alias_(exp.Literal.string(part), name),
                    exp.alias_(exp.column(part), value),
                ],
                from_=exp.From(this=copied(source)),
                where=exp.Where(this=exp.Not(this=missing)),
            )
        )
    return reduce(lambda left, right: exp.Union(this=left, expression=right, distinct=False), parts)


def _refuse(what: str, node: exp.Expr, hint: str, text: str) -> Unsupported:
    return Unsupported(what, at=place_of(node, text), hint=hint)
