"""Who may sign in, and what their questions may cost: one file that the owner's commands write and the front reads.

Passwords and tokens are generated, shown once, and stored as SCRAM verifiers and as hashes. The file is replaced in one
step and has mode 600; the front, which faces the network, cannot write it (confine.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import asdict, dataclass, field, replace
from secrets import token_bytes, token_urlsafe
from typing import TYPE_CHECKING, Any

from dpsql.errors import OperationalError, ProgrammingError, did_you_mean
from dpsql.options import positive
from dpsql.server.scram import Verifier

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import Path

NAME = re.compile(r"[a-z][a-z0-9_.@-]{0,62}")
ROLES = ("analyst", "owner")
EVERY = "*"
FREE_ONLY, ASK, UP_TO = "free-only", "ask", "up-to"

# -- charge policy -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChargePolicy:
    """What one question of a login may cost.

    free-only    nothing: only stored answers and what is public is answered
    ask          nothing, until the session allows it: SET dpsql.charge = 'up-to 0.1'
    up-to 0.1    at most epsilon 0.1; the session may set less
    """

    kind: str
    most: Fraction | None = None

    @classmethod
    def parse(cls, text: str) -> ChargePolicy:
        """
        >>> str(ChargePolicy.parse("up-to 0.05"))
        'up-to 0.05'
        """
        kind, _, amount = " ".join(text.lower().split()).replace("up to", UP_TO).partition(" ")
        if kind in (FREE_ONLY, ASK) and not amount:
            return cls(kind)
        if kind == UP_TO and amount:
            return cls(kind, positive(amount, "charge"))
        raise ProgrammingError(f'unknown charge "{text}"', hint="write ask, free-only, or up-to 0.05")

    def narrowed(self, wanted: ChargePolicy) -> ChargePolicy:
        """What a session sets for itself; never more than its login allows."""
        if self.kind == FREE_ONLY and wanted.kind != FREE_ONLY:
            raise ProgrammingError("this login answers free questions only", hint="ask the data owner for another")
        if self.most is not None and wanted.most is not None and wanted.most > self.most:
            raise ProgrammingError(
                f"this login may spend at most epsilon {float(self.most):g} per query",
                hint=f"write {self} or less",
            )
        return wanted

    @property
    def allowed(self) -> float:
        """The most epsilon of a question."""
        return float(self.most) if self.most is not None else 0.0

    def __str__(self) -> str:
        return self.kind if self.most is None else f"{self.kind} {float(self.most):g}"


# -- users -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccessToken:
    """A token for the HTTP API, of which the hash is stored."""

    number: int
    hash: str
    made: str


@dataclass(frozen=True)
class User:
    name: str
    password: str
    """The verifier, as text."""
    role: str = "analyst"
    datasets: tuple[str, ...] = (EVERY,)
    charge: str = ASK
    tokens: tuple[AccessToken, ...] = ()

    def may_read(self, dataset: str) -> bool:
        return EVERY in self.datasets or dataset in self.datasets

    @property
    def policy(self) -> ChargePolicy:
        return ChargePolicy.parse(self.charge)


def new_password() -> str:
    """128 random bits."""
    return token_urlsafe(16)


class Users:
    """The users on file; read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, User] = {}
        self._secret = b""

    def all(self) -> dict[str, User]:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return {}
        seen = (found.st_mtime_ns, found.st_ino)
        if seen != self._seen:
            stored = json.loads(self.path.read_text("utf-8"))
            self._known = {user.name: user for user in map(_user, stored["users"])}
            self._secret = bytes.fromhex(stored["secret"])
            self._seen = seen
        return self._known

    def verifier(self, name: str) -> Verifier:
        """Of somebody unknown one that admits nobody, and looks the same each time."""
        user = self.all().get(name)
        return Verifier.of_nobody(name, self._secret) if user is None else Verifier.from_text(user.password)

    def get(self, name: str) -> User:
        user = self.all().get(name)
        if user is None:
            raise ProgrammingError(f'there is no user "{name}"', hint=did_you_mean(name, self.all()))
        return user

    def add(self, name: str, role: str, datasets: tuple[str, ...], charge: str) -> str:
        """Adds a user and returns the password, which is stored nowhere."""
        if not NAME.fullmatch(name):
            raise ProgrammingError(f'"{name}" cannot be a user name', hint="use lowercase letters, digits, _ . @ -")
        if role not in ROLES:
            raise ProgrammingError(f'unknown role "{role}"', hint=f"one of: {', '.join(ROLES)}")
        if name in self.all():
            raise ProgrammingError(f'there is a user "{name}" already', hint=f"dpsql user passwd SERVER {name}")
        password = new_password()
        policy = str(ChargePolicy.parse(charge))
        self._write(User(name, Verifier.of(password).to_text(), role, datasets or (EVERY,), policy))
        return password

    def renew(self, name: str) -> str:
        """Gives a user another password."""
        password = new_password()
        self._write(replace(self.get(name), password=Verifier.of(password).to_text()))
        return password

    def issue(self, name: str) -> str:
        """Gives a user one more token, which begins with the name."""
        user, token = self.get(name), f"{name}:{token_urlsafe(24)}"
        number = max((known.number for known in user.tokens), default=0) + 1
        made = time.strftime("%Y-%m-%d", time.gmtime())
        self._write(replace(user, tokens=(*user.tokens, AccessToken(number, token_hash(token), made))))
        return token

    def revoke(self, name: str, number: int | None = None) -> None:
        """Takes back one token, or all of them and the login itself."""
        user = self.get(name)
        if number is None:
            self._write(user, without=True)
            return
        if number not in [token.number for token in user.tokens]:
            raise ProgrammingError(f"{name} has no token {number}", hint="dpsql user list shows the tokens")
        self._write(replace(user, tokens=tuple(token for token in user.tokens if token.number != number)))

    def _write(self, user: User, without: bool = False) -> None:
        users = {**self.all(), user.name: user}
        if without:
            del users[user.name]
        secret = self._secret or token_bytes(32)
        text = json.dumps({"secret": secret.hex(), "users": [asdict(each) for each in users.values()]}, indent=1)
        write_secret(self.path, text)


