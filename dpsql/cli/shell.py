"""The prompt of `dpsql shell`: it completes names, remembers what was typed, and always shows what is left.

A question ends with a semicolon, a command begins with a dot.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from dpsql.aggregates.table import ways_to_ask
from dpsql.cli.output import CommandReport, after_interrupt, drawn, file_error, publish, table, waiting
from dpsql.cli.query import account, ask, explained, left, listed
from dpsql.errors import Error, ProgrammingError, did_you_mean
from dpsql.expressions.table import FUNCTIONS
from dpsql.options import OPTIONS, positive
from dpsql.relation.facts import WINDOWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History

    from dpsql.connection import Connection
    from dpsql.options import QueryOptions
    from dpsql.schema import Schema

HISTORY = ".dpsql_history"
WELCOME = "End each query with a semicolon. EXPLAIN is free. Tab completes, .help lists commands, .quit leaves."
HELP = """\
SELECT ...;           run the query and pay for it
EXPLAIN SELECT ...;   show its cost and accuracy, free
.explain SELECT ...   the same
.epsilon 0.1          set the cost of each query from now on
.mechanism gaussian   set any query option from now on; without a value, reset it
.options              show the options that are set, and all options
.budget               show what is spent and what is left
.tables               list the declared tables
.schema               list every declared column and what is known about it
.quit                 leave (so does Ctrl-D)"""


SYNONYMS = {
    **dict.fromkeys(("quit", "exit", ".exit", "\\q"), ".quit"),
    **dict.fromkeys(("help", "?", "\\?"), ".help"),
    **dict.fromkeys(("\\d", "\\dt"), ".tables"),
}
"""What other shells call these commands."""


class Shell:
    def __init__(
        self, connection: Connection, options: QueryOptions | None = None, history: History | None = None
    ) -> None:
        self.connection = connection
        self.options: dict[str, object] = {name: value for name, value in (options or {}).items() if value is not None}
        self.commands: dict[str, Callable[[str], CommandReport]] = {
            ".help": lambda _: CommandReport({}, (), (), HELP),
            ".explain": lambda sql: explained(connection.explain(sql, **self._given())),
            ".options": lambda _: self._shown_options(),
            **{f".{name}": partial(self._set, name) for name in OPTIONS},
            ".budget": lambda _: account(connection.budget),
            ".tables": lambda _: listed(connection.tables),
            ".schema": lambda _: listed(connection.schema),
        }
        self.prompt: PromptSession[str] = PromptSession(
            history=history,
            completer=SqlCompleter(connection.session.environment.schema, (*self.commands, ".quit")),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_bindings(),
            prompt_continuation="  ...> ",
        )

    def run(self) -> None:
        while True:
            try:
                text = self.prompt.prompt("dpsql> ", bottom_toolbar=self._toolbar()).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            command = SYNONYMS.get(text.rstrip("; ").lower(), text)
            if command == ".quit":
                return
            if command:
                self._do(command)

    def _do(self, text: str) -> None:
        try:
            with waiting("asking"):
                report = self._command(text) if text.startswith(".") else self._ask(text)
            publish(report, None)
        except Error as problem:
            print(drawn(problem, "|".join(OPTIONS), "."))
        except KeyboardInterrupt as stopped:
            print(f"Interrupted.{after_interrupt(stopped, '.budget')}")
        except OSError as problem:
            print(drawn(file_error(problem)))

    def _ask(self, sql: str) -> CommandReport:
        return ask(self.connection, sql, **self._given())

    def _command(self, text: str) -> CommandReport:
        name, _, rest = text.partition(" ")
        if name not in self.commands:
            raise ProgrammingError(f"there is no command {name}", hint=did_you_mean(name, [*self.commands, ".quit"]))
        return self.commands[name](rest)

    def _given(self) -> QueryOptions:
        return cast("QueryOptions", self.options)

    def _set(self, name: str, text: str) -> CommandReport:
        """Without a value, a switch is toggled and any other option is reset."""
        option, text = OPTIONS[name], text.strip()
        if text and option.metavar is None:
            raise ProgrammingError(f".{name} takes no value", hint=f"write  .{name}  to turn it on or off")
        if text or (option.metavar is None and name not in self.options):
            value = option.parse(text) if text else True
            option.read(value, name, self.connection.session.environment.ledger.filter.delta)
            self.options[name] = value
            return CommandReport({}, (), (), f"from now on: {option.name} {text}")
        self.options.pop(name, None)
        return CommandReport({}, (), (), f"{option.name} is back to its default")

    def _shown_options(self) -> CommandReport:
        names = ("option", "value", "meaning")
        rows = [(f".{name}", self.options.get(name, ""), option.help) for name, option in OPTIONS.items()]
        return CommandReport({"options": self.options}, names, rows, table(names, rows))

    def _toolbar(self) -> str:
        epsilon = self.options.get("epsilon") or self.connection.session.query_epsilon
        price = "a tenth of the budget" if epsilon is None else f"epsilon {float(positive(epsilon, 'epsilon')):.4g}"
        return f" left: {left(self.connection.budget)}   each query costs {price}; end it with ;"


def _bindings() -> KeyBindings:
    """Enter runs a query that ends in a semicolon, and otherwise starts a new line."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.startswith(".") or text.endswith(";") or text.lower() in SYNONYMS:
            buffer.validate_and_handle()
        else:
            buffer.newline()

    return bindings


# Completion of what can be asked: declared tables and columns, functions, aggregates, and the words of SQL.

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
