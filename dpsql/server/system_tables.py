"""The rows of PostgreSQL's system tables that say what a schema declares, and the tables themselves.

The tables, their columns, the types and the settings are those of a real PostgreSQL (postgresql.txt). `Filler` writes
the declared tables, columns, keys and comments into an empty copy of them, once for each dataset.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dpsql.expressions.format import format_name
from dpsql.schema.types import Decimal, parse_type
from dpsql.server.protocol import BOOL, DATE, FLOAT8, INT8, NUMERIC, TEXT, TIMESTAMP, WireType, wire_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection

FIRST_OID = 16384
NAMESPACES = {"pg_catalog": 11, "public": 2200, "dpsql": 2201, "information_schema": 13000}
OIDS = {
    "pg_type": 1247,
    "pg_attribute": 1249,
    "pg_proc": 1255,
    "pg_class": 1259,
    "pg_database": 1262,
    "pg_constraint": 2606,
    "pg_namespace": 2615,
}
"""Numbers of system tables that tools know by heart."""
LETTERS = {
    "o": "BIGINT",
    "b": "BIGINT",
    "i": "INTEGER",
    "d": "DOUBLE",
    "?": "BOOLEAN",
    "n": "VARCHAR",
    "t": "VARCHAR",
    "s": "TIMESTAMP",
    "T": "VARCHAR[]",
    "O": "BIGINT[]",
    "D": "DOUBLE[]",
}
SPOKEN = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "varchar": "character varying",
    "bpchar": "character",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "time": "time without time zone",
    "timetz": "time with time zone",
}
"""What SQL calls a type that pg_type calls otherwise."""
TYPE_COLUMNS = (
    "oid typname typlen typbyval typtype typcategory typdelim typelem typarray typbasetype typalign typstorage"
)
PRECISIONS = {20: (64, 2, 0), 23: (32, 2, 0), 701: (53, 2, None)}
"""Digits, their base and those after the point, of types that have them."""
OWN = {
    "budget": "dataset VARCHAR, analyst VARCHAR, epsilon DOUBLE, delta DOUBLE, spent_epsilon DOUBLE,"
    " spent_delta DOUBLE, remaining_epsilon DOUBLE, remaining_delta DOUBLE, questions BIGINT, suspended BOOLEAN",
    "history": "number BIGINT, time VARCHAR, analyst VARCHAR, state VARCHAR, epsilon DOUBLE, delta DOUBLE, sql VARCHAR",
    "columns": "table_name VARCHAR, column_name VARCHAR, type VARCHAR, nullable BOOLEAN, declared VARCHAR",
}
"""The views dpsql.budget, dpsql.history and dpsql.columns; the first two are filled when they are asked."""

# -- PostgreSQL's own -------------------------------------------------------------------------------------------------


@lru_cache(1)
def system_tables() -> Mapping[tuple[str, str], tuple[tuple[str, str], ...]]:
    """By schema and name: the columns, with DuckDB's types."""
    found = {}
    for line in postgresql_lines("pg", "info"):
        schema, name, *columns = line
        found[schema, name] = tuple((column[1:], LETTERS[column[0]]) for column in columns)
    return found


@lru_cache(1)
def system_types() -> Mapping[str, Mapping[str, WireType]]:
    """By table and column."""
    return {
        name: {column: wire_type(kind) for column, kind in columns} for (_, name), columns in system_tables().items()
    }


@lru_cache(1)
def setting_values() -> Mapping[str, str]:
    """PostgreSQL's settings, by their names in lower case."""
    return {words[1].lower(): " ".join(words[2:]) for words in postgresql_lines("setting")}


def postgresql_lines(*kinds: str) -> Iterator[list[str]]:
    for line in (files("dpsql.server") / "postgresql.txt").read_text("utf-8").splitlines():
        words = line.split(" ")
        if words[0] in kinds:
            yield words


# -- declared ----------------------------------------------------------------------------------------------------------

TYPES: dict[str, WireType] = {
    "integer": INT8,
    "double": FLOAT8,
    "text": TEXT,
    "boolean": BOOL,
    "date": DATE,
    "timestamp": TIMESTAMP,
}