def _user(stored: dict[str, Any]) -> User:
    tokens = tuple(AccessToken(**token) for token in stored["tokens"])
    return User(**{**stored, "datasets": tuple(stored["datasets"]), "tokens": tokens})


def token_hash(token: str) -> str:
    """What is stored of a token. It has 192 random bits, so that one hash suffices."""
    return hashlib.sha256(token.encode()).hexdigest()


def write_secret(path: Path, text: str | bytes) -> None:
    """Written beside it with mode 600, then put in its place."""
    beside = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        problem = OperationalError(f"{beside} cannot be written: {error.strerror}", hint="check the folder")
    else:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            os.fchmod(file.fileno(), 0o600)
        beside.replace(path)
        return
    raise problem


# -- throttle ----------------------------------------------------------------------------------------------------------

FREE_TRIES, LONGEST_WAIT, FORGOTTEN = 5, 60.0, 900.0
MOST_WATCHED = 10_000


@dataclass
class Throttle:
    """After five wrong passwords for a name from an address, the next try has to wait, twice as long each time."""

    failures: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def wait(self, name: str, address: str) -> float:
        """Seconds until another try is looked at."""
        count, last = self.failures.get((name, address), (0, 0.0))
        if count < FREE_TRIES:
            return 0.0
        return max(0.0, last + min(LONGEST_WAIT, 2.0 ** (count - FREE_TRIES)) - time.monotonic())

    def failed(self, name: str, address: str) -> None:
        now = time.monotonic()
        if len(self.failures) >= MOST_WATCHED:
            self.failures = {key: seen for key, seen in self.failures.items() if now - seen[1] < FORGOTTEN}
        if len(self.failures) < MOST_WATCHED:
            count, _ = self.failures.get((name, address), (0, 0.0))
            self.failures[name, address] = (count + 1, now)

    def succeeded(self, name: str, address: str) -> None:
        self.failures.pop((name, address), None)
