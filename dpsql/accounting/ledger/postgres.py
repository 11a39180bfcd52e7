"""A schema of a PostgreSQL server under a ledger, so that several machines share one account.

    postgresql://dpsql@host/db?schema=shop_ledger        the schema is "dpsql" if none is named

Writers wait for each other by a lock on the table that counts the numbers given. A charge is held by an advisory lock
of the process's own session, which the server takes back when the process dies or its connection breaks: then the
charge counts as lost, which is the safe side. docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import psycopg
from psycopg import errors, sql

from dpsql.accounting.ledger.sqlite import DATA, RULES, STATES, around_forks
from dpsql.errors import InterfaceError, LedgerError, without_password

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT_SCHEMA = "dpsql"
SCHEMA_VERSION = 9
BUSY_SECONDS = 10
LEASABLE = 2**31
"""Advisory locks have two numbers of 32 bits; charges so far apart would share one."""
DECLARATIONS = """
    CREATE INDEX IF NOT EXISTS declarations ON entries (number) WHERE state IN ('budget', 'schema', 'schema accepted');
"""
SEALS = "CREATE TABLE IF NOT EXISTS seals (number bigint PRIMARY KEY, hash text NOT NULL, signature text NOT NULL)"
OWNERS_ACTS = """
    CREATE OR REPLACE FUNCTION only_the_owner() RETURNS trigger LANGUAGE plpgsql AS
        $$ DECLARE
            is_owner boolean := pg_catalog.pg_has_role(
                current_user, (SELECT relowner FROM pg_catalog.pg_class WHERE oid = TG_RELID), 'USAGE');
        BEGIN
            IF NOT is_owner AND (
                NEW.state IN ('budget', 'default limit', 'question limit', 'revoked', 'renewal', 'lifetime', 'resumed',
                    'schema accepted')
                OR NEW.state = 'renewed' AND NOT EXISTS (
                    SELECT FROM entries WHERE state = 'renewal' AND epsilon = NEW.epsilon AND delta = NEW.delta))
            THEN RAISE EXCEPTION 'for the owner' USING ERRCODE = 'DP001'; END IF;
            RETURN NEW;
        END $$;
    DROP TRIGGER IF EXISTS only_the_owner ON entries;
    CREATE TRIGGER only_the_owner BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION only_the_owner();
"""
"""Whoever may ask cannot change budgets, limits and schedules, lift a suspension, or accept what redefines epsilon. A
session renews the budget by the owner's schedule; `verify` finds whether it was due.
"""
FOR_THE_OWNER = "DP001"
TABLES = f"""
    CREATE TABLE about (version integer NOT NULL);
    INSERT INTO about VALUES ({SCHEMA_VERSION});
    CREATE TABLE entries (
        number bigint PRIMARY KEY,
        time text NOT NULL,
        dataset text NOT NULL,
        analyst text,
        state text NOT NULL CONSTRAINT entries_state_check {STATES},
        charge bigint UNIQUE REFERENCES entries (number),
        composition text,
        fingerprint text,
        sql text,
        event text,
        epsilon text NOT NULL,
        delta text NOT NULL,
        tally text NOT NULL,
        analyst_tally text NOT NULL,
        hash text NOT NULL
    );
    CREATE INDEX entries_by_analyst ON entries (analyst, number);
    {RULES};
    {DATA};
    CREATE INDEX suspensions_by_analyst ON entries (analyst, number) WHERE state IN ('suspended', 'resumed');
    {DECLARATIONS}
    CREATE TABLE last_number (number bigint NOT NULL);
    INSERT INTO last_number VALUES (0);
    CREATE TABLE open_charges (number bigint PRIMARY KEY, analyst text);
    {SEALS};
    CREATE TABLE answers (
        dataset text NOT NULL, fingerprint text NOT NULL, payload text NOT NULL, PRIMARY KEY (dataset, fingerprint)
    );
    CREATE FUNCTION never_changed() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'entries are never changed nor deleted'; END $$;
    CREATE TRIGGER never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
        FOR EACH STATEMENT EXECUTE FUNCTION never_changed();
    CREATE FUNCTION count_number() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN
            UPDATE last_number SET number = NEW.number WHERE number = NEW.number - 1;
            IF NOT FOUND THEN RAISE EXCEPTION 'entries are missing'; END IF;
            RETURN NULL;
        END $$;
    CREATE TRIGGER count_number AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION count_number();
    {OWNERS_ACTS}
"""
FROM_OLDER_VERSION = f"""
    ALTER TABLE entries DROP CONSTRAINT entries_state_check, ADD CONSTRAINT entries_state_check {STATES};
    DROP INDEX IF EXISTS budgets_by_analyst, rules;
    {RULES};
    {DATA};
    {SEALS};
    {DECLARATIONS}
    {OWNERS_ACTS}
    UPDATE about SET version = {SCHEMA_VERSION};
"""
"""Which knew fewer states, and let whoever may ask change budgets."""
TO_ASK = """
    GRANT USAGE ON SCHEMA {schema} TO {role};
    GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};
    GRANT INSERT ON {schema}.entries, {schema}.open_charges, {schema}.answers TO {role};
    GRANT UPDATE ON {schema}.answers, {schema}.last_number TO {role};
    GRANT DELETE ON {schema}.open_charges TO {role};
