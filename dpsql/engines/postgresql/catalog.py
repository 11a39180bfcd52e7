"""The catalogue of a PostgreSQL database: columns, views, constraints. No value is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dpsql.engine_sql.tree import Wide
from dpsql.engines.postgresql.scalars import FIRST_DAY, LAST_DAY, by_code_points, from_numeric, try_cast, type_name
from dpsql.engines.render import literal
from dpsql.engines.tables import FoundTable
from dpsql.schema.types import WIDEST_DECIMAL, Date, Decimal, Double, Integer, Text, Timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from dpsql.engine_sql.tree import Kind
    from dpsql.schema.types import ColumnType

# -- stored ------------------------------------------------------------------------------------------------------------
# Types that PostgreSQL stores, and how a column of each is read as what is declared: it fails for no value.

COMMON: dict[str, str] = {
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "bool": "BOOLEAN",
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext"), "VARCHAR"),
    "uuid": "UUID",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
}
"""PostgreSQL's name of a type, and the one that schemas are checked by, which all engines share."""
ANY_DECIMAL = f"DECIMAL({WIDEST_DECIMAL},0)"
"""A NUMERIC of any digits: whatever decimal is declared, what does not fit into it is no value."""


@dataclass(frozen=True)
class StoredType:
    """The stored type; for a domain, its base type."""

    name: str
    digits: tuple[int, int] | None = None
    """Precision and scale of a NUMERIC that has them."""
    is_enum: bool = False
    labels: tuple[str, ...] = field(default=(), compare=False)
    """Of an enum, in its order. A new one changes no table."""

    @property
    def common(self) -> str:
        """The engine-independent type; a type with its own name matches no declared type."""
        if self.is_enum:
            return "ENUM"
        if self.name == "numeric" and self.digits is not None and self.digits[1] == 0:
            return "HUGEINT"
        if self.name == "numeric":
            return ANY_DECIMAL if self.digits is None else "DECIMAL({},{})".format(*self.digits)
        return COMMON.get(self.name, self.name.upper())

    @property
    def keeps_apart(self) -> bool:
        """A NUMERIC of any digits is rounded to those that are declared."""
        return self.name != "numeric" or self.digits is not None

    @property
    def may_be_nan(self) -> bool:
        return self.name == "numeric"

    def read_as(self, column: str, declared: ColumnType) -> str:
        match declared:
            case Text():
                return by_code_points(self._spelled(column))
            case Double() | Decimal() if self.name == "numeric":
                return from_numeric(column, declared, self.digits)
            case Integer() if self.name == "numeric":
                return _at_once(column, Wide(), declared)
            case Decimal():
                return _at_once(column, Integer(), declared)
            case Timestamp() if self.name == "timestamptz":
                return f"({column} AT TIME ZONE 'UTC')"
            case Timestamp() if self.name == "date":
                # The engine's dates go further than its timestamps.
                return f"CASE WHEN {column} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN CAST({column} AS TIMESTAMP) END"
            case Date() | Timestamp():
                return column
            case _:
                return f"CAST({column} AS {type_name(declared)})"

    def _spelled(self, column: str) -> str:
        """An enum as its label and a UUID as its digits, whatever casts to text somebody made for them."""
        if not self.is_enum and self.name != "uuid":
            return f"CAST({column} AS TEXT)"
        return f"CASE WHEN {column} IS NOT NULL THEN concat({column}) END"


def _at_once(column: str, source: Kind, declared: ColumnType) -> str:
    return try_cast(column, source, declared, lambda values, write: write(*values))


def stored_type(name: str, kind: str, modifier: int) -> StoredType:
    """By what the catalogue says: the name, whether it is an enum, and the modifier that holds a NUMERIC's digits.

    >>> stored_type("numeric", "b", ((10 << 16) | 2) + 4).common
    'DECIMAL(10,2)'
    """
    if name != "numeric" or modifier < 4:
        return StoredType(name, is_enum=kind == "e")
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
    fits = precision <= WIDEST_DECIMAL and 0 <= scale <= precision
    return StoredType(name, (precision, scale) if fits else None)


# -- catalog -----------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Rows = list[tuple[Any, ...]]

DOMAIN, ORDINARY, PARTITIONED, VIEW = "d", "r", "p", "v"
KINDS = {VIEW: "a view", "m": "a materialized view", "f": "a foreign table"}
SCHEMA = "(SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = {})"
WHERE_SHOWN = f"c.relnamespace = {SCHEMA} AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
TABLES = f"""
    SELECT c.relname, c.oid, c.relkind, c.relrowsecurity, has_table_privilege(c.oid, 'SELECT'), c.relispartition
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
LABELS = "SELECT enumtypid, array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum GROUP BY 1"
TYPES = "SELECT oid, typname, typtype, typbasetype, typtypmod FROM pg_type WHERE typtype IN ('b', 'd', 'e')"
# What counts as a guarantee. A constraint is worth what its index enforces now, on every partition: one that was added
# to the parent alone, or failed while it was built, is in the catalogue and is not valid.
UNIQUE = """
    SELECT c.relname, a.attname FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
    JOIN pg_index AS i ON i.indexrelid = k.conindid
    WHERE {shown} AND k.contype IN ('p', 'u') AND array_length(k.conkey, 1) = 1 AND k.convalidated
    AND NOT k.condeferrable AND i.indisunique AND i.indisvalid AND i.indisready AND i.indislive AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
