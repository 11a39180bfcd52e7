"""What a PostgreSQL database says of its tables: columns, views, constraints. No value is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.engines.duckdb.declared_tables import Found
from dpsql.engines.postgresql.stored import StoredType, stored_type
from dpsql.engines.quoting import literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    Rows = list[tuple[Any, ...]]

DOMAIN, ORDINARY, PARTITIONED, VIEW = "d", "r", "p", "v"
SCHEMA = "(SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = {})"
WHERE_SHOWN = f"c.relnamespace = {SCHEMA} AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
TABLES = f"""
    SELECT c.relname, c.oid, c.relkind, c.relrowsecurity, has_table_privilege(c.oid, 'SELECT')
    FROM pg_class AS c WHERE {WHERE_SHOWN}
"""
COLUMNS = f"""
    SELECT c.relname, a.attname, a.atttypid, a.atttypmod, a.attnotnull AND NOT EXISTS (
            SELECT 1 FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.conkey = ARRAY[a.attnum]
            AND k.contype = 'n' AND NOT k.convalidated
        ), a.attgenerated, has_column_privilege(c.oid, a.attnum, 'SELECT')
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE {WHERE_SHOWN} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.oid, a.attnum
"""
TYPES = "SELECT oid, typname, typtype, typbasetype, typtypmod FROM pg_type WHERE typtype IN ('b', 'd', 'e')"
CONSTRAINTS = f"""
    SELECT c.relname, a.attname, k.contype, other.relname, target.attname
    FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
    LEFT JOIN pg_class AS other ON other.oid = k.confrelid
    LEFT JOIN pg_attribute AS target ON target.attrelid = other.oid AND target.attnum = k.confkey[1]
    WHERE {WHERE_SHOWN} AND k.contype IN ('p', 'u', 'f') AND array_length(k.conkey, 1) = 1
"""
PARTS = """
    WITH RECURSIVE below AS (
        SELECT inhparent AS top, inhrelid AS part FROM pg_inherits
        UNION SELECT top, inhrelid FROM below JOIN pg_inherits ON inhparent = part
    )
    SELECT top, relkind FROM below JOIN pg_class AS c ON c.oid = part
"""


@dataclass(frozen=True)
class PostgreSQLTable:
    found: Found
    types: Mapping[str, StoredType]
    readable: frozenset[str]
    """The columns that this role may read."""
    can_be_locked: bool
    """Whoever may read some columns alone may not; nor can what is neither a table nor a view."""
    references: Mapping[str, tuple[str, str]]
    """Column -> the table and the column that it refers to."""


def current_schema(connection: psycopg.Connection) -> str | None:
    ((name,),) = _rows(connection, "SELECT pg_catalog.current_schema()")
    return None if name is None else str(name)


def found_tables(connection: psycopg.Connection, schema: str) -> dict[str, PostgreSQLTable]:
    """The tables and views there, by their names in lower case; of two that differ in case alone there is neither."""
    columns: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for table, *column in _rows(connection, COLUMNS, schema):
        columns[table].append(tuple(column))
    types = {oid: rest for oid, *rest in _rows(connection, TYPES)}
    constraints = _rows(connection, CONSTRAINTS, schema)
    children: dict[int, set[str]] = defaultdict(set)
    for parent, kind in _rows(connection, PARTS):
        children[parent].add(kind)
    tables = _rows(connection, TABLES, schema)
    spelled = Counter(name.lower() for name, *_ in tables)
    return {
        name.lower(): _table(
            name,
            readable and kind in (ORDINARY, PARTITIONED, VIEW),
            # Rows of a view, of a foreign table, and those that a policy chooses, are what somebody's SQL makes of it.
            kind not in (ORDINARY, PARTITIONED) or has_policies or bool(children[oid] - {ORDINARY, PARTITIONED}),
            kind == ORDINARY and bool(children[oid]),
            {column: (_resolved(oid_, modifier, types), *rest) for column, oid_, modifier, *rest in columns[name]},
            [rest for table, *rest in constraints if table == name],
        )
        for name, oid, kind, has_policies, readable in tables
        if spelled[name.lower()] == 1
    }


def _table(
    name: str,
    can_be_locked: bool,
    is_view: bool,
    has_heirs: bool,
    columns: dict[str, tuple[StoredType, bool, str, bool]],
    constraints: list[list[Any]],
) -> PostgreSQLTable:
    """Constraints do not hold for rows of tables that inherit from this one."""
    types = {column: stored for column, (stored, *_) in columns.items()}
    unique = {column for column, contype, *_ in constraints if contype in "pu" and types[column].keeps_apart}
    required = {column for column, (stored, not_null, *_) in columns.items() if not_null and not stored.may_be_nan}
    found = Found(
        name=name,
        columns={column: stored.common for column, stored in types.items()},
        is_view=is_view,
        computed=frozenset(column for column, (*_, generated, _) in columns.items() if generated == "v"),
        unique=frozenset(() if has_heirs else unique),
        required=frozenset(() if has_heirs else required),
    )
    references = {column: (table, target) for column, contype, table, target in constraints if contype == "f"}
    readable = frozenset(column for column, (*_, may_be_read) in columns.items() if may_be_read)
    return PostgreSQLTable(found, types, readable, can_be_locked, references)


def _resolved(oid: int, modifier: int, types: Mapping[int, list[Any]]) -> StoredType:
    """The type below a domain."""
    while oid in types:
        name, kind, base, own = types[oid]
        if kind != DOMAIN:
            return stored_type(name, kind, modifier)
        oid, modifier = base, own
    return StoredType("composite")


def _rows(connection: psycopg.Connection, sql: str, schema: str = "") -> Rows:
    found: Rows = connection.execute(sql.format(literal(schema)).encode()).fetchall()
    return found