def declared_type(name: str) -> WireType:
    """PostgreSQL's type of a declared one."""
    kind = parse_type(name)
    if isinstance(kind, Decimal):
        return WireType(NUMERIC.oid, NUMERIC.name, -1, modifier=(kind.precision << 16 | kind.scale) + 4)
    return TYPES[name]


class Filler:
    """Writes what is declared into the system tables, once."""

    def __init__(self, connection: DuckDBPyConnection, dataset: str, declared: Mapping[str, Any]) -> None:
        self.connection = connection
        self.dataset = dataset
        self.declared = declared
        self.next_oid = FIRST_OID

    def fill(self) -> None:
        self._types_and_settings()
        for name, oid in NAMESPACES.items():
            self.put("pg.pg_namespace", oid=oid, nspname=name, nspowner=10)
            self.put("info.schemata", catalog_name=self.dataset, schema_name=name, schema_owner="dpsql")
        self.put("pg.pg_database", oid=5, datname=self.dataset)
        oids = {table["name"]: self._table(table) for table in self.declared["tables"]}
        for table in self.declared["tables"]:
            self._keys(table, oids)
        for name, columns in OWN.items():
            self._view(name, columns)
        for schema, name in system_tables():
            namespace = NAMESPACES["pg_catalog" if schema == "pg" else "information_schema"]
            self._relation(OIDS.get(name) or self._oid(), name, namespace, "v")
        self.connection.execute((files("dpsql.server") / "system_tables.sql").read_text("utf-8"))

    def put(self, table: str, **values: Any) -> None:
        names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))

    def _oid(self) -> int:
        self.next_oid += 1
        return self.next_oid

    def _types_and_settings(self) -> None:
        rows = [words[1:] for words in postgresql_lines("type")]
        listed, marks = ", ".join(TYPE_COLUMNS.split()), ", ".join("?" * len(rows[0]))
        self.connection.executemany(f"INSERT INTO pg.pg_type ({listed}) VALUES ({marks})", rows)
        self.connection.execute("INSERT INTO pg._type_names SELECT oid, typname, typname FROM pg.pg_type")
        for name, spoken in SPOKEN.items():
            self.connection.execute("UPDATE pg._type_names SET _spoken = ? WHERE _typname = ?", [spoken, name])
        settings = [[words[1], " ".join(words[2:])] for words in postgresql_lines("setting")]
        self.connection.executemany("INSERT INTO pg.pg_settings (name, setting) VALUES (?, ?)", settings)

    def _relation(self, oid: int, name: str, namespace: int, kind: str, columns: int = 0) -> None:
        self.put("pg.pg_class", oid=oid, relname=name, relnamespace=namespace, relkind=kind, relnatts=columns)

    def _listed(self, schema: str, name: str, kind: str) -> None:
        place = {"table_catalog": self.dataset, "table_schema": schema, "table_name": name}
        self.put("info.tables", **place, table_type=kind)
        self.put("info.table_privileges", **place)

    def _column(self, schema: str, table: str, oid: int, number: int, name: str, kind: WireType, null: bool) -> None:
        place = {"attrelid": oid, "attnum": number, "attname": name}
        self.put(
            "pg.pg_attribute",
            **place,
            atttypid=kind.oid,
            attlen=kind.size,
            atttypmod=kind.modifier,
            attnotnull=not null,
        )
        precision, radix, scale = PRECISIONS.get(kind.oid, (None, None, None))
        if kind.modifier > 4:
            precision, radix, scale = (kind.modifier - 4) >> 16, 10, (kind.modifier - 4) & 0xFFFF
        named = {"table_catalog": self.dataset, "table_schema": schema, "table_name": table, "column_name": name}
        sizes = {"numeric_precision": precision, "numeric_precision_radix": radix, "numeric_scale": scale}
        types = {"data_type": SPOKEN.get(kind.name, kind.name), "udt_name": kind.name}
        nullable = "YES" if null else "NO"
        self.put("info.columns", **named, **sizes, **types, ordinal_position=number, is_nullable=nullable)

    def _table(self, table: Mapping[str, Any]) -> int:
        oid, name = self._oid(), table["name"]
        self._relation(oid, name, NAMESPACES["public"], "r", len(table["columns"]))
        self._listed("public", name, "BASE TABLE")
        self.put("pg.pg_tables", schemaname="public", tablename=name, tableowner="dpsql", hasindexes=False)
        self._comment(oid, 0, table["comment"])
        for number, column in enumerate(table["columns"], 1):
            known = {"nullable": column["nullable"], "declared": column["comment"]}
            self.put("own.columns", table_name=name, column_name=column["name"], type=column["type"], **known)
            kind = declared_type(column["type"])
            self._column("public", name, oid, number, column["name"], kind, column["nullable"])
            self._comment(oid, number, column["comment"])
        return oid

    def _comment(self, oid: int, number: int, text: str) -> None:
        if text:
            self.put("pg.pg_description", objoid=oid, classoid=OIDS["pg_class"], objsubid=number, description=text)

    def _view(self, name: str, columns: str) -> None:
        oid = self._oid()
        described = [part.strip().split(" ") for part in columns.split(",")]
        self._relation(oid, name, NAMESPACES["dpsql"], "v", len(described))
        self._listed("dpsql", name, "VIEW")
        self.put("pg.pg_views", schemaname="dpsql", viewname=name, viewowner="dpsql")
        for number, (column, kind) in enumerate(described, 1):
            self._column("dpsql", name, oid, number, column, wire_type(kind), True)

    def _keys(self, table: Mapping[str, Any], oids: Mapping[str, int]) -> None:
        """One row per person is a primary key; the way to the person is a foreign one."""
        name, key = table["name"], table["key"]
        if key:
            index = self._oid()
            self._index(index, f"{name}_pkey", name, oids[name], key)
            more = {"conindid": index, "confrelid": 0}
            self._constraint(f"{name}_pkey", name, oids[name], key, f"PRIMARY KEY ({format_name(key)})", **more)
        if table["link"] and table["link"][1] in oids:
            column, to_table, to_column = table["link"]
            target = f"{format_name(to_table)}({format_name(to_column)})"
            definition = f"FOREIGN KEY ({format_name(column)}) REFERENCES {target}"
            there = {"confrelid": oids[to_table], "confkey": self._number(oids[to_table], to_column), "conindid": 0}
            self._constraint(f"{name}_{column}_fkey", name, oids[name], column, definition, **there)

    def _constraint(self, name: str, table: str, oid: int, column: str, definition: str, **there: Any) -> None:
        number, words = self._oid(), " ".join(definition.split()[:2])
        here = {"conname": name, "contype": words[0].lower(), "conrelid": oid, "conkey": self._number(oid, column)}
        self.put("pg.pg_constraint", oid=number, **here, **there)
        self.put("pg._definitions", _oid=number, _definition=definition)
        place = {"constraint_catalog": self.dataset, "constraint_schema": "public", "constraint_name": name}
        place |= {"table_catalog": self.dataset, "table_schema": "public", "table_name": table}
        self.put("info.table_constraints", **place, constraint_type=words)
        self.put("info.key_column_usage", **place, column_name=column, ordinal_position=1)

    def _index(self, index: int, name: str, table: str, oid: int, column: str) -> None:
        self._relation(index, name, NAMESPACES["public"], "i", 1)
        self.put("pg.pg_index", indexrelid=index, indrelid=oid, indkey=self._number(oid, column))
        text = f"CREATE UNIQUE INDEX {name} ON public.{table} USING btree ({column})"
        self.put("pg._definitions", _oid=index, _definition=text, _attribute=column)
        self.put("pg.pg_indexes", schemaname="public", tablename=table, indexname=name, indexdef=text)

    def _number(self, oid: int, column: str) -> list[int]:
        """The position of a column in its table, as a list."""
        sql = "SELECT attnum FROM pg.pg_attribute WHERE attrelid = ? AND lower(attname) = lower(?)"
        return [number for (number,) in self.connection.execute(sql, [oid, column]).fetchall()]
