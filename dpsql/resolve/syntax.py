"""Small questions about the parser's nodes."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlglot import Dialect, exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from dpsql.errors import Unsupported
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.resolve.bounds import is_wrapper, without_bounds
from dpsql.resolve.names import function_name
from dpsql.resolve.options import REPORT
from dpsql.resolve.quantiles import is_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


# What the parser has to say is said by our own errors, not on stderr.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


def _duckdb() -> Dialect:
    """DuckDB's SQL, read and written with positions as they stand.

    The parser's own would count from 0 where it takes the operand of x[1] for a list, and from 1 where it knows it for
    a text; which of the two, parameters and names put in later can change on the way.
    """
    dialect = Dialect.get_or_raise("duckdb")
    dialect.INDEX_OFFSET = 0
    return dialect


UNTRANSLATED = "PG_"
"""Before the names of functions whose formats stay as they are written."""


def _postgres() -> Dialect:
    """PostgreSQL's SQL, with formats of dates as they are written.

    The parser's own would translate those codes that it knows, and keep the others as if they were plain text.
    """
    dialect = Dialect.get_or_raise("postgres")
    functions = {
        "TO_CHAR": exp.ToChar.from_arg_list,
        **{name: _untranslated(name) for name in ("TO_DATE", "TO_TIMESTAMP")},
    }
    parser: Any = type("Parser", (dialect.parser_class,), {"FUNCTIONS": dialect.parser_class.FUNCTIONS | functions})
    dialect.parser_class = parser
    return dialect


def _untranslated(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    return lambda arguments: exp.Anonymous(
        this=UNTRANSLATED + name if len(arguments) == 2 else name, expressions=arguments
    )


DUCKDB = _duckdb()


@cache
def grammar_of(dialect: str) -> Dialect:
    """Whose words a query uses. Other grammars than DuckDB's are loaded by who asks in them."""
    if dialect == "duckdb":
        return DUCKDB
    return _postgres() if dialect == "postgres" else Dialect.get_or_raise(dialect)


INTERVAL_ENDS = ("DP_INTERVAL_LOW", "DP_INTERVAL_HIGH")


def extra_clauses(node: exp.Expr, known: set[str]) -> list[str]:
    """The clauses of a node that are not among the known ones."""
    return [key for key, value in node.args.items() if value not in (None, False, []) and key not in known]


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node itself aggregates the rows below; the function of a window does not."""
    named = isinstance(node, exp.Anonymous) and function_name(node) is not None
    if is_grouping(node):
        return False
    if isinstance(node, exp.IgnoreNulls):  # which the parser puts around ANY_VALUE
        return is_aggregate(node.this)
    if not (named or isinstance(node, exp.AggFunc | exp.Filter) or is_quantile(node)):
        return False
    above = node.parent.parent if isinstance(node.parent, exp.Filter | exp.IgnoreNulls) else node.parent
    return not isinstance(above, exp.Window)


def has_aggregate(node: exp.Expr) -> bool:
    """Whether the node, or anything in it but a subquery, aggregates the rows below."""
    if isinstance(node, exp.Query):
        return False
    return (
        is_aggregate(node)
        or is_interval_end(node)
        or is_grouping(node)
        or any(map(has_aggregate, node.iter_expressions()))
    )


def aggregates(query: exp.Expr) -> bool:
    """Whether the query, or one inside of it, aggregates."""
    selects = nodes_of(query, exp.Select)
    return any(select.args.get("group") or any(map(has_aggregate, select.expressions)) for select in selects)


def is_grouping(node: exp.Expr) -> bool:
    """GROUPING(a, b): which of these keys a total leaves out."""
    return isinstance(node, exp.Grouping | exp.GroupingId)


def is_report(node: exp.Expr) -> bool:
    """An aggregate with report_format => JSON."""
    return isinstance(node, exp.Anonymous) and node.name == REPORT


def is_interval_end(node: exp.Expr) -> bool:
    """DP_INTERVAL_LOW(alias), DP_INTERVAL_HIGH(alias): an end of the interval around another item of the SELECT."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in INTERVAL_ENDS


