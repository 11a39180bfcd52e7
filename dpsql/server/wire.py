"""PostgreSQL's protocol, version 3: one `WireSession` for each connection, from its first byte to its last.

    startup -> TLS -> SCRAM -> { simple query | Parse, Bind, Describe, Execute, Close, Flush, Sync }

Nothing but the startup is read before the password is proven. Describe asks for the explanation, which is free; only
Execute and simple queries can cost anything. Every error has a code, a place in the SQL and a way out, and what an
answer cost follows it as notices.
"""

from __future__ import annotations

import asyncio
import struct
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.server.channel import Link, Reply, tagged
from dpsql.server.protocol import (
    BINARY_FORMAT,
    BY_OID,
    CANCEL_REQUEST,
    CANCELED,
    FLOAT8,
    GSS_REQUEST,
    LARGEST_STARTUP,
    NO_DATABASE,
    PROTOCOL,
    PROTOCOL_ERROR,
    SSL_REQUEST,
    TEXT,
    TEXT_FORMAT,
    TOO_MANY,
    WRONG_PASSWORD,
    Body,
    Problem,
    ProtocolViolation,
    Refused,
    WireType,
    c_string,
    data_row,
    decode,
    encode,
    fields_of,
    format_of,
    message,
    notice,
    read_message,
    read_startup,
    refused,
    row_description,
    wire_type,
)
from dpsql.server.scram import MECHANISM, Exchange, Verifier
from dpsql.server.statements import (
    NO_OPS,
    CopyFormat,
    SessionSettings,
    Statement,
    copied,
    example,
    for_sql,
    output_name,
    parameter_types,
    statements_of,
    without_comment,
    without_schema,
)
from dpsql.server.system_tables import OWN, setting_values, system_types

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

    from dpsql.server.catalog import Catalog
    from dpsql.server.users import Throttle, User, Users

LONGEST_SIGN_IN = 30.0
MOST_PREPARED = 500
ROWS_AT_ONCE = 1000
REPORTED = {
    "server_version": "15.0 (dpsql)",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "in_hot_standby": "off",
    "default_transaction_read_only": "on",
}


