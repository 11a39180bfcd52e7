"""Helpers for the parser's nodes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sqlglot import Dialect, exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from dpsql.aggregates.function import BoundsRule
from dpsql.aggregates.table import AGGREGATES
from dpsql.errors import ProgrammingError, Unsupported
from dpsql.expressions.lower import place_of
from dpsql.expressions.narrow import CLAMP, clamp_ends
from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.relation.facts import ARGUMENTS, WINDOWS
from dpsql.sql.privacy_options import MARK, PER_GROUP, PER_ROW, REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from dpsql.aggregates.function import AggregateFunction
    from dpsql.errors import Place
    from dpsql.expressions.lower import Lowering
    from dpsql.expressions.tree import Expression
    from dpsql.relation.relation import AggregateCall

# -- bounds ------------------------------------------------------------------------------------------------------------
# Bounds that an aggregate carries itself: contribution_bounds_per_row and contribution_bounds_per_group.
#
# Per row, the value is clamped to the bounds before anything else is done with it. Per group, what one unit adds to a
# group is held there: that is part of the aggregate, since it happens after a unit's rows are summed.

if TYPE_CHECKING:
    Given = dict[str, tuple[Fraction, Fraction]]


def is_wrapper(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name in (PER_GROUP, PER_ROW)


def without_bounds(node: exp.Expr) -> exp.Expr:
    """The node as if no bounds were written."""
    if not any(map(_is_ours, nodes_of(node, exp.Anonymous))):
        return node

    def unwrapped(part: exp.Expr) -> exp.Expr:
        # What is put in place of a node is not visited: bounds may stand inside a report.
        return without_bounds(part.expressions[0]) if _is_ours(part) else part

    return node.transform(unwrapped)


def _is_ours(node: exp.Expr) -> bool:
    """Whether the node is one of dpsql's wrappers, for bounds or reports."""
    return isinstance(node, exp.Anonymous) and node.name.startswith(MARK)


def take_bounds(node: exp.Expr, text: str) -> tuple[exp.Expr, Given]:
    """The aggregate without its bounds, and these by the wrapper's name."""
    found: Given = {}
    for wrapper in nodes_of(node, exp.Anonymous):
        if is_wrapper(wrapper):
            place, name = place_of(wrapper, text), wrapper.name.removeprefix(MARK)
            if wrapper.name in found:
                raise ProgrammingError(f"{name} is given twice", at=place, hint="give it once")
            found[wrapper.name] = _pair(wrapper, name, place)
    return (without_bounds(node), found) if found else (node, found)


def _pair(wrapper: exp.Expr, name: str, place: Place | None) -> tuple[Fraction, Fraction]:
    numbers = [written_number(node) for node in wrapper.expressions[1:]]
    if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None:
        if numbers[0] <= numbers[1]:
            return numbers[0], numbers[1]
        raise ProgrammingError("the lower bound is above the upper one", at=place, hint="write (low, high)")
    raise ProgrammingError(f"{name} takes a column and two numbers", at=place, hint=f"write SUM(x, {name} => (0, 500))")


def written_number(node: exp.Expr) -> Fraction | None:
    if isinstance(node, exp.Paren):
        return written_number(node.this)
    if isinstance(node, exp.Neg):
        inner = written_number(node.this)
        return None if inner is None else -inner
    return Fraction(node.this) if isinstance(node, exp.Literal) and not node.is_string else None


def with_bounds(asked: AggregateCall, bounds: Given, node: exp.Expr, lowering: Lowering) -> AggregateCall:
    """The aggregate of values clamped to the bounds, or refused if it cannot be."""
    if PER_ROW in bounds:
        if not _takes(asked, BoundsRule.PER_ROW) or len(asked.arguments) != 1:
            taking = ", ".join(name for name, function in AGGREGATES.items() if BoundsRule.PER_ROW in function.bounds)
            raise Unsupported(
                f"{asked.name} takes no bounds per row", at=asked.at, hint=f"these aggregates do: {taking}"
            )
        (value,) = asked.arguments
        asked = replace(asked, arguments=(_clamped(value, bounds[PER_ROW], node, lowering),))
    if PER_GROUP in bounds:
        _check_by_group(asked, *bounds[PER_GROUP])
        asked = replace(asked, group_bounds=bounds[PER_GROUP])
    return asked


