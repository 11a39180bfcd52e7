"""The SQLAlchemy dialect: create_engine("dpsql:///shop.duckdb?schema=schemas/shop.yaml&budget=1&delta=1e-6").

URL parameters are passed to `dpsql.connect`. The cost and options of a query are execution options, on
the engine, the connection or the statement: `execution_options(dpsql_epsilon=0.1)`. Reflection shows the declared
schema, and nothing else of the database.

Public groups that look empty are hidden, since charts show no notes. The schema, the URL (`empty_groups=show`) and an
execution option may say otherwise.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from sqlalchemy import types
from sqlalchemy.engine import URL, reflection
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import ArgumentError, NoSuchTableError

import dpsql
import dpsql.schema as declared
from dpsql.accounting.ledger.sqlite import MEMORY
from dpsql.connection import CONNECT_OPTIONS, connect
from dpsql.connection import Connection as PrivateConnection
from dpsql.engines.render import quoted
from dpsql.listing import counts, declared_facts, person_of
from dpsql.options import empty_groups_named

if TYPE_CHECKING:
    from types import ModuleType

    from sqlalchemy.engine import Connection
    from sqlalchemy.types import TypeEngine

PREFIX = "dpsql_"
EMPTY_GROUPS = "empty_groups"
SCHEMA = "main"
"""The name of the one database schema that there is."""
TYPES: dict[type, type[TypeEngine[Any]]] = {
    declared.Integer: types.BigInteger,
    declared.Double: types.Double,
    declared.Text: types.Text,
    declared.Boolean: types.Boolean,
    declared.Date: types.Date,
    declared.Timestamp: types.DateTime,
}


class DpsqlDialect(DefaultDialect):
    name = driver = "dpsql"
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return dpsql

    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, Any]]:
        options = dict(url.query)
        known = (*CONNECT_OPTIONS, EMPTY_GROUPS)
        for name in options.keys() - set(known):
            raise ArgumentError(f"dpsql:// has no option {name}; it takes {', '.join(known)}")
        if options.get("ledger") == MEMORY:
            # Every connection of the pool would begin with a whole budget of its own.
            raise ArgumentError("pooled connections share one ledger; pass a file as ledger=, or omit it")
        return [url.database or ""], options

    def connect(self, *names: Any, **options: Any) -> Any:
        if not names[0] or "schema" not in options:
            raise ArgumentError("write dpsql:///data.duckdb?schema=data.yaml&budget=1")
        if str(options.get("interrupts_per_day", "")).isdecimal():
            options["interrupts_per_day"] = int(options["interrupts_per_day"])
        asked = options.pop(EMPTY_GROUPS, None)
        opened = connect(*names, **options)
        if asked is not None or EMPTY_GROUPS not in opened.session.environment.schema.model_fields_set:
            opened.session.empty_groups = empty_groups_named(asked or "hide")
        return opened

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        given = context.execution_options if context is not None else {}
        options = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
        cursor.execute(statement, parameters, **options)

    @reflection.cache
    def get_table_names(self, connection: Connection, schema: str | None = None, **_: Any) -> list[str]:
        return list(_declared(connection).tables)

    def get_view_names(self, connection: Connection, schema: str | None = None, **_: Any) -> list[str]:
        return []

    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **_: Any) -> bool:
        return _declared(connection).table(table_name) is not None

    @reflection.cache
    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **_: Any) -> list[Any]:
        return [
            {
                "name": column.name,
                "type": _type(column.type),
                "nullable": column.nullable,
                "default": None,
                "comment": declared_facts(table, column) or None,
            }
            for table in [_table(connection, table_name)]
            for column in table.columns.values()
        ]

    @reflection.cache
    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **_: Any) -> Any:
        table = _table(connection, table_name)
        return {"name": None, "constrained_columns": [table.unit_column] if table.unique else []}

    @reflection.cache
    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> list[Any]:
        unit = _table(connection, table_name).unit
        if not isinstance(unit, declared.UnitPath):
            return []
        return [
            {
                "name": None,
                "constrained_columns": [unit.through],
                "referred_schema": None,
                "referred_table": unit.to_table,
                "referred_columns": [unit.to_column],
            }
        ]

    @reflection.cache
    def get_table_comment(self, connection: Connection, table_name: str, schema: str | None = None, **_: Any) -> Any:
        table = _table(connection, table_name)
        whose = person_of(_declared(connection), table.name)
        return {"text": "public" if table.is_public else f"people by {whose}: {counts(table)}"}

    @reflection.cache
    def get_check_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> list[Any]:
        return declared_checks(_table(connection, table_name))

    def _get_default_schema_name(self, connection: Connection) -> str:
        return SCHEMA

    def get_schema_names(self, connection: Connection, **_: Any) -> list[str]:
        return [SCHEMA]

    def get_indexes(self, connection: Connection, table_name: str, schema: str | None = None, **_: Any) -> list[Any]:
        return []

    def get_unique_constraints(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> list[Any]:
        """One row per unit is the primary key."""
        return []

    def get_sequence_names(self, connection: Connection, schema: str | None = None, **_: Any) -> list[str]:
        return []

    def get_temp_table_names(self, connection: Connection, schema: str | None = None, **_: Any) -> list[str]:
        return []

    def get_temp_view_names(self, connection: Connection, schema: str | None = None, **_: Any) -> list[str]:
        return []

    def get_materialized_view_names(self, connection: Connection, schema: str | None = None, **_: Any) -> list[str]:
        return []


def _declared(connection: Connection) -> declared.Schema:
    opened = connection.connection.dbapi_connection
    assert isinstance(opened, PrivateConnection)
    return opened.session.environment.schema


def declared_checks(table: declared.Table) -> list[Any]:
    """Declared bounds, as constraints in SQL."""
    return [
        {"name": f"{column.name}_bounds", "sqltext": f"{quoted(column.name)} BETWEEN {low} AND {high}"}
        for column in table.columns.values()
        if column.bounds is not None
        for low, high in [[f"'{end}'" if isinstance(end, date) else end for end in column.bounds]]
    ]


def _table(connection: Connection, name: str) -> declared.Table:
    table = _declared(connection).table(name)
    if table is None:
        raise NoSuchTableError(name)
    return table


def _type(kind: declared.ColumnType) -> TypeEngine[Any]:
    if isinstance(kind, declared.Decimal):
        return types.Numeric(kind.precision, kind.scale)
    return TYPES[type(kind)]()
