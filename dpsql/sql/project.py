"""A SELECT without aggregates over people: projections, windows within one unit, DISTINCT that keeps the unit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.format import format_name
from dpsql.expressions.parser_tree import copied
from dpsql.expressions.tree import Column, Expression
from dpsql.relation.relation import Distinct, Filter, Project, Relation, Window
from dpsql.sql.calls import Windows, read_windows
from dpsql.sql.rows import PrivateRows, internal_column, internal_name
from dpsql.sql.syntax import extra_clauses, free_name, from_nodes, outermost, output_name, unaliased

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.schema.model import Schema
    from dpsql.sql.from_clause import Source
    from dpsql.sql.scope import Scope
    from dpsql.sql.subqueries import Filtered

# -- people shown ------------------------------------------------------------------------------------------------------
# What is said where a query would show people's rows as they are, or groups of one person each.

SHOWS_ROWS = "the query would show individual rows of people"
SHOWS_GROUPS = "each group would be one person's"
AGGREGATE_FIRST = "aggregate: COUNT(*), SUM(x), AVG(x)"
SHARED = "group by values that people share, or aggregate over everybody"


def people_shown(query: exp.Expr, problem: str, schema: Schema) -> tuple[str, exp.Expr, str]:
    """The problem, its place and the way out, for a query that is rows of people.

    One with a GROUP BY has the unit among its keys, or it would be an answer.
    """
    select = query.this if isinstance(query, exp.Subquery) else query
    group = select.args.get("group")
    if group is not None:
        return SHOWS_GROUPS, group, f"{SHARED}: SELECT AVG(LEAST(n, 100)) FROM ({_counted(select)})"
    table = _only_table(select)
    if table is None:
        return problem, query, AGGREGATE_FIRST
    declared = f"; DESCRIBE {format_name(table)} lists its columns" if schema.table(table) is not None else ""
    return problem, query, f"aggregate: SELECT COUNT(*) FROM {format_name(table)}{declared}"


def _counted(select: exp.Expr) -> str:
    table, keys = _only_table(select), select.args["group"].expressions
    if table is None or len(keys) != 1 or not isinstance(keys[0], exp.Column):
        return "SELECT unit, COUNT(*) AS n FROM ... GROUP BY unit"
    key = format_name(keys[0].name)
    return f"SELECT {key}, COUNT(*) AS n FROM {format_name(table)} GROUP BY {key}"


def _only_table(select: exp.Expr) -> str | None:
    items = from_nodes(select) if isinstance(select, exp.Select) else []
    return items[0].name if len(items) == 1 and isinstance(items[0], exp.Table) else None


# -- project -----------------------------------------------------------------------------------------------------------


def project(below: Filtered, select: exp.Select) -> PrivateRows:
    unit = " or ".join(below.rows.unit_names or below.rows.names_of(below.rows.unit_keys))
    chosen = _chosen(below, select)
    refuse_order(
        below,
        select,
        "rows of people",
        "use it above an aggregate, or keep some rows of each person: "
        f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {unit} ORDER BY ...) <= 3",
    )
    if chosen is not None or select.args.get("distinct"):
        refuse_preserved_side(below)
    nodes = [*select.expressions, *([chosen] if chosen is not None else [])]
    below = below.reading([*nodes, *(select.args.get("windows") or ())])
    windows = read_windows(nodes, select.args.get("windows") or [], below)
    columns = _columns(select, below.scope, windows)
    relation: Relation = below.rows.relation
    if windows.calls:
        relation = Window(relation, windows.calls)
    if chosen is not None:
        clause = "DISTINCT ON" if _distinct_on(select) else "QUALIFY"
        relation = Filter(relation, below.scope.condition(windows.replaced(chosen), clause))
    if windows.calls:
        refuse_preserved_side(below)
    rows = output_rows(replace(below.rows, relation=relation), columns)
    if below.rows.kept is not None:
        inner = {internal_name(name): value for name, value in columns.items()}
        rows = replace(rows, kept=below.rows.kept.projected(inner, below.conditions))
    if select.args.get("distinct") and not _distinct_on(select):
        return replace(rows, relation=Distinct(rows.relation))
    return rows


def _chosen(below: Filtered, select: exp.Select) -> exp.Expr | None:
    """The condition of QUALIFY, or of DISTINCT ON (unit) ... ORDER BY day: row number 1 in a window per unit."""
    qualify, keys = select.args.get("qualify"), _distinct_on(select)
    if not keys:
        return _without_aliases(qualify.this, below.scope) if qualify is not None else None
    if qualify is not None:
        raise below.scope.resolver.refuse(
            "DISTINCT ON cannot be used with QUALIFY", select.args["distinct"], "use one in a subquery"
        )
    parts = [copied(key) for key in keys]
    order = copied(select.args["order"]) if select.args.get("order") else None
    number = exp.Window(this=exp.RowNumber(), partition_by=parts, order=order, over="OVER")
    return exp.EQ(this=number, expression=exp.Literal.number(1))


def _without_aliases(condition: exp.Expr, scope: Scope) -> exp.Expr:
    """QUALIFY r = 1, where r is the name of a window in the SELECT list: the window itself in its place."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or scope.is_column(node):
            return node
        item = scope.alias(node)
        windowed = item is not None and any(True for _ in item.find_all(exp.Window))
        return exp.Paren(this=copied(item)) if item is not None and windowed else node

    return copied(condition).transform(replaced, copy=False)


