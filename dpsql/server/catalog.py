"""The catalogue that tools believe: PostgreSQL's system tables, which say what the schema declares.

A statement that reads only pg_catalog, information_schema and dpsql.* is read into a tree, checked node by node, and
run in a scratch DuckDB in the front: it holds the declarations (system_tables.py) and nobody's rows, reaches nothing
outside its memory, and has little memory and time. catalog.sql defines the functions. Nothing here costs anything.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import duckdb
from sqlglot import Dialect, exp
from sqlglot.errors import SqlglotError

from dpsql.errors import SqlSyntaxError
from dpsql.pipeline.parse_sql import check_types, check_words
from dpsql.server.channel import plain
from dpsql.server.protocol import WireType, refused, wire_type
from dpsql.server.system_tables import OWN, Filler, declared_type, system_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SETTINGS: dict[str, Any] = {
    "threads": 1,
    "memory_limit": "128MB",
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
POSTGRES = Dialect.get_or_raise("postgres")
MOST_SECONDS = 5.0
LONGEST_CATALOG_QUERY = 30_000
"""Characters; tools ask with a third of it, and the front serves everybody while it reads one."""
MOST_ROWS = 20_000
LARGEST_ANSWER = 50_000_000
"""Characters of an answer of the catalogue."""
SCHEMAS = {"pg_catalog": "pg", "information_schema": "info", "dpsql": "own"}
LIVE = ("budget", "history")

RESERVED = re.compile(r"(\bAS\s+|\.)(select|update|insert|delete)\b", re.IGNORECASE)
"""Words that Metabase gives to columns, which the parser does not expect there."""

# -- what a statement reads --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """What a statement reads: the catalogue alone, or no table at all; and which of dpsql's own views."""

    tree: exp.Expr | None
    is_catalog: bool
    live: tuple[str, ...] = ()


@lru_cache(512)
def read_statement(sql: str) -> Reading:
    """A statement that cannot be read here is left to the pipeline, which says why it cannot."""
    if len(sql) > LONGEST_CATALOG_QUERY:
        return Reading(None, False)
    tree = _parsed(sql) or _parsed(RESERVED.sub(r'\1"\2"', sql))
    if not isinstance(tree, exp.Query):
        return Reading(tree, False)
    try:
        tables = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
        local = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        read = [_system_table(table) for table in tables if table.db or table.name.lower() not in local]
    except RecursionError:
        return Reading(None, False)
    known = [name for name in read if name is not None]
    if known and len(known) < len(read):
        raise refused("0A000", "a query reads either the catalogue or the data", "ask two queries")
    live = tuple(sorted({name for schema, name in known if schema == "own" and name in LIVE}))
    return Reading(tree, len(known) == len(read), live)


