"""Public rows, counted by the engine before the charge. A query that reads any other table is not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import tables_read
from dpsql.errors import InternalError, OperationalError
from dpsql.relation.earlier import with_earlier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engine_sql.tree import Query
    from dpsql.engines.engine import Engine
    from dpsql.relation.earlier import EarlierTable
    from dpsql.schema.model import Schema


@dataclass(frozen=True)
class EnginePublicRows:
    _engine: Engine
    _schema: Schema

    def number(self, query: Query, lists: Sequence[EarlierTable]) -> int:
        public = {table.name for table in self._schema.tables.values() if table.is_public}
        if not tables_read(query) <= public | {table.name for table in lists}:
            raise InternalError("rows of people would have been read before the charge")
        try:
            return int(self._engine.run_public(self._engine.render(with_earlier(lists, query)))["n"][0])
        except Exception as problem:
            raise OperationalError(
                "the public rows that the query reads cannot be read", hint="the data owner can check the tables"
            ) from problem