"""
"""What a role needs that asks and does not own the account."""
ROLES = """
    SELECT rolname, pg_has_role(r.oid, relowner, 'USAGE'),
        has_table_privilege(r.oid, c.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER')
    FROM pg_roles AS r, pg_class AS c
    WHERE c.oid = 'entries'::regclass AND rolcanlogin AND NOT rolsuper
        AND has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER') ORDER BY rolname
"""
SETTINGS = {
    "synchronous_commit": "on",
    "lock_timeout": f"{BUSY_SECONDS}s",
    "default_transaction_isolation": "read committed",
    # A hold ends with its session: not because a question takes long, but soon after its machine is gone.
    "idle_session_timeout": "0",
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "6",
}
"""Whatever the server, the database or the role has for all of its sessions."""
WORDS: dict[type[psycopg.Error], tuple[str, str]] = {
    errors.LockNotAvailable: ("is locked by another process", "try again, or end the process that holds it"),
    errors.InsufficientPrivilege: (
        "cannot be used by this role",
        "the owner of the schema must grant the privileges listed in docs/owners.md, under the ledger on a server",
    ),
    errors.UniqueViolation: ("already holds this", "a charge is marked only once, as released, refused or failed"),
    errors.RaiseException: (
        "was modified outside dpsql: entries are missing",
        "restore it from a backup, and treat every query since then as spent",
    ),
    errors.ReadOnlySqlTransaction: ("cannot be written", "connect to the primary server; nothing was charged"),
    errors.DiskFull: ("cannot grow: the disk is full", "free some space and ask again; nothing was charged"),
}


class LedgerServer:
    last_number = "SELECT number FROM last_number"

    def __init__(self, url: str) -> None:
        self.path = without_password(url)
        self.leases = ServerLeases(url)
        self._lock = threading.RLock()
        self._closed = False
        self._session = _Session(url)
        around_forks(self)
        with self._lock, in_plain_words(url):
            _make_tables(self._session.connection, url)

    @contextmanager
    def writing(self) -> Iterator[_Translated]:
        with self._transaction("LOCK TABLE last_number IN EXCLUSIVE MODE") as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[_Translated]:
        with self._transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[_Translated]:
        if self._closed:
            raise InterfaceError("the ledger is closed", hint="open it again")
        with self._lock, in_plain_words(self.path):
            connection = self._session.connection
            with connection.transaction():
                connection.execute(begin)
                yield _Translated(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.leases.close()
            self._session.close()

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self) -> None:
        self._lock.release()


class ServerLeases:
    """Charges that are being worked on, each an advisory lock of a session that does nothing else."""

    def __init__(self, url: str) -> None:
        self._session = _Session(url)
        self._lock = threading.Lock()
        self._numbers: set[int] = set()
        self._process = os.getpid()

    def take(self, number: int) -> None:
        with self._lock:
            self._own().add(number)
            # Without a lock the charge is taken for lost while it is not, which is the safe side.
            with suppress(psycopg.Error):
                self._ask("pg_try_advisory_lock", number)

    def release(self, number: int) -> None:
        with self._lock:
            self._own().discard(number)
            with suppress(psycopg.Error):
                self._ask("pg_advisory_unlock", number)

    def has(self, number: int) -> bool:
        with self._lock:
            if number in self._own():
                return True
            if not self._ask("pg_try_advisory_lock", number):
                return True
            self._ask("pg_advisory_unlock", number)
            return False

    def close(self) -> None:
        self._session.close()

    def _own(self) -> set[int]:
        """The locks of this process; none in a forked child, because they belong to the parent."""
        if self._process != os.getpid():
            self._process, self._numbers = os.getpid(), set()
        return self._numbers

    def _ask(self, function: str, number: int) -> bool:
        question = f"SELECT pg_catalog.{function}('entries'::regclass::oid::bigint::bit(32)::integer, %s)"
        with self._session.connection.transaction():
            row = self._session.connection.execute(question, [number % LEASABLE]).fetchone()
        return bool(row and row[0])


class _Session:
    """A connection of this process; it reconnects after a failure or a fork."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._process = os.getpid()

    @property
    def connection(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed or self._process != os.getpid():
            self.close()
            self._process = os.getpid()
            self._connection = _connect(self._url)
        return self._connection

    def close(self) -> None:
        if self._connection is not None and not self._connection.closed:
            if self._process != os.getpid():
                _cut_off(self._connection)
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        self.close()


class _Translated:
    """Takes the SQL that all ledgers share."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def execute(self, query: str, parameters: Sequence[object] = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        written = query.replace(" IS ?", " IS NOT DISTINCT FROM ?").replace("?", "%s")
        return self._connection.execute(written, parameters)


def grant_asking(url: str, role: str) -> None:
    """Lets a role ask and be charged, and no more. For the role that owns the ledger's schema."""
    _, schema = _parts(url)
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    with in_plain_words(url), closing(_connect(url)) as connection:
        if _version(connection, url) is None:
            raise LedgerError(f"there is no ledger {url}", hint="the first session with a budget creates it")
        connection.execute(sql.SQL(TO_ASK).format(**names))
        connection.commit()


def roles_of(url: str) -> dict[str, str]:
    """What each role may do that can log in, superusers aside: own the ledger, or ask.

    Raises LedgerError if one that does not own it could change entries.
    """
    with in_plain_words(url), closing(_connect(url)) as connection:
        found = connection.execute(ROLES).fetchall()
    for role, owns, may_change in found:
        if may_change and not owns:
            raise LedgerError(
                f'the role "{role}" may change the entries of the ledger, and is not its owner',
                hint=f"REVOKE UPDATE, DELETE, TRUNCATE, TRIGGER on its table entries from {role}",
            )
    return {role: "owns" if owns else "asks" for role, owns, _ in found}


def is_on_server(url: str) -> bool:
    with in_plain_words(url), closing(_connect(url)) as connection:
        return _version(connection, url) is not None


def _connect(url: str) -> psycopg.Connection:
    server, schema = _parts(url)
    connection = psycopg.connect(server, connect_timeout=BUSY_SECONDS, prepare_threshold=None)
    try:
        _check_pooler(connection, server)
        path = sql.SQL("SET search_path = pg_catalog, {}, pg_temp").format(sql.Identifier(schema))
        connection.execute(path)
        for name, value in SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


def _check_pooler(connection: psycopg.Connection, server: str) -> None:
    """A pooler shows by a number of the server's process that is not the one which answers. By transactions it gives
    one process to two connections; then settings would be somebody else's, and no lock would hold a charge.
    """
    process = _process(connection)
    if process == connection.info.backend_pid:
        return
    with psycopg.connect(server, connect_timeout=BUSY_SECONDS, prepare_threshold=None) as other:
        is_shared = _process(other) in (process, _process(connection))
    if is_shared:
        raise LedgerError(
            "the ledger is reached through a pooler that shares sessions",
            hint="connect to the server itself, or to a pooler with  pool_mode = session",
        )


def _process(connection: psycopg.Connection) -> int:
    with connection.transaction():
        row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def _cut_off(connection: psycopg.Connection) -> None:
    """In a forked child: closing the connection then sends nothing over the socket that the parent still uses."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, connection.fileno(), inheritable=False)
    os.close(nowhere)


def _parts(url: str) -> tuple[str, str]:
    """The URL of the database, and the schema.

    >>> _parts("postgresql://dpsql@host/db?schema=shop_ledger&sslmode=require")
    ('postgresql://dpsql@host/db?sslmode=require', 'shop_ledger')
    """
    server, _, given = url.partition("?")
    options = dict(parse_qsl(given))
    schema = options.pop("schema", DEFAULT_SCHEMA)
    return f"{server}?{urlencode(options)}" if options else server, schema


def _make_tables(connection: psycopg.Connection, url: str) -> None:
    """Under a lock, in case several processes are the first."""
    _, schema = _parts(url)
    with connection.transaction():
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(%s))", [f"dpsql {schema}"])
        version = _version(connection, url)
        made_here = sql.SQL("SET LOCAL search_path = {}").format(sql.Identifier(schema))
        if version is None:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            connection.execute(made_here)
            connection.execute(TABLES)
        elif version < SCHEMA_VERSION:
            try:
                connection.execute(made_here)
                connection.execute(FROM_OLDER_VERSION)
            except errors.InsufficientPrivilege:
                raise LedgerError(
                    f'the ledger "{schema}" was written by an older dpsql, and this role cannot alter its tables',
                    hint="the role that created the schema must open it once with this version, for example with  "
                    "dpsql ledger show",
                ) from None


def _version(connection: psycopg.Connection, url: str) -> int | None:
    """None if there is no schema yet, or an empty one."""
    _, schema = _parts(url)
    query = "SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.to_regnamespace(%s)"
    tables = {name for (name,) in connection.execute(query, [f'"{schema}"'])}
    if not tables:
        return None
    if not {"about", "entries"} <= tables:
        raise LedgerError(
            f'the schema "{schema}" is not a ledger', hint="give the ledger a schema of its own: ...?schema=shop_ledger"
        )
    row = connection.execute(sql.SQL("SELECT version FROM {}.about").format(sql.Identifier(schema))).fetchone()
    version = int(row[0]) if row else 0
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f'the ledger "{schema}" was written by a newer dpsql (schema {version}; this version reads up to '
            f"{SCHEMA_VERSION})",
            hint="upgrade dpsql",
        )
    return version


@contextmanager
def in_plain_words(url: str) -> Iterator[None]:
    """Turns an error of PostgreSQL into a LedgerError with a hint."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == FOR_THE_OWNER:
            raise LedgerError(
                "this role may ask, and only the owner of the ledger changes budgets, resumes or accepts a schema",
                hint="do it with the role that owns the ledger's schema",
            ) from None
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        what, way_out = WORDS.get(type(error), (f"cannot be used: {said}", "try the same URL with psql"))
        raise LedgerError(f"the ledger {without_password(url)} {what}", hint=way_out) from None
