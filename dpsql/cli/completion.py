"""Completion of what can be asked: declared tables and columns, functions, aggregates, and the words of SQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from dpsql.aggregates.table import ways_to_ask
from dpsql.expressions.table import FUNCTIONS
from dpsql.relation.per_unit import WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from dpsql.schema import Schema

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "USING", "AS", "ON"),
    *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "CASE WHEN", "THEN", "ELSE", "END", "DISTINCT", "DESC"),
    *("UNION ALL", "WITH", "EXISTS", "EXPLAIN"),
)
WORD = re.compile(r"[\w.]+")


class SqlCompleter(Completer):
    def __init__(self, schema: Schema, commands: Iterable[str]) -> None:
        self.schema = schema
        self.commands = [(command, "command") for command in commands]
        self.names = [
            *((table.name, "table") for table in schema.tables.values()),
            *((name, kind) for table in schema.tables for name, kind in self._columns(table)),
            *((name, "aggregate") for name in sorted({*ways_to_ask(), *WINDOWS})),
            *((name, function.takes) for name, function in sorted(FUNCTIONS.items()) if name.isidentifier()),
            *((keyword, "") for keyword in KEYWORDS),
        ]

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        word = document.get_word_before_cursor(pattern=WORD)
        table, dot, begun = word.rpartition(".")
        if document.text_before_cursor == word and dot and not table:
            known, begun = self.commands, word
        else:
            known = self._columns(table) if dot else self.names
        seen = set()
        for name, kind in known:
            if begun and name.lower().startswith(begun.lower()) and name not in seen:
                seen.add(name)
                yield Completion(name, start_position=-len(begun), display_meta=kind)

    def _columns(self, table: str) -> list[tuple[str, str]]:
        declared = self.schema.table(table)
        columns = declared.columns.values() if declared else ()
        return [(column.name, f"{table}, {column.type.name}") for column in columns]