def _distinct_on(select: exp.Select) -> list[exp.Expr]:
    distinct = select.args.get("distinct")
    keys = distinct.args.get("on") if distinct is not None else None
    return [] if keys is None else keys.expressions if isinstance(keys, exp.Tuple) else [keys]


def refuse_order(below: Filtered, select: exp.Select, rows: str, hint: str) -> None:
    """The order of rows depends on other people. ORDER BY alone selects none and has no effect below an aggregate."""
    for clause in ("limit", "offset"):
        if select.args.get(clause):
            if select.parent is None:  # whatever the order, rows of people would be shown
                resolver = below.scope.resolver
                raise resolver.refuse(*people_shown(select, SHOWS_ROWS, resolver.schema))
            raise below.scope.resolver.refuse(f"{clause.upper()} cannot be used on {rows}", select.args[clause], hint)


def refuse_preserved_side(below: Filtered) -> None:
    if below.rows.kept is not None:
        raise below.rows.kept.refuse("rows that belong to no person", "aggregate here, or use an inner join")


def output_rows(rows: PrivateRows, columns: dict[str, Expression]) -> PrivateRows:
    """The rows with these columns, under the names that the SELECT list gives them."""
    seen = {name: Column(internal_name(name), expression.type) for name, expression in columns.items()}
    values = {seen[name].name: expression for name, expression in columns.items()}
    keys = {name: key for name, value in values.items() if (key := rows.key_of(value)) is not None}
    present = {frozenset({name}) for name in keys if rows.tells_unit(values[name])}
    shown = {value.name: name for name, value in values.items() if isinstance(value, Column)}
    present |= {frozenset(map(shown.__getitem__, names)) for names in rows.present if names <= shown.keys()}
    return PrivateRows(
        relation=Project(rows.relation, tuple(values.items())),
        columns=seen,
        unit_keys=keys,
        present=frozenset(present),
        composites=rows.passed_on(values),
        null_group=rows.null_group and rows.null_group.passed_on(values),
        unit_type=rows.unit_type,
    )


# -- COLUMNS -----------------------------------------------------------------------------------------------------------


def with_columns(select: exp.Select, scope: Scope) -> None:
    """COUNT(COLUMNS(*)) is COUNT(a), COUNT(b), ...: each under the name of its column."""
    if not any(True for _ in _multiple(select.expressions)):
        return
    items: list[exp.Expr] = []
    for item in select.expressions:
        nodes = list(_multiple([item]))
        if not nodes:
            items.append(item)
            continue
        if any(node != nodes[0] for node in nodes):
            raise scope.resolver.refuse("two different COLUMNS in one expression", item, "write the columns")
        for name, column in _matched(nodes[0], scope):
            one = copied(item)
            for node in [*_multiple([one])]:
                if node is one:
                    one = internal_column(column)
                else:
                    node.replace(internal_column(column))
            items.append(one if isinstance(one, exp.Alias) else exp.alias_(one, name, quoted=True))
    select.set("expressions", items)