""".replace("{shown}", WHERE_SHOWN)
# No guarantee: `init` proposes ways to the unit by them, which the owner looks at.
REFERENCES = f"""
    SELECT c.relname, a.attname, other.relname, target.attname
    FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
    JOIN pg_class AS other ON other.oid = k.confrelid
    JOIN pg_attribute AS target ON target.attrelid = other.oid AND target.attnum = k.confkey[1]
    WHERE {WHERE_SHOWN} AND k.contype = 'f' AND array_length(k.conkey, 1) = 1
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
    found: FoundTable
    types: Mapping[str, StoredType]
    readable: frozenset[str]
    """The columns that this role may read."""
    can_be_locked: bool
    """Whoever may read some columns alone may not; nor can what is neither a table nor a view."""
    references: Mapping[str, tuple[str, str]]
    """Column -> the table and the column that it refers to."""
    is_partition: bool
    nullable: frozenset[str]
    """The columns that no constraint keeps from being NULL."""


def current_schema(connection: psycopg.Connection) -> str | None:
    ((name,),) = _rows(connection, "SELECT pg_catalog.current_schema()")
    return None if name is None else str(name)


def found_tables(connection: psycopg.Connection, schema: str) -> dict[str, PostgreSQLTable]:
    """The tables and views there, by lower-case name; names that differ only in case are omitted."""
    columns: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for table, *column in _rows(connection, COLUMNS, schema):
        columns[table].append(tuple(column))
    types = {oid: rest for oid, *rest in _rows(connection, TYPES)}
    labels = {oid: tuple(listed) for oid, listed in _rows(connection, LABELS)}
    unique, references = _rows(connection, UNIQUE, schema), _rows(connection, REFERENCES, schema)
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
            _what(kind, has_policies, children[oid]),
            kind == ORDINARY and bool(children[oid]),
            {
                column: (_resolved(oid_, modifier, types, labels), *rest)
                for column, oid_, modifier, *rest in columns[name]
            },
            {column for table, column in unique if table == name},
            {column: (other, target) for table, column, other, target in references if table == name},
            is_partition,
        )
        for name, oid, kind, has_policies, readable, is_partition in tables
        if spelled[name.lower()] == 1
    }


def _what(kind: str, has_policies: bool, children: set[str]) -> str | None:
    """What somebody's SQL or another server makes rows of; None for a table."""
    if kind in KINDS:
        return KINDS[kind]
    if has_policies:
        return "a table with row level security"
    return "a table with partitions on another server" if children - {ORDINARY, PARTITIONED} else None


def _table(
    name: str,
    can_be_locked: bool,
    what: str | None,
    has_heirs: bool,
    columns: dict[str, tuple[StoredType, bool, str, bool]],
    unique: set[str],
    references: dict[str, tuple[str, str]],
    is_partition: bool,
) -> PostgreSQLTable:
    """A table. Constraints do not cover rows of inheriting tables or of another server."""
    enforced = not has_heirs and what is None
    types = {column: stored for column, (stored, *_) in columns.items()}
    required = {column for column, (stored, not_null, *_) in columns.items() if not_null and not stored.may_be_nan}
    found = FoundTable(
        name=name,
        columns={column: stored.common for column, stored in types.items()},
        is_view=what is not None,
        what=what or FoundTable.what,
        computed=frozenset(column for column, (*_, generated, _) in columns.items() if generated == "v"),
        unique=frozenset(column for column in unique if enforced and types[column].keeps_apart),
        required=frozenset(required if enforced else ()),
    )
    readable = frozenset(column for column, (*_, may_be_read) in columns.items() if may_be_read)
    nullable = frozenset(column for column, (_, not_null, *_) in columns.items() if not (not_null and enforced))
    return PostgreSQLTable(found, types, readable, can_be_locked, references, is_partition, nullable)


def _resolved(
    oid: int, modifier: int, types: Mapping[int, list[Any]], labels: Mapping[int, tuple[str, ...]]
) -> StoredType:
    """The type below a domain."""
    while oid in types:
        name, kind, base, own = types[oid]
        if kind != DOMAIN:
            return replace(stored_type(name, kind, modifier), labels=labels.get(oid, ()))
        oid, modifier = base, own
    return StoredType("composite")


def _rows(connection: psycopg.Connection, sql: str, schema: str = "") -> Rows:
    found: Rows = connection.execute(sql.format(literal(schema)).encode()).fetchall()
    return found