def _parsed(sql: str) -> exp.Expr | None:
    """The only statement of a text; None if there is none that can be read."""
    try:
        tokens = POSTGRES.tokenize(sql)
        check_types(tokens, POSTGRES)
        found = POSTGRES.parser().parse(tokens, sql)
    except (SqlSyntaxError, SqlglotError, RecursionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    return found[0] if len(found) == 1 else None


def _system_table(table: exp.Table) -> tuple[str, str] | None:
    """The schema and name of a table of the catalogue, as they are here."""
    name, schema = table.name.lower(), table.db.lower()
    if schema in SCHEMAS:
        return SCHEMAS[schema], name
    return ("pg", name) if not schema and ("pg", name) in system_tables() else None


# -- checked and rewritten ---------------------------------------------------------------------------------------------
# Only nodes that are known: a function is ours (catalog.sql), or one of these of DuckDB's, which read nothing.

NAMES = """
    abs any_value array_agg array_append array_cat array_length array_position array_remove array_to_string avg bool_and
    bool_or btrim cardinality ceil char_length chr coalesce concat concat_ws count dense_rank every exists floor
    generate_series generate_subscripts greatest initcap json_array json_object least left length log lower ltrim
    max md5 min mod now nullif octet_length position pow power rank regexp_match regexp_replace replace reverse right
    round row_number rtrim sign split_part sqrt starts_with string_agg strpos substr substring sum to_char to_json
    translate trim unnest upper
"""
PLAIN = frozenset(NAMES.split())
NODES = """
    Abs And Any AnyValue Array ArrayAgg ArrayAppend ArrayConcat ArrayLength ArraySize ArrayToString Avg Case Cast Ceil
    Chr Coalesce Concat ConcatWs Count CurrentDate CurrentTime CurrentTimestamp DenseRank Exists Explode Extract Floor
    GenerateSeries Greatest GroupConcat If ILike Initcap Least Left Length Like Localtimestamp Log LogicalAnd LogicalOr
    Lower MD5 Max Min Mod Not Nullif Or Posexplode Pow Rank RegexpExtract RegexpILike RegexpLike Replace
    RegexpReplace Reverse Right Round RowNumber Sign Split SplitPart Sqrt StartsWith StrPosition Substring Sum TimeToStr
    ToChar Translate Trim TryCast Unnest Upper Xor
"""
SAFE = tuple(getattr(exp, name) for name in NODES.split() if hasattr(exp, name))
WRITING = (exp.Command, exp.DDL, exp.DML, exp.Into, exp.Lock)
WORDS: dict[str, str] = {
    "CurrentUser": "current_user",
    "SessionUser": "session_user",
    "CurrentRole": "current_user",
    "CurrentSchema": "current_schema",
    "CurrentSchemas": "current_schemas",
    "CurrentDatabase": "current_database",
    "CurrentCatalog": "current_catalog",
    "CurrentVersion": "version",
    "Version": "version",
    "FormatType": "format_type",
}
"""Functions that the parser has a class for, and ours."""
RENAMED = {"json_build_object": "json_object", "json_build_array": "json_array", "jsonb_build_object": "json_object"}
ANCESTORS = "pg_partition_ancestors"
NAMES_OF_IDS = {"regclass": "relation_named", "regtype": "format_type", "regrole": "role_named"}
IDS_OF_NAMES = {"regclass": "to_regclass", "regtype": "to_regtype", "regnamespace": "to_regnamespace"}
IDS = {"oid", "xid", "cid", "int2vector", "oidvector"}
UNNAMED = "?column?"
TEXTS = {"name", "char", "regproc", "regprocedure", "regoper", "regconfig", "cstring", "unknown", "aclitem"}
REGEX = {"~": (False, False), "~*": (True, False), "!~": (False, True), "!~*": (True, True)}


@lru_cache(1)
def our_functions() -> frozenset[str]:
    return frozenset(re.findall(r"^CREATE MACRO f\.(\w+)", _definitions(), re.MULTILINE))


def _definitions() -> str:
    return (files("dpsql.server") / "catalog.sql").read_text("utf-8")


def rewritten(tree: exp.Expr) -> str:
    """The statement in the scratch database's words; refused where it has a part that is not known here."""
    try:
        copy = tree.copy()
        _name_outputs(copy)
        for node in reversed(list(copy.walk())):  # what a node holds comes after it
            found = _rewrite(node)
            if found is not node:
                node.replace(found)
        check_words(copy.walk())
        for node in copy.find_all(exp.Func, *WRITING):
            _check(node)
        return str(copy.sql(dialect="duckdb"))
    except (SqlSyntaxError, SqlglotError, RecursionError):
        pass
    raise refused("0A000", "this query of the catalogue is not supported", "it is free, and reads no data")


def _name_outputs(tree: exp.Expr) -> None:
    """What PostgreSQL calls columns that have no alias."""
    select = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    if isinstance(select, exp.Select):
        named = [
            item
            if isinstance(item, exp.Alias | exp.Star) or item.is_star
            else exp.alias_(item, _output_name(item), quoted=True)
            for item in select.expressions
        ]
        select.set("expressions", named)


def _output_name(item: exp.Expr) -> str:
    match item:
        case exp.Column() | exp.Anonymous():
            return item.name
        case exp.Cast():
            inner = _output_name(item.this)
            return item.to.sql().lower() if inner == UNNAMED else inner
        case exp.Case():
            return "case"
        case exp.Dot():
            return _output_name(item.expression) if isinstance(item.expression, exp.Func) else item.name
        case exp.Subquery() if isinstance(item.this, exp.Select):
            first = item.this.expressions[0]
            return first.alias or _output_name(first)
        case exp.Func():
            return WORDS.get(type(item).__name__, item.sql_name().lower())
    return UNNAMED


def _rewrite(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Table():
            return _table(node)
        case exp.Dot(this=exp.Identifier() as place) if place.name.lower() in SCHEMAS:
            return cast("exp.Expr", node.expression)
        case exp.Collate():
            return cast("exp.Expr", node.this)
        case exp.Column() if node.args.get("db"):
            return exp.column(node.this.copy(), table=node.args["table"].copy())
        case exp.Operator():
            return _operator(node)
        case exp.Cast():
            return _cast(node)
        case exp.Anonymous():
            name = node.name.lower()
            if name in RENAMED:
                return exp.Anonymous(this=RENAMED[name], expressions=node.expressions)
            return _ours(name, node.expressions) if name in our_functions() else node
        case exp.Func() if type(node).__name__ in WORDS:
            return _ours(WORDS[type(node).__name__], list(node.iter_expressions()))
    return node


def _ours(name: str, arguments: Iterable[exp.Expr]) -> exp.Expr:
    return exp.Dot(this=exp.to_identifier("f"), expression=exp.Anonymous(this=name, expressions=list(arguments)))


def _table(node: exp.Table) -> exp.Expr:
    if not isinstance(node.this, exp.Identifier):
        if node.db.lower() in SCHEMAS:
            node.set("db", None)
        return _ancestors(node, node.this) if ANCESTORS in node.this.sql() else node
    found = _system_table(node)
    if found is None:
        return node
    schema, name = found
    if found not in system_tables() and not (schema == "own" and name in OWN):
        raise refused("42P01", f'there is no table "{node.db}.{node.name}"', "SELECT * FROM pg_catalog.pg_class")
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
    moved = exp.Table(this=exp.to_identifier(name), db=exp.to_identifier(schema), alias=alias)
    if schema == "own" and name in LIVE:
        moved = exp.Table(this=exp.to_identifier(f"_{name}"), alias=alias)
    if node.args.get("joins"):
        moved.set("joins", node.args["joins"])
    return moved


def _ancestors(node: exp.Table, call: exp.Expr) -> exp.Expr:
    """No table has partitions: the only ancestor is itself."""
    found = exp.select(exp.alias_(call.copy(), "relid"), exp.alias_("1", "depth"))
    return exp.Subquery(this=found, alias=node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(ANCESTORS)))


def _operator(node: exp.Operator) -> exp.Expr:
    word = str(node.args["operator"]).replace("pg_catalog.", "").strip()
    if word in REGEX:
        ignoring, negated = REGEX[word]
        kind = exp.RegexpILike if ignoring else exp.RegexpLike
        found = kind(this=node.this, expression=node.expression)
        return exp.Not(this=found) if negated else found
    if word == "=":
        return exp.EQ(this=node.this, expression=node.expression)
    raise refused("42883", f"there is no operator {word[:20]}", None)


def _cast(node: exp.Cast) -> exp.Expr:
    """::regclass is the number of a name, or the name of a number; oid and name are numbers and texts."""
    target = node.to.sql(dialect="postgres").lower().replace("pg_catalog.", "").replace('"', "")
    is_name = isinstance(node.this, exp.Literal | exp.Parameter | exp.Placeholder) and not node.this.is_number
    if target in IDS_OF_NAMES and is_name:
        return _ours(IDS_OF_NAMES[target], [exp.cast(node.this, "text")])
    if target in NAMES_OF_IDS:
        more = [exp.Null()] if target == "regtype" else []
        return _ours(NAMES_OF_IDS[target], [node.this, *more])
    if target == "regnamespace":
        return _ours("namespace_named", [node.this])
    if target.removesuffix("[]") in IDS:
        return exp.cast(node.this, "bigint[]" if target.endswith("[]") else "bigint")
    if target.removesuffix("[]") in TEXTS:
        return exp.cast(node.this, "text[]" if target.endswith("[]") else "text")
    return node


def _check(node: exp.Expr) -> None:
    if isinstance(node, exp.Anonymous):
        if node.name.lower() in PLAIN or (isinstance(node.parent, exp.Dot) and node.name in our_functions()):
            return
        raise refused("42883", f"there is no function {node.name[:60]}", "the catalogue knows PostgreSQL's own")
    if not isinstance(node, SAFE):
        raise refused(
            "0A000", f"{node.sql_name() if isinstance(node, exp.Func) else node.key} is not for the catalogue"
        )


LOOKED_INTO = {
    "_relations": "SELECT oid AS _oid, relname AS _name, relnamespace AS _namespace FROM pg.pg_class",
    "_comments": "SELECT objoid AS _oid, objsubid AS _number, description AS _text FROM pg.pg_description",
    "_settings": "SELECT lower(name) AS _name, setting AS _setting FROM pg.pg_settings",
    "_namespaces": "SELECT oid AS _oid, nspname AS _name FROM pg.pg_namespace",
}
"""What the functions look into."""

# -- scratch database --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """The rows of a catalogue query, with their columns."""

    columns: tuple[tuple[str, WireType], ...]
    rows: list[list[Any]]


class Catalog:
    """The scratch database of one dataset."""

    def __init__(self, dataset: str, declared: Mapping[str, Any]) -> None:
        self.dataset = dataset
        self.declared = declared
        self.types = {
            table["name"].lower(): {
                column["name"].lower(): declared_type(column["type"]) for column in table["columns"]
            }
            for table in declared["tables"]
        }
        """The type of each column of each table; all names in lower case."""
        self._lock = threading.Lock()
        self._connection = duckdb.connect(":memory:", config=SETTINGS)
        self._create()
        Filler(self._connection, dataset, declared).fill()
        self._connection.execute("SET lock_configuration = true")

    def _create(self) -> None:
        for schema in ("pg", "info", "own", "f"):
            self._connection.execute(f"CREATE SCHEMA {schema}")
        for (schema, name), columns in system_tables().items():
            listed = ", ".join(f'"{column}" {kind}' for column, kind in columns)
            self._connection.execute(f"CREATE TABLE {schema}.{name} ({listed})")
        self._connection.execute(f"CREATE TABLE own.columns ({OWN['columns']})")
        self._connection.execute("CREATE TABLE pg._type_names (_oid BIGINT, _typname VARCHAR, _spoken VARCHAR)")
        self._connection.execute("CREATE TABLE pg._definitions (_oid BIGINT, _definition VARCHAR, _attribute VARCHAR)")
        for name, sql in LOOKED_INTO.items():
            self._connection.execute(f"CREATE VIEW pg.{name} AS {sql}")
        self._connection.execute(_definitions())

    def run(
        self, reading: Reading, parameters: Sequence[Any], login: str, pid: int, live: Mapping[str, Any] | None = None
    ) -> Found:
        """The rows of a statement that reads the catalogue. `live` has the rows of dpsql's own views."""
        assert reading.tree is not None
        sql = rewritten(reading.tree)
        with self._lock, self._connection.cursor() as cursor:
            for name, value in (("login", login), ("dataset", self.dataset), ("pid", pid)):
                cursor.execute(f"SET VARIABLE {name} = ?", [value])
            for name in reading.live:
                cursor.execute(f"CREATE TEMP TABLE _{name} ({OWN[name]})")
                rows = (live or {}).get(name)
                if rows:
                    cursor.executemany(f"INSERT INTO _{name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            return self._fetched(cursor, sql, parameters)

    def _fetched(self, cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> Found:
        clock = threading.Timer(MOST_SECONDS, cursor.interrupt)
        clock.start()
        try:
            query = self._prepared(cursor, sql)
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            cursor.execute(query, list(parameters) or None)
            described = cursor.description or []
            rows = _rows(cursor)
            columns = tuple((str(name), wire_type(str(kind))) for name, kind, *_ in described)
            return Found(columns, [[plain(value) for value in row] for row in rows])
        except duckdb.Error as error:
            # There is no data here: what DuckDB says is about the statement.
            said = str(error).splitlines()[0].partition(": ")[2][:200] or "it cannot be run"
        finally:
            clock.cancel()
        raise refused("0A000", f"this query of the catalogue is not supported: {said}", "it is free, and reads no data")

    def _prepared(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
        """One query, as the engine itself reads it, whatever the parser made of it."""
        statements = cursor.extract_statements(sql)
        if len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT:
            return statements[0]
        raise refused("0A000", "this query of the catalogue is not supported", "it is free, and reads no data")


def _rows(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    size = 0
    while len(found) < MOST_ROWS and (rows := cursor.fetchmany(100)):
        size += sum(len(value) for row in rows for value in row if isinstance(value, str | list))
        if size > LARGEST_ANSWER:
            raise refused("54000", "the answer is too long", "ask for fewer rows or columns")
        found += rows
    return found