def stray_bounds(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Bounds that do not stand in an aggregate, right behind its column."""
    for node in nodes_of(tree, exp.Anonymous):
        if is_wrapper(node):
            above = node.parent.parent if isinstance(node.parent, exp.Distinct) else node.parent
            if above is None or not (is_wrapper(above) or is_aggregate(above)):
                yield node


def is_test(node: exp.Expr) -> bool:
    """IN and EXISTS over a subquery."""
    if isinstance(node, exp.In):
        return node.args.get("query") is not None and not node.expressions
    return isinstance(node, exp.Exists) and isinstance(node.this, exp.Query)


def is_subquery(node: exp.Expr) -> bool:
    """Whether the node stands for a value or a condition that a query gives."""
    return isinstance(node, exp.Query | exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def unwrapped(query: exp.Expr) -> exp.Expr:
    """The query without parentheses, unless these carry clauses of their own: ((SELECT ...) LIMIT 1)."""
    while isinstance(query, exp.Subquery) and not extra_clauses(query, {"this"}):
        query = query.this
    return query


def written(tree: exp.Expr) -> str:
    """The tree as a text for DuckDB; what that has no words for is refused, never left out.

    The tree must be nobody else's: the generator changes it.
    """
    try:
        return DUCKDB.generate(tree, copy=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        problem = Unsupported(
            f"DuckDB has no words for a part of the query: {str(error).splitlines()[0]}",
            hint="use functions of DuckDB above the aggregates",
        )
    raise problem


def shown(tree: exp.Expr) -> str:
    """The tree as a text for people, and to tell one from another."""
    return _spelled(tree, unsupported_level=ErrorLevel.IGNORE)


def _spelled(tree: exp.Expr, **options: Any) -> str:
    """As `written`, of a tree that is still needed."""
    return DUCKDB.generate(copied(tree), copy=False, **options)


def text_of(query: exp.Expr) -> str:
    """What tells a subquery from others: queries of the same text are the same."""
    return shown(unwrapped(query))


def outermost(node: exp.Expr, is_wanted: Callable[[exp.Expr], bool]) -> Iterator[exp.Expr]:
    """The nodes of a kind that do not stand inside each other, nor in a subquery."""
    pending = [node]
    while pending:
        part = pending.pop()
        if is_wanted(part):
            yield part
        elif not isinstance(part, exp.Query):
            pending.extend([*part.iter_expressions()][::-1])


def copy_in_place(query: exp.Expr) -> exp.Expr:
    """A copy that can be taken apart, and still knows which queries stand around it."""
    copy = copied(query)
    copy.parent = query.parent
    return copy


def nested_queries(query: exp.Expr) -> Iterator[exp.Query]:
    """The outermost queries inside a query, but for those in WITH, FROM and the sides of a UNION."""
    done = {id(part) for part in (query.args.get("with_"), *from_nodes(query))}
    if isinstance(query, exp.SetOperation):
        done |= {id(query.left), id(query.right)}
    pending = [child for child in query.iter_expressions() if id(child) not in done]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            pending.extend(child for child in node.iter_expressions() if id(child) not in done)


def from_nodes(select: exp.Expr) -> list[exp.Expr]:
    """What stands in FROM, item by item."""
    first = select.args.get("from_")
    return [first.this, *(join.this for join in select.args.get("joins") or ())] if first is not None else []


def is_defined(table: exp.Table) -> bool:
    """Whether a table is one that a WITH clause defines where it is read."""
    below: exp.Expr = table
    above = None if table.args.get("db") is not None else table.parent
    while above is not None:
        if isinstance(above, exp.With):
            adaptive = above.expressions[: above.expressions.index(below)] if below in above.expressions else []
        else:
            clause = above.args.get("with_")
            adaptive = clause.expressions if clause is not None and clause is not below else []
        if any(part.alias.lower() == table.name.lower() for part in adaptive):
            return True
        below, above = above, above.parent
    return False


def conditions_of(where: exp.Where | None) -> list[exp.Expr]:
    """The parts of a WHERE that must all hold."""
    pending, parts = [where.this] if where is not None else [], []
    while pending:
        node = unaliased(pending.pop())
        if isinstance(node, exp.And):
            pending += [node.right, node.left]
        else:
            parts.append(node)
    return parts


def is_star(node: exp.Expr) -> bool:
    """COUNT(*) and COUNT()."""
    return isinstance(node, exp.Count) and (node.this is None or isinstance(node.this, exp.Star))


def unaliased(item: exp.Expr) -> exp.Expr:
    while isinstance(item, exp.Alias | exp.Paren):
        item = item.this
    return item


def output_name(item: exp.Expr) -> str:
    """The name that the analyst gave, or the one DuckDB would give."""
    if isinstance(item, exp.Alias | exp.Column):
        return str(item.alias_or_name)
    item = without_bounds(item)
    if is_star(item):
        return "count_star()"
    return _spelled(item, normalize_functions="lower", unsupported_level=ErrorLevel.IGNORE)


def typed_text(value: exp.Expr) -> exp.Expr:
    """A text in an array or a tuple has its type already, and is not read as the date that it is compared with."""
    return exp.cast(value, "VARCHAR") if isinstance(value, exp.Literal) and value.is_string else value


def with_marks(new: exp.Expr, old: exp.Expr) -> exp.Expr:
    """The new node, where the old one was written."""
    new.meta.update(old.meta)
    return new


def free_name(name: str, taken: Collection[str]) -> str:
    """A second column of the same name is called as DuckDB calls it: id, id_1, id_2."""
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