class Front(Protocol):
    """What a connection needs of the process that it is in (front.py)."""

    users: Users
    throttle: Throttle
    tls: ssl.SSLContext
    sessions: dict[int, WireSession]
    most_sessions: int

    def link(self, dataset: str) -> Link | None: ...

    async def catalog(self, dataset: str) -> Catalog: ...

    def log(self, event: str, **facts: object) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What a statement gives: rows of these columns, or None where it gives none; a tag; notices below."""

    tag: str
    columns: tuple[tuple[str, WireType], ...] | None = None
    rows: Sequence[Sequence[Any]] = ()
    notices: tuple[str, ...] = ()


@dataclass
class Prepared:
    statement: Statement | None
    kinds: list[WireType]
    oids: list[int]
    columns: tuple[tuple[str, WireType], ...] | None = None
    is_described: bool = False


@dataclass
class Portal:
    prepared: Prepared
    values: list[Any]
    formats: list[int]
    outcome: Outcome | None = None
    sent: int = 0


@dataclass
class WireSession:
    front: Front
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int
    secret: int = field(default_factory=lambda: randbits(31))
    prepared: dict[str, Prepared] = field(default_factory=dict)
    portals: dict[str, Portal] = field(default_factory=dict)
    status: bytes = b"I"
    running: asyncio.Task[Outcome] | None = None
    is_cancelled: bool = False
    user: User = field(init=False)
    link: Link = field(init=False)
    catalog: Catalog = field(init=False)
    settings: SessionSettings = field(init=False)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        try:
            async with asyncio.timeout(LONGEST_SIGN_IN):
                is_in = await self._start()
            if is_in:
                await self._answer_messages()
        except Refused as end:
            self._send(Problem(end.problem.state, end.problem.text, end.problem.hint, severity="FATAL").encoded())
        except ProtocolViolation as broken:
            self._send(Problem(PROTOCOL_ERROR, str(broken), severity="FATAL").encoded())
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.front.sessions.pop(self.pid, None)
            with suppress(OSError):
                await self.writer.drain()
            self.writer.close()

    async def _start(self) -> bool:
        """Reads first messages until somebody has signed in; False for what is over without."""
        asked: set[int] = set()  # each once: replies that nobody reads would pile up
        while True:
            code, body = await read_startup(self.reader)
            if code in asked:
                raise ProtocolViolation("a first message comes twice")
            asked.add(code)
            if code == SSL_REQUEST:
                await self._start_tls()
            elif code == GSS_REQUEST:
                self._send(b"N")
            elif code == CANCEL_REQUEST:
                self._cancel(body.int32(), body.int32())
                return False
            elif code >> 16 == PROTOCOL >> 16:
                if code != PROTOCOL:
                    self._send(message(b"v", struct.pack("!ii", PROTOCOL, 0)))
                await self._sign_in(body.pairs())
                return True
            else:
                raise ProtocolViolation("only version 3 of the protocol is spoken here")

    async def _start_tls(self) -> None:
        self._send(b"S")
        # What somebody else slipped in before the handshake would count as said within it. Nothing waits after this.
        await self.writer.drain()
        if getattr(self.reader, "_buffer", b""):
            raise ProtocolViolation("data before the handshake")
        await self.writer.start_tls(self.front.tls)

    def _cancel(self, pid: int, secret: int) -> None:
        other = self.front.sessions.get(pid)
        if other is not None and other.secret == secret:
            other.cancel()

    def cancel(self) -> None:
        """Stops waiting for an answer. Its charge stands, and so the worker goes on: asked again, it is free."""
        if self.running is not None and not self.running.done():
            self.is_cancelled = True
            self.running.cancel()

    # -- sign in -------------------------------------------------------------------------------------------------------

    async def _sign_in(self, given: dict[str, str]) -> None:
        name, address = given.get("user", "")[:64], self._address
        dataset = given.get("database") or name
        if self.writer.get_extra_info("ssl_object") is None and not _is_loopback(address):
            raise refused("28000", "this server wants TLS", "connect with sslmode=require")
        if len(self.front.sessions) >= self.front.most_sessions:
            raise refused(TOO_MANY, "too many connections", "close some, or try again later")
        await self._prove(name, address)
        user = self.front.users.all().get(name)
        link = self.front.link(dataset)
        if user is None or link is None or not user.may_read(dataset):
            raise refused(NO_DATABASE, f'there is no dataset "{dataset[:64]}" for {name}', "ask the data owner")
        self.user, self.link, self.catalog = user, link, await self.front.catalog(dataset)
        self.settings = SessionSettings(user.policy)
        self._apply_startup(given)
        self.front.sessions[self.pid] = self
        self._send(message(b"R", struct.pack("!i", 0)))
        for key, value in {**REPORTED, "session_authorization": name}.items():
            self._send(message(b"S", c_string(key), c_string(value)))
        self._send(message(b"K", struct.pack("!ii", self.pid, self.secret)))
        await self._ready()

    @property
    def _address(self) -> str:
        found = self.writer.get_extra_info("peername")
        return str(found[0]) if isinstance(found, tuple) else "local"

    async def _prove(self, name: str, address: str) -> None:
        wait = self.front.throttle.wait(name, address)
        if wait > 0:
            self.front.log("sign-in", user=name, address=address, outcome="throttled")
            raise refused("28000", "too many wrong passwords", f"try again in {wait:.0f} seconds")
        verdict = await self._exchange(self.front.users.verifier(name))
        if verdict is None:
            self.front.throttle.failed(name, address)
            self.front.log("sign-in", user=name, address=address, outcome="refused")
            raise refused(WRONG_PASSWORD, f'password authentication failed for user "{name}"', None)
        self.front.throttle.succeeded(name, address)
        self.front.log("sign-in", user=name, address=address, outcome="in")
        self._send(message(b"R", struct.pack("!i", 12), verdict.encode()))

    async def _exchange(self, verifier: Verifier) -> str | None:
        """SCRAM, message by message; the server's proof, or None."""
        self._send(message(b"R", struct.pack("!i", 10), c_string(MECHANISM), b"\0"))
        exchange = Exchange(verifier)
        try:
            first = await self._password_message()
            if first.text() != MECHANISM:
                raise ProtocolViolation("an unknown mechanism")
            challenge = exchange.challenge(first.take(first.int32()).decode("utf-8"))
            self._send(message(b"R", struct.pack("!i", 11), challenge.encode()))
            return exchange.verdict((await self._password_message()).rest().decode("utf-8"))
        except ValueError:
            broken = ProtocolViolation("a message of SCRAM cannot be read")
        raise broken

    async def _password_message(self) -> Body:
        await self.writer.drain()
        kind, body = await read_message(self.reader, LARGEST_STARTUP)
        if kind != b"p":
            raise ProtocolViolation("a password is wanted first")
        return body

    def _apply_startup(self, given: dict[str, str]) -> None:
        """Settings that come with the startup: options=-c dpsql.epsilon=0.1, and PostgreSQL's own."""
        words = iter(given.get("options", "").replace("\\ ", "\0").split())
        for word in words:
            pair = next(words, "") if word == "-c" else word.removeprefix("-c").removeprefix("--")
            name, _, value = pair.replace("\0", " ").partition("=")
            if name and value:
                self.settings.put(name, value)

    # -- messages ------------------------------------------------------------------------------------------------------

    async def _answer_messages(self) -> None:
        handlers: dict[bytes, Callable[[Body], Awaitable[None]]] = {
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"H": self._flush,
            b"F": self._call_function,
        }
        is_skipping = False
        while True:
            kind, body = await read_message(self.reader)
            if kind == b"X":
                return
            if kind == b"Q":
                await self._simple(body.text())
                is_skipping = False
            elif kind == b"S":
                is_skipping = False
                self.portals = {} if self.status == b"I" else self.portals
                await self._ready()
            elif kind in handlers and not is_skipping:
                try:
                    await handlers[kind](body)
                except Exception as problem:
                    is_skipping = True
                    self._complain(self._told(problem))
            elif kind not in (*handlers, b"d", b"c", b"f"):
                raise ProtocolViolation("an unknown message")

    def _send(self, *parts: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(b"".join(parts))

    async def _ready(self) -> None:
        self._send(message(b"Z", self.status))
        await self.writer.drain()

    def _complain(self, end: Refused, start: int = 0) -> None:
        problem = end.problem.moved(start)
        shown = Problem(problem.state, problem.text, for_sql(problem.hint), problem.position, problem.severity)
        self.front.log("error", user=self.user.name, dataset=self.link.name, state=shown.state)
        self._send(shown.encoded())

    def _told(self, problem: Exception) -> Refused:
        """All of a refusal is told, and nothing of a mistake of ours. What ends a session is raised."""
        if isinstance(problem, ProtocolViolation | OSError | asyncio.IncompleteReadError):
            raise problem
        if isinstance(problem, Refused):
            return problem
        place = traceback.extract_tb(problem.__traceback__)[-1]
        self.front.log("bug", kind=type(problem).__name__, place=f"{Path(place.filename).name}:{place.lineno}")
        return refused("XX000", "the server made a mistake", "please report what you did")

    async def _flush(self, body: Body) -> None:
        await self.writer.drain()

    async def _call_function(self, body: Body) -> None:
        raise refused("0A000", "functions are called in a SELECT", None)

    async def _simple(self, text: str) -> None:
        statements: tuple[Statement, ...] = ()
        try:
            statements = statements_of(text)
            if not statements:
                self._send(message(b"I"))
        except Exception as problem:
            self._complain(self._told(problem))
        for statement in statements:
            try:
                outcome = await self._run(statement, [])
                await self._send_outcome(outcome, statement.copy)
            except Exception as problem:
                self._complain(self._told(problem), statement.start)
                break
        await self._ready()

    async def _send_outcome(self, outcome: Outcome, copy: CopyFormat | None) -> None:
        if outcome.columns is not None and copy is not None:
            await self._send_copy(outcome, copy)
        elif outcome.columns is not None:
            self._send(row_description(outcome.columns))
            await self._send_rows(outcome.rows, [kind for _, kind in outcome.columns], ())
        self._notify(outcome)
        self._send(message(b"C", c_string(_tag(outcome, copy))))

    async def _send_rows(
        self, rows: Sequence[Sequence[Any]], kinds: Sequence[WireType], formats: Sequence[int]
    ) -> None:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            self._send(*(data_row(row, kinds, formats) for row in rows[start : start + ROWS_AT_ONCE]))
            await self.writer.drain()

    async def _send_copy(self, outcome: Outcome, copy: CopyFormat) -> None:
        assert outcome.columns is not None
        kinds = [kind for _, kind in outcome.columns]
        code = BINARY_FORMAT if copy.name == "binary" else TEXT_FORMAT
        self._send(message(b"H", struct.pack("!bh", code, len(kinds)), struct.pack("!h", code) * len(kinds)))
        head = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)  # before the first row, in one message with it
        if copy.header:
            self._send(message(b"d", copied([name for name, _ in outcome.columns], copy)))
        for row in outcome.rows:
            if code == BINARY_FORMAT:
                self._send(message(b"d", head, fields_of(row, kinds, [BINARY_FORMAT])))
                head = b""
                continue
            texts = [
                None if value is None else encode(value, kind, TEXT_FORMAT).decode()
                for value, kind in zip(row, kinds, strict=True)
            ]
            self._send(message(b"d", copied(texts, copy)))
        if code == BINARY_FORMAT:
            self._send(message(b"d", head, struct.pack("!h", -1)))
        self._send(message(b"c"))
        await self.writer.drain()

    def _notify(self, outcome: Outcome) -> None:
        if self.settings.others.get("client_min_messages", "notice").lower() in ("notice", "info", "log", "debug"):
            self._send(*(notice(for_sql(text) or text) for text in outcome.notices))

    # -- extended protocol ---------------------------------------------------------------------------------------------

    async def _parse(self, body: Body) -> None:
        name, text = body.text(), body.text()
        oids = [body.int32() & 0xFFFFFFFF for _ in range(body.count())]
        statements = statements_of(text)
        if len(statements) > 1:
            raise refused("42601", "cannot insert multiple commands into a prepared statement", "send them one by one")
        if name not in self.prepared and len(self.prepared) >= MOST_PREPARED:
            raise refused(TOO_MANY, "too many prepared statements", "DEALLOCATE some")
        statement = statements[0] if statements else None
        tables = system_types() if statement is not None and statement.kind == "catalog" else self.catalog.types
        kinds = [] if statement is None else parameter_types(statement, tables)
        kinds += [TEXT] * (len(oids) - len(kinds))
        known = [oid or kind.oid for oid, kind in zip([*oids, *[0] * len(kinds)], kinds, strict=False)]
        self.prepared[name] = Prepared(statement, kinds, known)
        self._send(message(b"1"))

    async def _bind(self, body: Body) -> None:
        portal, name = body.text(), body.text()
        prepared = self._prepared(name)
        formats = body.formats()
        given = [self._parameter(body) for _ in range(body.count())]
        if len(given) != len(prepared.oids):
            raise refused("08P01", f"{len(given)} values for {len(prepared.oids)} parameters", None)
        values = [
            None if raw is None else decode(raw, prepared.oids[number], format_of(formats, number))
            for number, raw in enumerate(given)
        ]
        if portal not in self.portals and len(self.portals) >= MOST_PREPARED:
            raise refused(TOO_MANY, "too many portals", "close some")
        self.portals[portal] = Portal(prepared, values, body.formats())
        self._send(message(b"2"))

    def _parameter(self, body: Body) -> bytes | None:
        length = body.int32()
        return None if length == -1 else body.take(length)

    def _prepared(self, name: str) -> Prepared:
        if name not in self.prepared:
            raise refused("26000", f'prepared statement "{name[:60]}" does not exist', None)
        return self.prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self.portals:
            raise refused("34000", f'portal "{name[:60]}" does not exist', None)
        return self.portals[name]

    async def _describe(self, body: Body) -> None:
        """Free: the columns follow from the plan."""
        kind, name = body.take(1), body.text()
        if kind == b"S":
            prepared = self._prepared(name)
            oids = prepared.oids
            self._send(message(b"t", struct.pack("!h", len(oids)), *(struct.pack("!I", oid) for oid in oids)))
            columns = await self._columns(prepared, [example(BY_OID.get(oid, TEXT)) for oid in oids])
            formats: Sequence[int] = ()
        else:
            portal = self._portal(name)
            columns = await self._columns(portal.prepared, portal.values)
            formats = portal.formats
        self._send(message(b"n") if columns is None else row_description(columns, formats))

    async def _columns(self, prepared: Prepared, values: list[Any]) -> tuple[tuple[str, WireType], ...] | None:
        if not prepared.is_described:
            prepared.columns = None if prepared.statement is None else await self._described(prepared.statement, values)
            prepared.is_described = True
        return prepared.columns

    async def _described(self, statement: Statement, values: list[Any]) -> tuple[tuple[str, WireType], ...] | None:
        if statement.copy is not None or statement.kind in ("no_op", "set"):
            return None
        if statement.kind == "query":
            return self._columns_of(await self._explained(statement, values))
        if statement.kind == "explain":
            return (("QUERY PLAN", TEXT),)
        try:
            return (await self._run(statement, values)).columns
        except Refused:
            if not values:
                raise
        return (await self._run(statement, [None] * len(values))).columns  # where an example does not fit

    async def _execute(self, body: Body) -> None:
        portal, most = self._portal(body.text()), body.int32()
        statement = portal.prepared.statement
        if statement is None:
            self._send(message(b"I"))
            return
        if portal.outcome is None:
            portal.outcome = await self._run(statement, portal.values)
            if statement.copy is not None:
                await self._send_outcome(portal.outcome, statement.copy)
                return
        outcome = portal.outcome
        if outcome.columns is None:
            self._notify(outcome)
            self._send(message(b"C", c_string(outcome.tag)))
            return
        columns = portal.prepared.columns if portal.prepared.is_described else outcome.columns
        if columns is None or [name for name, _ in columns] != [name for name, _ in outcome.columns]:
            raise refused("0A000", "the columns are no longer those that were described", "prepare the statement again")
        end = len(outcome.rows) if most <= 0 else min(len(outcome.rows), portal.sent + most)
        await self._send_rows(outcome.rows[portal.sent : end], [kind for _, kind in columns], portal.formats)
        portal.sent = end
        if end < len(outcome.rows):
            self._send(message(b"s"))
            return
        self._notify(outcome)
        self._send(message(b"C", c_string(_tag(outcome, None))))

    async def _close(self, body: Body) -> None:
        kind, name = body.take(1), body.text()
        (self.prepared if kind == b"S" else self.portals).pop(name, None)
        self._send(message(b"3"))

    # -- statements ----------------------------------------------------------------------------------------------------

    async def _run(self, statement: Statement, values: list[Any]) -> Outcome:
        """Runs a statement; a cancel ends the wait, not the work."""
        self.is_cancelled = False
        self.running = asyncio.create_task(RUN[statement.kind](self, statement, values))
        try:
            return await self.running
        except asyncio.CancelledError:
            if not self.is_cancelled:
                self.running.cancel()
                raise
        finally:
            self.running = None
        raise refused(
            CANCELED, "canceling statement due to user request", "what it was charged stands; asked again, it is free"
        )

    async def _no_op(self, statement: Statement, values: list[Any]) -> Outcome:
        words = without_comment(statement.sql).split()
        tag = NO_OPS[words[0].strip(";").upper()]
        if tag in ("BEGIN", "START TRANSACTION"):
            self.status = b"T"
        elif tag in ("COMMIT", "ROLLBACK") and "TO" not in [word.upper() for word in words]:
            self.status = b"I"
        elif tag == "DEALLOCATE":
            name = words[-1].strip('";')
            self.prepared = {} if name.upper() == "ALL" else self.prepared
            self.prepared.pop(name, None)
        return Outcome(tag)

    async def _set(self, statement: Statement, values: list[Any]) -> Outcome:
        return Outcome(self.settings.apply(without_comment(statement.sql)))

    async def _show(self, statement: Statement, values: list[Any]) -> Outcome:
        words = without_comment(statement.sql).replace(";", " ").split()
        name = "".join(words[1:]).lower().replace('"', "")
        if words[0].upper() != "SHOW" or name in ("tables", "alltables"):
            table = name.removeprefix("table").removeprefix("public.") if words[0].upper() != "SHOW" else ""
            return self._listing(table)
        if name == "dpsql.budget":
            found = await self.link.ask("budget", self.user.name)
            left = f"epsilon {found['remaining_epsilon']:.4g} of {found['epsilon']:.4g} left"
            return Outcome("SHOW", (("dpsql.budget", TEXT),), [(left,)])
        if name == "all":
            rows = [
                (key, self.settings.shown(key), "") for key in ("dpsql.intervals", "dpsql.charge", *setting_values())
            ]
            columns = (("name", TEXT), ("setting", TEXT), ("description", TEXT))
            return Outcome("SHOW", columns, [(key, value, note) for key, value, note in rows])
        name = {"transactionisolationlevel": "transaction_isolation", "timezone": "timezone"}.get(name, name)
        return Outcome("SHOW", ((name, TEXT),), [(self.settings.shown(name),)])

    def _listing(self, table: str) -> Outcome:
        """SHOW TABLES, and DESCRIBE a table."""
        tables = self.catalog.declared["tables"]
        if not table:
            rows = [(each["name"], each["comment"], ", ".join(c["name"] for c in each["columns"])) for each in tables]
            return Outcome("SHOW", (("table", TEXT), ("counts", TEXT), ("columns", TEXT)), rows)
        found = next((each for each in tables if each["name"].lower() == table), None)
        if found is None:
            raise refused("42P01", f'there is no table "{table[:60]}"', "SHOW TABLES lists them")
        described = [(column["name"], column["type"], column["comment"]) for column in found["columns"]]
        return Outcome("DESCRIBE", (("column", TEXT), ("type", TEXT), ("declared", TEXT)), described)

    async def _explain(self, statement: Statement, values: list[Any]) -> Outcome:
        inner = Statement("query", statement.sql, statement.start)
        explained = await self._explained(inner, values)
        rows = [(line,) for line in explained.text.splitlines()]
        return Outcome("EXPLAIN", (("QUERY PLAN", TEXT),), rows)

    async def _catalog(self, statement: Statement, values: list[Any]) -> Outcome:
        live = {name: await self._live(name) for name in statement.reading.live}
        found = await self._in_thread(self.catalog.run, statement.reading, values, self.user.name, self.pid, live)
        return Outcome("SELECT", found.columns, found.rows)

    async def _live(self, name: str) -> list[list[Any]]:
        """The rows of dpsql.budget or dpsql.history: the analyst's own."""
        found = await self.link.ask(name, self.user.name)
        columns = [part.strip().split(" ")[0] for part in OWN[name].split(",")]
        return [[row[column] for column in columns] for row in (found if isinstance(found, list) else [found])]

    async def _query(self, statement: Statement, values: list[Any]) -> Outcome:
        found = await self.link.ask(
            "execute",
            self.user.name,
            **self._asked(statement, values),
            intervals=self.settings.intervals,
        )
        answer = Reply.from_json(found)
        rows = [self._with_ends(row, answer, number) for number, row in enumerate(answer.rows)]
        return Outcome("SELECT", self._columns_of(answer), rows, (answer.summary, *answer.notes))

    async def _explained(self, statement: Statement, values: list[Any]) -> Reply:
        return Reply.from_json(await self.link.ask("explain", self.user.name, **self._asked(statement, values)))

    def _asked(self, statement: Statement, values: list[Any]) -> dict[str, Any]:
        return {
            "sql": without_schema(statement.sql, self.catalog.types),
            "parameters": [tagged(value) for value in values] or None,
            "options": self.settings.options,
            "dialect": "postgres",
            "charge": str(self.settings.charge),
        }

    def _columns_of(self, answer: Reply) -> tuple[tuple[str, WireType], ...]:
        found: list[tuple[str, WireType]] = []
        for column in answer.columns:
            name = output_name(column.name)
            found.append((name, wire_type(column.type)))
            if self.settings.intervals and column.is_noisy:
                found += [(f"{name}_low", FLOAT8), (f"{name}_high", FLOAT8)]
        return tuple(found)

    def _with_ends(self, row: Sequence[Any], answer: Reply, number: int) -> list[Any]:
        if not self.settings.intervals:
            return list(row)
        found: list[Any] = []
        for value, column, ends in zip(row, answer.columns, answer.ends[number], strict=True):
            found += [value, *(ends or (None, None))] if column.is_noisy else [value]
        return found

    async def _in_thread(self, work: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work, *given)


RUN: dict[str, Callable[[WireSession, Statement, list[Any]], Any]] = {
    "no_op": WireSession._no_op,
    "set": WireSession._set,
    "show": WireSession._show,
    "explain": WireSession._explain,
    "catalog": WireSession._catalog,
    "query": WireSession._query,
}
PIDS = count(1000)


def _tag(outcome: Outcome, copy: CopyFormat | None) -> str:
    if copy is not None:
        return f"COPY {len(outcome.rows)}"
    return f"SELECT {len(outcome.rows)}" if outcome.tag == "SELECT" else outcome.tag


def _is_loopback(address: str) -> bool:
    return address in ("::1", "local") or address.startswith("127.")
