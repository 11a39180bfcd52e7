"""The prompt of `dpsql shell`: a question ends with a semicolon, a command begins with a dot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from dpsql.cli.completion import SqlCompleter
from dpsql.cli.errors import drawn
from dpsql.cli.output import Report, publish, waiting
from dpsql.cli.reports import account, ask, explained, left
from dpsql.cli.schemas import describe_schema
from dpsql.errors import Error, ProgrammingError
from dpsql.flow.question import positive
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from prompt_toolkit.history import History

    from dpsql.dbapi import Connection

HELP = """\
SELECT ...;           asks, and pays
EXPLAIN SELECT ...;   shows what it would cost and how exact it would be, free
.explain SELECT ...   the same
.epsilon 0.1          what a question costs from now on
.budget               what is spent and left
.tables               what is declared
.quit                 leaves (so does Ctrl-D)"""


class Shell:
    def __init__(self, connection: Connection, history: History | None = None) -> None:
        self.connection = connection
        self.epsilon = connection.session.query_epsilon
        self.commands: dict[str, Callable[[str], Report]] = {
            ".help": lambda _: Report({}, (), (), HELP),
            ".explain": lambda sql: explained(connection.explain(sql, epsilon=self.epsilon)),
            ".epsilon": self._set_epsilon,
            ".budget": lambda _: account(connection.budget),
            ".tables": lambda _: describe_schema(connection.session.setting.schema),
        }
        self.prompt: PromptSession[str] = PromptSession(
            history=history,
            completer=SqlCompleter(connection.session.setting.schema, (*self.commands, ".quit")),
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
            if text == ".quit":
                return
            if text:
                self._do(text)

    def _do(self, text: str) -> None:
        try:
            with waiting("asking"):
                report = self._command(text) if text.startswith(".") else self._ask(text)
            publish(report, None)
        except Error as problem:
            print(drawn(problem, "epsilon", "."))
        except KeyboardInterrupt:
            print("Interrupted. What was charged stays charged: see .budget")

    def _ask(self, sql: str) -> Report:
        return ask(self.connection, sql, epsilon=self.epsilon)

    def _command(self, text: str) -> Report:
        name, _, rest = text.partition(" ")
        if name not in self.commands:
            raise ProgrammingError(f"there is no command {name}", hint=did_you_mean(name, [*self.commands, ".quit"]))
        return self.commands[name](rest)

    def _set_epsilon(self, text: str) -> Report:
        self.epsilon = positive(text, "epsilon")
        return Report({}, (), (), f"a question costs epsilon {float(self.epsilon):g}")

    def _toolbar(self) -> str:
        return f" left: {left(self.connection.budget)}   a question costs {float(self.epsilon):.4g}"


def _bindings() -> KeyBindings:
    """Enter ends a question that has its semicolon, and begins a new line otherwise."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.startswith(".") or text.endswith(";"):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    return bindings
