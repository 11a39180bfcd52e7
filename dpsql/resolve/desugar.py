"""Other ways to write what there is a clause for.

x = ANY (SELECT ...), x = ANY ([1, 2])         x IN (...)
x <> ALL (SELECT ...)                          NOT x IN (...)
x IN (VALUES (1), (2))                         x IN (1, 2)
(a, b) IN (VALUES (1, 2), (3, 4))              (a = 1 AND b = 2) OR (a = 3 AND b = 4)
(a, b) IN ((1, 2), (3, 4))                     the same with IS NOT DISTINCT FROM
t SEMI JOIN u ON c, t ANTI JOIN u ON c         WHERE [NOT] EXISTS (SELECT 1 FROM u WHERE c)
FROM (t JOIN u ON c)                           FROM t JOIN u ON c
FROM (t JOIN u ON c) AS j                      FROM (SELECT * FROM t JOIN u ON c) AS j
FROM t, LATERAL (SELECT COUNT(*) AS n ...) l   l.n is (SELECT COUNT(*) ...)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.resolve.quantified import COMPARED, PATTERNS, unquantified
from dpsql.resolve.syntax import (
    extra_clauses,
    from_nodes,
    has_aggregate,
    output_name,
    typed_text,
    unaliased,
    with_marks,
)

if TYPE_CHECKING:
    from dpsql.resolve.quantified import IsPublic


def desugar(tree: exp.Expr, is_public: IsPublic) -> None:
    """Rewrites the tree in place. `is_public` tells the queries that read public tables alone."""
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


def _listed_tuples(node: exp.Expr) -> exp.Expr:
    """Rows of VALUES are compared part by part, as those of a subquery are; tuples of a list as wholes, NULLs too."""
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
    """What USING says, where the left side is one table, whose columns can be told from those of the right one."""
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


def _is_of(column: exp.Column, alias: str, select: exp.Select) -> bool:
    """Whether a column names the lateral query: by its alias, or alone where nothing else can be meant."""
    if column.table:
        inner = column.parent_select
        own = from_nodes(inner) if inner is not None and inner is not select else []
        hidden = any(item.alias_or_name.lower() == alias.lower() for item in own)
        return column.table.lower() == alias.lower() and not hidden
    aliases = {item.alias.lower() for item in select.selects if isinstance(item, exp.Alias)}
    return column.parent_select is select and column.name.lower() not in aliases
