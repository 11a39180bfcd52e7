"""Magics for IPython: `%load_ext dpsql`.

    %dpsql connect shop.duckdb --schema schemas/shop.yaml --budget 3 --delta 1e-6
    %%dpsql --epsilon 0.2 --as result
    SELECT region, COUNT(*) FROM customers GROUP BY region
    %dpsql --explain SELECT COUNT(*) FROM customers
    %dpsql budget
    %dpsql promise
    %dpsql tables

A database or a schema may also be the name of a variable: a frame, a dict, a Schema, an open Connection. `--as` gives
the answer, or the connection, a name. Every option of `execute` and `connect` is understood, with dashes for
underscores. Nothing in SQL is replaced: `{x}` and `$x` stay what they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from dpsql.connection import CONNECT_OPTIONS, Connection, connect
from dpsql.errors import InterfaceError, ProgrammingError, did_you_mean
from dpsql.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from IPython.core.interactiveshell import InteractiveShell

WORD = r"""(?:"[^"]*"|'[^']*'|\S+)"""
OPTION = re.compile(rf"\s*--([\w-]+)(?:=|\s+|$)({WORD})?")
SWITCHES = {"explain", *(name for name, option in OPTIONS.items() if option.metavar is None)}
SHOWN: dict[str, Callable[[Connection], Any]] = {
    "budget": lambda connection: connection.budget,
    "promise": lambda connection: connection.promise(),
    "tables": lambda connection: connection.tables,
    "schema": lambda connection: connection.schema,
}
"""What is shown of a connection without a question."""


def load_ipython_extension(shell: InteractiveShell) -> None:
    shell.register_magics(DpsqlMagics)


@magics_class
class DpsqlMagics(Magics):
    connection: Connection | None = None

    @no_var_expand
    @line_cell_magic
    def dpsql(self, line: str, cell: str | None = None) -> Any:
        """Asks a private database: `%dpsql connect ...` first, then `%%dpsql --epsilon 0.2` above a query."""
        return self._run(line.strip(), cell)

    def _run(self, line: str, cell: str | None) -> Any:
        command, _, rest = line.partition(" ")
        if cell is None and command == "connect":
            return self._connect(rest)
        if cell is None and line in SHOWN:
            return SHOWN[line](self._opened())
        return self._ask(line, cell)

    def _connect(self, text: str) -> None:
        database, rest = _word(text)
        if database is None:
            raise ProgrammingError(
                "connect needs a database", hint="write  %dpsql connect shop.duckdb --schema shop.yaml --budget 1"
            )
        options, rest = _options(rest, {*CONNECT_OPTIONS, "as"})
        if rest:
            raise ProgrammingError(f"connect does not understand {rest!r}", hint="options begin with --")
        name = _variable(options)
        found = self._variables.get(database, database)
        if isinstance(found, Connection):
            self.connection = found
        elif "schema" not in options:
            raise ProgrammingError("connect needs a schema", hint="add  --schema shop.yaml")
        else:
            schema = options.pop("schema")
            self.connection = connect(found, schema=self._variables.get(schema, schema), **options)
        if name is not None:
            self._variables[name] = self.connection
        budget = self.connection.budget
        print(f"connected: epsilon {budget.spent.epsilon:.4g} of {budget.epsilon:.4g} spent")

    def _ask(self, line: str, cell: str | None) -> Any:
        options, rest = _options(line, OPTIONS.keys() | {"as", "explain"})
        sql = "\n".join(filter(None, (rest, cell)))
        if not sql.strip():
            raise ProgrammingError("there is no query", hint="write  %dpsql SELECT COUNT(*) FROM customers")
        name = _variable(options)
        ask = self._opened().explain if options.pop("explain", False) else self._opened().execute
        answer = ask(sql, **options)
        if name is not None:
            self._variables[name] = answer
        return answer

    def _opened(self) -> Connection:
        if self.connection is None:
            raise InterfaceError(
                "there is no connection yet",
                hint="write  %dpsql connect shop.duckdb --schema shop.yaml --budget 1 --delta 1e-6",
            )
        return self.connection

    @property
    def _variables(self) -> dict[str, Any]:
        assert self.shell is not None
        variables: dict[str, Any] = self.shell.user_ns
        return variables


def _variable(options: dict[str, Any]) -> str | None:
    """The name after --as, checked before anything is paid for."""
    if "as" not in options:
        return None
    name = str(options.pop("as"))
    if not name.isidentifier():
        raise ProgrammingError(f"{name!r} is not the name of a variable", hint="write  --as result")
    return name


def _word(text: str) -> tuple[str | None, str]:
    found = re.match(rf"\s*(?!--)({WORD})", text)
    return (None, text) if found is None else (_unquoted(found[1]), text[found.end() :])


def _options(text: str, known: Collection[str]) -> tuple[dict[str, Any], str]:
    """The options that the text begins with, and the rest of it.

    >>> _options("--epsilon 0.2 --fresh SELECT 'a  b' -- why", {"epsilon", "fresh"})
    ({'epsilon': '0.2', 'fresh': True}, "SELECT 'a  b' -- why")
    """
    options: dict[str, Any] = {}
    while found := OPTION.match(text):
        name, value = found[1].replace("-", "_"), found[2]
        if name not in known:
            names = [each.replace("_", "-") for each in known]
            raise ProgrammingError(f"there is no option --{found[1]}", hint=did_you_mean(found[1], names))
        if name in SWITCHES:
            options[name], text = True, text[found.start(2) if value else found.end() :]
            continue
        if value is None:
            raise ProgrammingError(f"--{found[1]} needs a value", hint=f"write  --{found[1]} ...")
        options[name], text = _read(name, value), text[found.end() :]
    return options, text.strip()


def _read(name: str, word: str) -> object:
    if name in OPTIONS:
        return OPTIONS[name].parse(_unquoted(word))
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return _unquoted(word)


def _unquoted(word: str) -> str:
    return word[1:-1] if word[0] in "'\"" and word[-1] == word[0] and len(word) > 1 else word
