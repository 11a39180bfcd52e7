"""parse_sql: the query as text -> one SELECT as a tree, with parameters and options in place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from dpsql.errors import Place, SqlSyntaxError, Unsupported
from dpsql.expressions.format import format_name
from dpsql.expressions.lower import place_of
from dpsql.expressions.parser_tree import nodes, nodes_of, of_kinds
from dpsql.expressions.refusals import spoken_name
from dpsql.limits import (
    DEEPEST,
    DEEPEST_TYPES,
    LONGEST_LIST,
    LONGEST_NUMBER,
    LONGEST_QUERY,
    MOST_NODES,
    MOST_PARTS,
    MOST_QUERIES,
    MOST_TERMS,
)
from dpsql.options import with_clauses, with_proposal
from dpsql.pipeline.format import laid_out
from dpsql.sql.desugar import unpivoted
from dpsql.sql.dialects import respell, unchained
from dpsql.sql.parameters import Parameters, bind, check_parameters, check_text, marked, reads_clock, tells_time_taken
from dpsql.sql.post_processing import pivoted_values
from dpsql.sql.privacy_options import number_clauses, read_options
from dpsql.sql.syntax import grammar_of, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlglot import Dialect

    from dpsql.options import QueryRequest, SqlOptions
    from dpsql.pipeline.environment import PublicEnvironment

# -- syntax hints ------------------------------------------------------------------------------------------------------
# What is probably meant where a query cannot be read: a misspelt word, a bracket left open, another system's habit.

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "JOIN", "LEFT", "RIGHT", "INNER"),
    *("OUTER", "UNION", "DISTINCT", "BETWEEN", "EXPLAIN", "QUALIFY", "USING", "WITH", "CASE", "WHEN", "THEN", "ELSE"),
)
LOOKED_AT = 4
"""So many words up to the mark are compared with keywords: the parser stumbles some words after a misspelt one."""
SIMILAR = 0.7
NEAR = 24
"""So many characters around the mark are searched for habits of other systems."""
WORD = re.compile(r"[A-Za-z_]\w*")
QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
DANGLING = re.compile(r"(?i)\b(WHERE|AND|OR|NOT|BY|FROM|SELECT|HAVING|ON|JOIN|LIMIT|IN|LIKE|BETWEEN|SET)\s*;?\s*$")
HABITS = (
    (r"`", "names take double quotes, text takes single quotes"),
    (r"(?i)\bTOP\s+\d+", "write LIMIT 10 at the end of the query"),
    (r"(?i)\bBETWEEN\s+\S+\s+TO\b", "write BETWEEN 10 AND 20"),
    (r"(?i)\b(GROUP|ORDER)\s+(?!BY\b)\w", "write GROUP BY and ORDER BY"),
    (r"\d,\d{3}\b", "write numbers without commas: 1000"),
    (r"%s|%\(\w+\)s", "write ? for each value, and pass the values in order"),
    (r"(?i)\bCOUNT\s+\*", "write COUNT(*)"),
    (r"(?i)\bEXPLAIN\s+ANALYZE|^\s*ANALYZE\b", "write EXPLAIN alone: it is free, and reads no data"),
    (r"=<", "write <="),
    (r"=!", "write <>"),
    (r"&&", "write AND"),
    (r"(?i)\bELSE\s*IF\b|\bELSEIF\b", "write CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END"),
)
UNQUOTED = re.compile(r"[?$]?[\w.]*[-+*/<>=~!@#%^&|?]*")
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
OTHERWISE = "check the words at and before the mark"


def syntax_hint(sql: str, mark: int, names: Iterable[str] = ()) -> str:
    """`names` are those of declared columns and tables.

    >>> syntax_hint("SELEC COUNT(*) FROM visits", 11)
    'did you mean SELECT instead of SELEC?'
    >>> syntax_hint("SELECT COUNT(* FROM visits", 15)
    'a parenthesis is never closed'
    >>> syntax_hint("SELECT AVG(birth year) FROM riders", 17, ["birth year"])
    'write  "birth year"  with double quotes'
    """
    bare = QUOTED.sub(lambda found: " " * len(found[0]), sql)
    return (
        _unquoted(bare, mark, names)
        or _misspelt(bare, mark)
        or _habit(bare[max(0, mark - NEAR) : mark + NEAR])
        or _bracket(bare)
        or _dangling(bare)
        or OTHERWISE
    )


def _unquoted(sql: str, mark: int, names: Iterable[str]) -> str | None:
    """A declared name of several words that the mark is in, or at the end of."""
    for name in sorted(names, key=len, reverse=True):
        for found in re.finditer(rf"(?i)(?<!\w){re.escape(name)}(?!\w)", sql):
            if format_name(name).startswith('"') and found.start() <= mark <= found.end():
                return f"write  {format_name(name)}  with double quotes"
    return None


def _misspelt(sql: str, mark: int) -> str | None:
    """The first of the last words up to the mark that is nearly a keyword; `orders` is a table, not ORDER."""
    words = [found[0] for found in WORD.finditer(sql) if found.start() <= mark][-LOOKED_AT:]
    for word in words:
        close = get_close_matches(word.upper(), KEYWORDS, n=1, cutoff=SIMILAR)
        if close and word.upper().removesuffix("S") not in KEYWORDS:
            return f"did you mean {close[0]} instead of {word}?"
    return None


def _habit(sql: str) -> str | None:
    return next((hint for pattern, hint in HABITS if re.search(pattern, sql)), None)


def _bracket(sql: str) -> str | None:
    missing = sql.count("(") - sql.count(")")
    if missing > 0:
        return "a parenthesis is never closed"
    return "there is one closing parenthesis too many" if missing < 0 else None


def _dangling(sql: str) -> str | None:
    found = DANGLING.search(sql)
    return f"something is missing after {found[1].upper()}" if found else None


# -- parse sql ---------------------------------------------------------------------------------------------------------

UNIT_FIRST = ("DATE_TRUNC", "DATETRUNC", "DATE_DIFF", "DATEDIFF")
"""Functions whose first argument is a unit of time."""
STATEMENTS: dict[type[exp.Expr], str] = {exp.Transaction: "BEGIN", exp.TruncateTable: "TRUNCATE", exp.LoadData: "LOAD"}
"""What people call statements that the parser calls otherwise."""
CHAINS = (exp.And, exp.Or, exp.SetOperation)
"""Operators whose chains are read link by link."""
LINKS = (exp.Paren, *CHAINS)


@dataclass(frozen=True)
class Parsed:
    request: QueryRequest
    tree: exp.Query

    def __str__(self) -> str:
        return laid_out([("sql", [shown(self.tree)]), ("asked", [str(self.request)])])


def parse_sql(request: QueryRequest, public: PublicEnvironment) -> Parsed:
    """
    >>> from dpsql.options import QueryRequest
    >>> request = QueryRequest(sql="SELECT COUNT(*) FROM orders WHERE amount > ?", parameters=(10,))
    >>> parse_sql(request, None).tree.sql()
    'SELECT COUNT(*) FROM orders WHERE amount > 10'
    """
    tree, clauses = _one_query(request, public)
    parts = nodes(tree)
    _check_size(parts)
    _check_groups(parts)
    _check_arguments(parts, request.sql)
    _check_aliases(parts)
    _check_clocks(parts, request.sql)
    check_parameters(request.parameters)
    if clauses:
        request = with_clauses(request, clauses, public.budget.filter.delta)
    request = with_proposal(request)
    spent = frozenset(name for clause in clauses for name in clause.parameters)
    bind(tree, _given(request), spent, request.sql)
    if not any(map(reads_clock, nodes(tree))):
        request = replace(request, now=None)
    respell(tree, request.dialect, request.sql, request.now)
    parts = nodes(tree)
    _check_numbers(parts, request.sql)
    _check_fetch(parts)
    return Parsed(request, tree)


def _given(request: QueryRequest) -> Parameters:
    return Parameters(request.parameters, request.parameter_names)


def _one_query(request: QueryRequest, public: PublicEnvironment) -> tuple[exp.Query, tuple[SqlOptions, ...]]:
    sql = request.sql
    check_text(sql)
    if len(sql) > LONGEST_QUERY:
        raise SqlSyntaxError(
            f"the query is longer than {LONGEST_QUERY:,} characters", hint="split it into several queries"
        )
    found, clauses = _statements(request, public)
    statements = [statement for statement in found if statement is not None]
    if not statements:
        raise SqlSyntaxError("the query is empty", hint="write one, such as SELECT COUNT(*) FROM a_table")
    if len(statements) > 1:
        raise SqlSyntaxError(
            f"there are {len(statements)} statements, but only one can run at a time", hint="run them one by one"
        )
    parts = nodes(statements[0])
    _check_size(parts)  # also before anything is rewritten
    check_words(parts)
    tree = unpivoted(unchained(statements[0]), sql, lambda table, name: pivoted_values(table, name, public.schema))
    if not isinstance(tree, exp.Query):
        raise no_question(tree)
    return tree, clauses


def no_question(tree: exp.Expr) -> SqlSyntaxError | Unsupported:
    """The refusal of a statement that is not a query."""
    if isinstance(tree, exp.Column | exp.Placeholder | exp.Literal | exp.Alias):
        return SqlSyntaxError("this is not a query", hint="write one, such as  SELECT COUNT(*) FROM a_table")
    word = tree.this if isinstance(tree, exp.Command) else STATEMENTS.get(type(tree), tree.key)
    if isinstance(tree, exp.Pivot):
        return Unsupported("PIVOT is not supported", hint="write a column for each: COUNT_IF(x = 'a') AS a")
    if isinstance(tree, exp.Summarize):
        return Unsupported(
            "SUMMARIZE is not supported",
            hint="DESCRIBE a_table lists its columns; query COUNT, AVG, MIN, MAX and STDDEV of those you need",
        )
    if isinstance(tree, exp.Describe | exp.Show | exp.Use | exp.Pragma) or str(word).upper() == "SHOW":
        return Unsupported(
            f"{str(word).upper()} is not supported",
            hint="SHOW TABLES lists the tables, DESCRIBE a_table the columns of one",
        )
    return Unsupported(
        f"{str(word).upper()} is not supported: dpsql only answers queries",
        hint="write a SELECT; to change data, use the database's own tools",
    )


def _check_size(parts: Sequence[exp.Expr]) -> None:
    """Counts the nodes and their depth; the links of a chain (a AND b AND c) count as one level."""
    if len(parts) > MOST_NODES:
        raise SqlSyntaxError(f"the query has more than {MOST_NODES:,} words", hint="split it into several queries")
    if len(of_kinds(parts, exp.Select)) > MOST_QUERIES:
        raise SqlSyntaxError(
            f"there are more than {MOST_QUERIES} SELECTs", hint="name a subquery that you use twice: WITH q AS (...)"
        )
    depths: dict[int, int] = {}
    for node in parts:  # what a node stands in comes first
        above = depths.get(id(node.parent), 0)
        depths[id(node)] = above if isinstance(node, LINKS) and _is_link(node) else above + 1
    if max(depths.values()) > DEEPEST:
        raise too_deep()
    for node in of_kinds(parts, exp.And):
        if not _is_link(node) and sum(1 for _ in node.flatten()) > MOST_TERMS:
            raise SqlSyntaxError(
                f"more than {MOST_TERMS} conditions are joined by AND",
                hint="for a long list of exceptions write  x NOT IN (1, 2, 3)",
            )
    if any(len(node.expressions) > LONGEST_LIST for node in of_kinds(parts, exp.In, exp.Values)):
        raise SqlSyntaxError(
            f"a list has more than {LONGEST_LIST:,} values",
            hint="put them in a public table, and write IN (SELECT x FROM that_table)",
        )


def _check_groups(parts: Sequence[exp.Expr]) -> None:
    if any(not any(group.args.values()) for group in of_kinds(parts, exp.Group)):
        raise SqlSyntaxError("nothing follows GROUP BY", hint="name a key, or omit GROUP BY")


def _check_aliases(parts: Sequence[exp.Expr]) -> None:
    """Refuses SELECT x AS a, a + a AS b, b + b AS c, ..., because an engine expands each alias."""
    for select in of_kinds(parts, exp.Select):
        if not any(item.alias for item in select.expressions):
            continue
        sizes: dict[str, int] = {}
        for item in select.expressions:
            names = [node.name.lower() for node in nodes_of(item, exp.Column) if not node.table]
            inherited = sum(sizes.get(name, 0) for name in names)
            if inherited > MOST_PARTS:
                raise SqlSyntaxError(
                    f"an alias expands to more than {MOST_PARTS:,} functions and operators",
                    hint="each use of an alias counts its whole expression; compute it in a subquery first",
                )
            if item.alias:
                sizes[item.alias.lower()] = len(names) + inherited


def _is_link(node: exp.Expr) -> bool:
    return isinstance(node, exp.Paren) or (isinstance(node, CHAINS) and type(node.parent) is type(node))


def too_deep() -> SqlSyntaxError:
    return SqlSyntaxError("the query is nested too deeply", hint="name its parts with WITH, or use IN for long lists")


def _statements(
    request: QueryRequest, public: PublicEnvironment
) -> tuple[Sequence[exp.Expr | None], tuple[SqlOptions, ...]]:
    sql, grammar = request.sql, grammar_of(request.dialect)
    problem: SqlSyntaxError
    try:
        marks = list(marked(grammar.tokenize(sql), request.parameter_names))
        tokens, clauses = read_options(marks, sql, _given(request).by_any_name)
        _check_chains(tokens)
        check_types(tokens, grammar)
        _check_lists(tokens, sql)
        if request.dialect == "duckdb":
            _check_units(tokens, sql)
            _check_state(tokens, sql)
        found = grammar.parser().parse(tokens, sql)
        if len(clauses) > 1:
            for statement in found:
                number_clauses(statement)
        return found, clauses
    except ParseError as error:
        problem = _syntax_error(sql, error, _declared_names(public))
    except TokenError:
        problem = SqlSyntaxError("the query ends inside a quoted string or a comment", hint="close the quotes")
    except RecursionError:
        problem = too_deep()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # The parser's own words for functions of other databases take it for granted that all arguments are there.
        problem = SqlSyntaxError(
            "a function has the wrong arguments", hint="check the functions of the query one by one"
        )
    raise problem


def _check_arguments(parts: Sequence[exp.Expr], sql: str) -> None:
    """Functions that lack an argument, which the parser does not always notice."""
    for node in of_kinds(parts, exp.Func):
        missing = [key for key, needed in node.arg_types.items() if needed and node.args.get(key) in (None, [])]
        if missing and not isinstance(node, exp.Anonymous | exp.Case | exp.Cast):
            place = place_of(node, sql)
            raise SqlSyntaxError(
                f"{spoken_name(node, place)} has too few arguments",
                at=place,
                hint="docs/sql.md lists the arguments of each function",
            )


def _check_chains(tokens: Sequence[Token]) -> None:
    """Refuses name.f().f().f()... before it is read, which takes the parser time by the square of its length."""
    dots = [after for after in pairwise(tokens) if after[1].token_type is TokenType.DOT]
    if sum(before.token_type is TokenType.R_PAREN for before, _ in dots) > DEEPEST:
        raise too_deep()


def check_words(parts: Iterable[exp.Expr]) -> None:
    """What is written without quotes has to be a word: in EXTRACT("year FROM d), EXTRACT(month" FROM d) it is SQL."""
    for part in parts:
        word = _as_written(part)
        if word is not None and not UNQUOTED.fullmatch(word):
            raise SqlSyntaxError(f"{word[:60]!r} is not a word", hint="write it without quotes")


def _as_written(part: exp.Expr) -> str | None:
    """What the writer of SQL takes as it is."""
    match part:
        case exp.Extract() | exp.Parameter():
            return str(part.this.name)
        case exp.Var() | exp.Placeholder():
            return str(part.name)
        case exp.DataType():
            return str(part.args.get("kind") or "")
        case exp.Operator():
            return str(part.args["operator"])
    return None


def check_types(tokens: Sequence[Token], grammar: Dialect) -> None:
    """Refuses int[int[int[... before it is read: the parser tries each bracket as the type's own, and then again."""
    opened: list[bool] = []
    for before, token in pairwise(tokens):
        if token.token_type in OPENING:
            is_if = before.text.upper() == "IF" and token.token_type is not TokenType.L_PAREN
            opened.append(is_if or before.token_type in grammar.parser_class.TYPE_TOKENS)
            if sum(opened) > DEEPEST_TYPES:
                raise too_deep()
        elif token.token_type in CLOSING and opened:
            opened.pop()


def _check_lists(tokens: Sequence[Token], sql: str) -> None:
    """x IN [1, NULL] passes over NULL where x IN (1, NULL) does not; the parser makes them one."""
    for position, (word, bracket) in enumerate(pairwise(tokens)):
        listed = word.token_type is TokenType.IN and bracket.token_type is TokenType.L_BRACKET
        if listed and not _is_plain_list(tokens[position + 2 :]):
            raise Unsupported(
                "IN takes a list in parentheses", at=Place(sql, bracket.start, bracket.end), hint="write x IN (1, 2)"
            )


def _check_units(tokens: Sequence[Token], sql: str) -> None:
    """DATE_TRUNC(month, day) reads a column called month, which the parser takes for the unit."""
    for name, parenthesis, unit, comma in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        called = name.text.upper() in UNIT_FIRST and parenthesis.token_type is TokenType.L_PAREN
        bare = unit.token_type is not TokenType.STRING and comma.token_type is TokenType.COMMA
        if called and bare and unit.text.isidentifier():
            raise Unsupported(
                f"the unit of {name.text.upper()} must be a constant string",
                at=Place(sql, unit.start, unit.end),
                hint=f"write {name.text.upper()}('{unit.text.lower()}', ...)",
            )


def _check_state(tokens: Sequence[Token], sql: str) -> None:
    """SUM(x) EXPORT_STATE asks for the inner state of an aggregate; the parser takes the word for an alias."""
    for end, word in pairwise(tokens):
        is_bare = word.text.upper() == "EXPORT_STATE" and word.token_type is TokenType.VAR
        if is_bare and end.token_type is TokenType.R_PAREN:
            raise Unsupported(
                "EXPORT_STATE is not supported",
                at=Place(sql, word.start, word.end),
                hint="remove it; or write AS export_state if it is a name",
            )


def _is_plain_list(tokens: Sequence[Token]) -> bool:
    """Whether only literals follow up to the closing bracket."""
    inside = takewhile(lambda token: token.token_type is not TokenType.R_BRACKET, tokens)
    return all(
        token.token_type in (TokenType.NUMBER, TokenType.STRING, TokenType.COMMA, TokenType.DASH) for token in inside
    )


def _declared_names(public: PublicEnvironment) -> set[str]:
    tables = public.schema.tables
    return {*tables, *(name for table in tables.values() for name in table.columns)}


def _syntax_error(sql: str, error: ParseError, names: Collection[str]) -> SqlSyntaxError:
    detail = error.errors[0] if error.errors else {}
    highlight = str(detail.get("highlight") or "")
    start = len(str(detail.get("start_context") or ""))
    # The context is cut to its last characters: look for it from the line that the parser names.
    line_start = _line_start(sql, int(detail.get("line") or 1))
    found = sql.find(str(detail.get("start_context") or "")[-40:] + highlight, max(0, line_start - start))
    if highlight and found >= 0:
        begin = sql.find(highlight, found + min(40, start))
        place = Place(sql, begin, begin + len(highlight) - 1)
        return SqlSyntaxError(
            f'the query cannot be read at "{highlight}"', at=place, hint=syntax_hint(sql, begin, names)
        )
    return SqlSyntaxError("the query cannot be read", hint=syntax_hint(sql, len(sql), names))


def _line_start(sql: str, line: int) -> int:
    position = 0
    for _ in range(line - 1):
        position = sql.find("\n", position) + 1
    return position


def _check_clocks(parts: Sequence[exp.Expr], text: str) -> None:
    """The whole question has one moment, before any row is read: how long it takes may depend on rows."""
    for node in parts:
        if tells_time_taken(node):
            place = place_of(node, text)
            name = node.name if isinstance(node, exp.Column) else spoken_name(node, place)
            raise Unsupported(
                f"{name} is not supported: it depends on when a part of the query runs",
                at=place,
                hint="write NOW() or CURRENT_DATE, the time of asking in UTC; NOW()::TIME is its time of day",
            )


def _check_fetch(parts: Sequence[exp.Expr]) -> None:
    """DuckDB's SQL cannot express these, so they would silently get lost."""
    for fetch in of_kinds(parts, exp.Fetch):
        options = fetch.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise Unsupported(
                "FETCH takes a number of rows; PERCENT and WITH TIES are not supported", hint="write LIMIT 10"
            )


def _check_numbers(parts: Sequence[exp.Expr], sql: str) -> None:
    """Refuses literals that are no numbers, or have more digits than any column."""
    for node in of_kinds(parts, exp.Literal):
        if node.is_string:
            continue
        place = Place(sql, node.meta["start"], node.meta["end"]) if "start" in node.meta else None
        if node.this[-1:].lower() == "e":
            raise SqlSyntaxError("the number ends before its exponent", at=place, hint="write 4e2, or 400")
        if len(node.this) > LONGEST_NUMBER or math.isinf(float(node.this)):
            raise SqlSyntaxError("the number is too large", at=place, hint="use one below 1e308")
