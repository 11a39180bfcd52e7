"""Other ways to write what there is a clause for.

x = ANY (SELECT ...), x = ANY ([1, 2])         x IN (...)
x <> ALL (SELECT ...)                          NOT x IN (...)
x IN (VALUES (1), (2))                         x IN (1, 2)
(a, b) IN (VALUES (1, 2), (3, 4))              (a = 1 AND b = 2) OR (a = 3 AND b = 4)
(a, b) IN ((1, 2), (3, 4))                     the same with IS NOT DISTINCT FROM
t SEMI JOIN u ON c, t ANTI JOIN u ON c         WHERE [NOT] EXISTS (SELECT 1 FROM u WHERE c)
FROM (t JOIN u ON c)                           FROM t JOIN u ON c
FROM t, LATERAL (SELECT COUNT(*) AS n ...) l   l.n is (SELECT COUNT(*) ...)
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.resolve.syntax import extra_clauses, from_nodes, has_aggregate, output_name, unaliased


def desugar(tree: exp.Expr) -> None:
    """Rewrites the tree in place."""
    for node in list(tree.find_all(exp.EQ, exp.NEQ, exp.In)):
        plain = _listed_tuples(node) if isinstance(node, exp.In) else _quantified_as_in(node)
        if plain is not node:
            node.replace(plain)
    for select in list(tree.find_all(exp.Select)):
        _open_parentheses(select)
        for join in list(select.args.get("joins") or ()):
            if join.kind in ("SEMI", "ANTI") and not extra_clauses(join, {"this", "kind", "on"}):
                _as_exists(select, join)
            elif isinstance(join.this, exp.Lateral):
                _as_values(select, join)


def _quantified_as_in(node: exp.Expr) -> exp.Expr:
    """An empty array stays as it is: NULL = ANY ([]) is false, NULL IN () is not."""
    if isinstance(node, exp.NEQ):
        query = node.expression.this if isinstance(node.expression, exp.All) else None
        return exp.Not(this=_with_marks(exp.In(this=node.this, query=query), node)) if _is_query(query) else node
    choices = node.expression.this if isinstance(node.expression, exp.Any) else None
    if _is_query(choices):
        return _with_marks(exp.In(this=node.this, query=choices), node)
    choices = unaliased(choices) if choices is not None else None
    if isinstance(choices, exp.Array) and choices.expressions:
        return _with_marks(exp.In(this=node.this, expressions=list(map(_typed, choices.expressions))), node)
    return node


def _is_query(node: exp.Expr | None) -> bool:
    return isinstance(node.this if isinstance(node, exp.Subquery) else node, exp.Query)


def _listed_tuples(node: exp.Expr) -> exp.Expr:
    """Rows of VALUES are compared part by part, as those of a subquery are; tuples of a list as wholes, NULLs too."""
    value, rows = unaliased(node.this), node.expressions
    equal: type[exp.Binary] = exp.NullSafeEQ
    if len(rows) == 1 and isinstance(rows[0], exp.Values):
        equal, rows = exp.EQ, rows[0].expressions
        if all(len(row.expressions) == 1 for row in rows):
            return _with_marks(exp.In(this=node.this, expressions=[_typed(row.expressions[0]) for row in rows]), node)
    if not isinstance(value, exp.Tuple) or not rows or not all(isinstance(row, exp.Tuple) for row in rows):
        return node
    if any(len(row.expressions) != len(value.expressions) for row in rows):
        return node  # refused where it is read
    same = []
    for row in rows:
        pairs = zip(value.expressions, row.expressions, strict=True)
        same.append(
            exp.and_(*(equal(this=part.copy(), expression=_typed(wanted)) for part, wanted in pairs), copy=False)
        )
    return exp.Paren(this=exp.or_(*same, copy=False))


def _typed(value: exp.Expr) -> exp.Expr:
    """A text in an array or a tuple has its type already, and is not read as the date that it is compared with."""
    return exp.cast(value, "VARCHAR") if isinstance(value, exp.Literal) and value.is_string else value


def _with_marks(new: exp.Expr, old: exp.Expr) -> exp.Expr:
    new.meta.update(old.meta)
    return new


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


def _as_exists(select: exp.Select, join: exp.Join) -> None:
    meets = join.args.get("on")
    join.pop()
    inner = exp.Select(expressions=[exp.Literal.number(1)], from_=exp.From(this=join.this))
    if meets is not None:
        inner.set("where", exp.Where(this=meets))
    exists: exp.Expr = exp.Exists(this=inner)
    select.where(exp.Not(this=exists) if join.kind == "ANTI" else exists, copy=False)


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
    for column in list(select.find_all(exp.Column)):
        if _is_of(column, lateral.alias, select) and column.name.lower() in values:
            one = query.copy()
            one.set("expressions", [values[column.name.lower()].copy()])
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