def _takes(asked: AggregateCall, bounds: BoundsRule) -> bool:
    """Functions within one unit alone have rows, and no groups of many people."""
    return bounds in AGGREGATES[asked.name].bounds if asked.name in AGGREGATES else bounds is BoundsRule.PER_ROW


def _check_by_group(asked: AggregateCall, low: Fraction, high: Fraction) -> None:
    if not _takes(asked, BoundsRule.PER_GROUP):
        raise Unsupported(
            f"{asked.name} takes no bounds per group; it works on rows, not on people",
            at=asked.at,
            hint=f"write {asked.name}(x, contribution_bounds_per_row => (low, high))",
        )
    if asked.name == "COUNT" and (low != 0 or high < 1 or high.denominator != 1):
        raise ProgrammingError(
            "a count can only be clamped between 0 and a whole number of rows",
            at=asked.at,
            hint="write COUNT(*, contribution_bounds_per_group => (0, 5))",
        )


def _clamped(value: Expression, ends: tuple[Fraction, Fraction], node: exp.Expr, lowering: Lowering) -> Expression:
    return lowering.build(CLAMP, node, (value, *clamp_ends(value.type, ends)))


# -- names -------------------------------------------------------------------------------------------------------------
# Which function over many rows a node of the parser is, by the names in the tables of aggregates and windows.
#
# The parser has a class for the names that it knows, and calls the others anonymous. A name that no table has is no
# aggregate, whatever stands around it.


def names_of(aggregates: Mapping[str, AggregateFunction]) -> dict[str, str]:
    """Every name that is followed by plain arguments, and what the function is called here."""
    plain = [function for function in aggregates.values() if not function.by_fraction]
    return {name: name for name in WINDOWS} | {name: row.name for row in plain for name in row.names}


def kinds_of(names: Mapping[str, str]) -> dict[type[exp.Expr], str]:
    """The parser's classes among them; a class for two functions would be taken for one of them."""
    kinds: dict[type[exp.Expr], str] = {}
    for name, called in names.items():
        kind = exp.FUNCTION_BY_NAME.get(name)
        if kind is not None and kinds.setdefault(kind, called) != called:
            raise ValueError(f"the parser does not tell {called} from {kinds[kind]}")
    return kinds


NAMES = names_of(AGGREGATES)
KINDS = kinds_of(NAMES)


def function_name(node: exp.Expr) -> str | None:
    """The name of the function here; None if it is not one of them."""
    return NAMES.get(node.name.upper()) if isinstance(node, exp.Anonymous) else KINDS.get(type(node))


def argument_counts(name: str) -> tuple[int, ...]:
    """The possible numbers of arguments."""
    return AGGREGATES[name].arguments if name in AGGREGATES else ARGUMENTS.get(name, (1,))


# -- quantiles ---------------------------------------------------------------------------------------------------------
# The many ways to write a quantile, as one: QUANTILE_CONT(x, 0.9) or QUANTILE_DISC(x, 0.9).
#
# MEDIAN(x)                                       QUANTILE_CONT(x, 0.5)
# PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)  QUANTILE_CONT(x, 0.9)
# APPROX_QUANTILE(x, 0.9), QUANTILE(x, 0.9)       QUANTILE_DISC(x, 0.9)
# QUANTILE_CONT(x, [0.1, 0.9])                    [QUANTILE_CONT(x, 0.1), QUANTILE_CONT(x, 0.9)]
# APPROX_QUANTILES(x, 4)                          [QUANTILE_DISC(x, 0), QUANTILE_DISC(x, 0.25), ...]

CONTINUOUS = (exp.Median, exp.PercentileCont)
QUANTILES = (*CONTINUOUS, exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile, exp.ApproxQuantiles)
MOST_BUCKETS = 1000


@dataclass(frozen=True)
class Quantiles:
    name: str
    value: exp.Expr
    fractions: tuple[Fraction, ...]
    listed: bool
    """Whether the answer is a list."""


def is_quantile(node: exp.Expr) -> bool:
    return isinstance(node, QUANTILES) or (isinstance(node, exp.WithinGroup) and isinstance(node.this, QUANTILES))


def read_quantiles(node: exp.Expr) -> Quantiles | None:
    """The quantiles; None if the call is not written in one of the ways above."""
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


# -- syntax ------------------------------------------------------------------------------------------------------------

# What the parser has to say is said by our own errors, not on stderr.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