def _multiple(items: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    for item in items:
        yield from outermost(item, lambda node: isinstance(node, exp.Columns))


def _matched(node: exp.Expr, scope: Scope) -> list[tuple[str, Column]]:
    """The columns that COLUMNS(*), COLUMNS(t.* EXCLUDE (a)) or COLUMNS(['a', 'b']) means."""
    wanted = node.this
    star = wanted.this if isinstance(wanted, exp.Column) else wanted
    table = wanted.table.lower() if isinstance(wanted, exp.Column) else ""
    known = dict(_of_table(scope.source, table) if table else _of_all(scope.source))
    listed: set[str] = set()
    names: list[str] = []
    if isinstance(star, exp.Star) and not extra_clauses(star, {"except_"}):
        listed = {part.name.lower() for part in star.args.get("except_") or ()}
        names = [name for name in known if name not in listed]
    elif isinstance(wanted, exp.Array) and all(part.is_string for part in wanted.expressions):
        listed = {part.name.lower() for part in wanted.expressions}
        names = [name for name in known if name in listed]
    found = [(name, column) for name in names if isinstance(column := known.get(name), Column)]
    if not names or len(found) < len(names) or not listed <= known.keys():
        raise scope.resolver.refuse(
            "COLUMNS finds no columns, or is not supported in this form",
            node,
            "write COLUMNS(*), COLUMNS(* EXCLUDE (a)), COLUMNS(['a', 'b']), or the columns themselves",
        )
    return found


def _columns(select: exp.Select, scope: Scope, windows: Windows) -> dict[str, Expression]:
    columns: dict[str, Expression] = {}
    for item in select.expressions:
        for name, expression in _item(item, scope, windows):
            columns[free_name(name, columns)] = expression
    return columns


def _item(item: exp.Expr, scope: Scope, windows: Windows) -> list[tuple[str, Expression]]:
    if not item.is_star:
        return [(output_name(item).lower(), scope.lowering.lower(windows.replaced(unaliased(item))))]
    scope.resolver.only(item, {"this", "table", "except_", "replace", "rename"})
    star = item if isinstance(item, exp.Star) else item.this
    table = item.table if isinstance(item, exp.Column) else ""
    found = _of_table(scope.source, table.lower()) if table else _of_all(scope.source)
    if not found:
        raise scope.resolver.refuse(f'there is no table "{table}"', item, "use the alias of a table in FROM")
    return _changed(found, star, scope, windows)


def _of_table(source: Source, table: str) -> list[tuple[str, Expression]]:
    """t.*"""
    own = [(name.partition("."), column) for name, column in source.columns.items()]
    return [(name, column) for (alias, dot, name), column in own if dot and alias == table and column is not None]


def _of_all(source: Source) -> list[tuple[str, Expression]]:
    """*: the columns of each item in turn, with columns merged by USING only once."""
    found: list[tuple[str, Expression]] = []
    merged = {name for step in source.steps for name in step.using}
    for rows in source.items:
        for name, column in rows.plain_columns.items():
            if name not in merged:
                found.append((name, column))
            elif all(name != other for other, _ in found):
                found.append((name, source.columns[name] or column))
    return found


def _changed(
    columns: list[tuple[str, Expression]], star: exp.Expr, scope: Scope, windows: Windows
) -> list[tuple[str, Expression]]:
    """* EXCLUDE (a) REPLACE (b + 1 AS b) RENAME (c AS d)"""
    scope.resolver.only(star, {"except_", "replace", "rename"})
    left_out = [part.name.lower() for part in star.args.get("except_") or ()]
    replaced = {part.alias.lower(): part.this for part in star.args.get("replace") or ()}
    renamed = {part.this.name.lower(): part.alias.lower() for part in star.args.get("rename") or ()}
    for name in (*left_out, *replaced, *renamed):
        if all(name != other for other, _ in columns):
            raise scope.resolver.refuse(f'* has no column "{name}"', star, "name a column of the tables in FROM")
    return [
        (
            renamed.get(name, name),
            scope.lowering.lower(windows.replaced(replaced[name])) if name in replaced else column,
        )
        for name, column in columns
        if name not in left_out
    ]
