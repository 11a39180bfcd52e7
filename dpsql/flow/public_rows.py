"""Public rows, counted by the engine before the charge. A relation in which rows of people take part is not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.errors import InternalError, OperationalError
from dpsql.expressions.write import Sql, column
from dpsql.relation.earlier import with_earlier
from dpsql.relation.multiplicity import most_alike_sql
from dpsql.relation.relation import Scan
from dpsql.relation.units import parts_of
from dpsql.relation.write_domain import listed_keys_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpsql.engines.engine import Engine
    from dpsql.expressions.tree import Expression
    from dpsql.relation.earlier import EarlierTable
    from dpsql.relation.relation import Relation


@dataclass(frozen=True)
class EnginePublicRows:
    _engine: Engine

    def most_alike(self, relation: Relation, keys: Sequence[Expression], lists: Sequence[EarlierTable]) -> int | None:
        return self._number(relation, most_alike_sql(relation, keys), lists)

    def distinct(self, relation: Relation, keys: tuple[Expression, ...], lists: Sequence[EarlierTable]) -> int | None:
        names = [f"_k{number}" for number in range(len(keys))]
        counted = Sql(f"SELECT count(*) AS n FROM ({listed_keys_sql(relation, keys, names)})")
        return self._number(relation, counted, lists)

    def _number(self, relation: Relation, sql: Sql, lists: Sequence[EarlierTable]) -> int | None:
        if any(isinstance(part, Scan) and part.unit is not None for part in parts_of(relation)):
            raise InternalError("rows of people would have been read before the charge")
        read = [table for table in lists if column(table.name) in sql]
        if any(table.rows is None for table in read):
            return None
        try:
            return int(self._engine.run_public(with_earlier(read, sql))["n"][0])
        except Exception as problem:
            raise OperationalError(
                "the public rows that the query reads cannot be read", hint="the data owner can check the tables"
            ) from problem