def _duckdb() -> Dialect:
    """DuckDB's SQL, read and written with positions unchanged.

    The parser's own would count from 0 where it takes the operand of x[1] for a list, and from 1 where it knows it for
    a text; which of the two, parameters and names put in later can change on the way.
    """
    dialect = Dialect.get_or_raise("duckdb")
    dialect.INDEX_OFFSET = 0
    # The parser's own would take the key 'a.b' for a path, and write it as one.
    dialect.to_json_path = lambda path: path  # type: ignore[method-assign]
    plain = dialect.generator_class
    transforms: Any = {**plain.TRANSFORMS, exp.DateDiff: partial(_date_diff, plain.TRANSFORMS[exp.DateDiff])}
    generator: Any = type("Generator", (plain,), {"TRANSFORMS": transforms})
    dialect.generator_class = generator
    return dialect


PLAIN_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "QUARTER", "YEAR")
"""Those that all dialects count alike."""


def _date_diff(otherwise: Callable[[Any, exp.DateDiff], str], generator: Any, node: exp.DateDiff) -> str:
    """DATE_DIFF of a column and a text, which is read as what the column is: a DATE is not compared with a time.

    The parser's own would make it a timestamp if it has a time.
    """
    ends = node.expression, node.this
    texts = [isinstance(end, exp.Literal) and end.is_string for end in ends]
    unit = exp.Literal.string(node.text("unit"))
    are_weeks = unit.name.upper() not in PLAIN_UNITS
    if texts.count(True) != 1 or (are_weeks and node.args.get("date_part_boundary")):
        return otherwise(generator, node)
    return str(generator.func("DATE_DIFF", unit, *ends))


def read_expression(text: str) -> exp.Expr:
    """One expression of DuckDB's; raises SqlglotError if it is none."""
    (found,) = DUCKDB.parser().parse(DUCKDB.tokenize(f"SELECT {text}"), text)
    assert found is not None
    return found.expressions[0]  # type: ignore[no-any-return]


UNTRANSLATED = "PG_"
"""Before the names of functions whose formats stay as they are written."""


def _postgres() -> Dialect:
    """PostgreSQL's SQL, with date formats unchanged.

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
    """The grammar of a dialect. Grammars other than DuckDB's are loaded on first use."""
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


def reads_all_groups(query: exp.Expr) -> bool:
    """Whether the query, or one inside of it, computes values from several rows: an average of groups, or a rank."""
    return aggregates(query) or query.find(exp.Window) is not None


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
    """Bounds that do not directly follow the column of an aggregate."""
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
    """Whether the node is a subquery that gives a value or a condition."""
    return isinstance(node, exp.Query | exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def unwrapped(query: exp.Expr) -> exp.Expr:
    """The query without parentheses, unless these carry clauses of their own: ((SELECT ...) LIMIT 1)."""
    while isinstance(query, exp.Subquery) and not extra_clauses(query, {"this"}):
        query = query.this
    return query


def written(tree: exp.Expr) -> str:
    """The tree as SQL for DuckDB; anything that DuckDB cannot express is refused, never dropped.

    The caller must not share the tree, because the generator modifies it.
    """
    try:
        return DUCKDB.generate(tree, copy=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        problem = Unsupported(
            f"DuckDB cannot express a part of the query: {str(error).splitlines()[0]}",
            hint="use DuckDB's functions above the aggregates",
        )
    raise problem


def shown(tree: exp.Expr) -> str:
    """The tree as text, for messages and for comparing trees."""
    return _spelled(tree, unsupported_level=ErrorLevel.IGNORE)


def _spelled(tree: exp.Expr, **options: Any) -> str:
    """As `written`, of a tree that is still needed."""
    return DUCKDB.generate(copied(tree), copy=False, **options)


def text_of(query: exp.Expr) -> str:
    """The identity of a subquery: queries with the same text are equal."""
    return shown(unwrapped(query))


def outermost(node: exp.Expr, is_wanted: Callable[[exp.Expr], bool]) -> Iterator[exp.Expr]:
    """The outermost nodes of a kind, outside subqueries."""
    pending = [node]
    while pending:
        part = pending.pop()
        if is_wanted(part):
            yield part
        elif not isinstance(part, exp.Query):
            pending.extend([*part.iter_expressions()][::-1])


def copy_in_place(query: exp.Expr) -> exp.Expr:
    """A copy that can be modified and still has its enclosing queries."""
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
    """The items of FROM."""
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
