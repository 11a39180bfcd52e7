"""What is served, and how: `server.yaml`, or the options of `dpsql serve`; and the server's folder with its secrets.

datasets:
  shop: {database: shop.duckdb, schema: shop.yaml, budget: 3, delta: 1e-6}
  clinic: {database: "postgresql://dpsql@db/clinic", schema: clinic.yaml, ledger: clinic.ledger}
timeout: 60

The folder (by default next to that file, with the ending .server) holds users.json, the certificate and its key, and
the sockets between the processes. It is readable by its owner alone.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.server.users import NAME, Users, write_secret

LOOPBACK = ("127.0.0.1", "::1", "localhost")
YEARS = 5
LONGEST_SOCKET = 100
"""Characters of a socket's path; systems take 104 or 108."""
OWNER = "owner"


class DatasetSettings(BaseModel):
    """One dataset: the options of `dpsql.connect` that the owner decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    database: str
    schema_file: str = Field(alias="schema")
    ledger: str | None = None
    budget: float | str | None = None
    delta: float | str | None = None
    query_epsilon: float | str | None = None
    composition: str | None = None
    interrupts_per_day: int = 3


class ServerSettings(BaseModel):
    """The whole server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    datasets: dict[str, DatasetSettings]
    folder: str
    host: str = "127.0.0.1"
    postgres_port: int = Field(default=5433, ge=0, le=65535)
    https_port: int = Field(default=8433, ge=0, le=65535)
    certificate: str | None = None
    key: str | None = None
    timeout: float = Field(default=60.0, gt=0)
    """Seconds after which a question is stopped."""
    tick: float = Field(default=0.1, gt=0, le=60)
    """Seconds between two moments at which what a worker says may leave."""

    @property
    def users(self) -> Users:
        return Users(Path(self.folder) / "users.json")

    @property
    def certificate_file(self) -> Path:
        return Path(self.certificate) if self.certificate else Path(self.folder) / "server.crt"

    @property
    def key_file(self) -> Path:
        return Path(self.key) if self.key else Path(self.folder) / "server.key"

    def socket(self, dataset: str) -> Path:
        return Path(self.folder) / f"{dataset}.socket"

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK

    def tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate_file, self.key_file)
        return context


def folder_of(served: str) -> Path:
    """The server's folder for a database or a server.yaml."""
    path = Path(served)
    if "://" in served:
        raise ProgrammingError("a database on a server needs a server.yaml", hint="docs/server.md shows one")
    return (path.with_suffix(".server") if path.suffix in (".yaml", ".yml") else Path(f"{path}.server")).resolve()


def dataset_name(served: str) -> str:
    """What analysts call a database that is served alone: by the name of its file.

    >>> dataset_name("data/Shop 2024.duckdb")
    'shop_2024'
    """
    return re.sub(r"[^a-z0-9_]+", "_", Path(served).stem.lower()).strip("_") or "data"


def read_settings(path: Path, **given: Any) -> ServerSettings:
    """The settings of a server.yaml; paths in it are relative to it."""
    try:
        loaded = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ProgrammingError(f"{path} is not a YAML file", hint="docs/server.md shows one") from None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("datasets"), dict):
        raise ProgrammingError(f"{path} names no datasets", hint="docs/server.md shows a server.yaml")
    base = path.resolve().parent
    for dataset in loaded["datasets"].values():
        for key in ("database", "schema", "ledger"):
            if isinstance(dataset, dict) and isinstance(dataset.get(key), str) and "://" not in dataset[key]:
                dataset[key] = str(base / dataset[key])
    for key in ("folder", "certificate", "key"):
        if isinstance(loaded.get(key), str):
            loaded[key] = str(base / loaded[key])
    return made({"folder": str(folder_of(str(path))), **loaded, **given})


def made(values: dict[str, Any]) -> ServerSettings:
    """The settings from plain values; the first mistake is told."""
    try:
        settings = ServerSettings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        problem = ProgrammingError(f"server settings: {place}: {first['msg'].lower()}", hint="docs/server.md")
    else:
        wrong = [name for name in settings.datasets if not NAME.fullmatch(name)]
        if not wrong:
            return settings
        problem = ProgrammingError(f'"{wrong[0]}" cannot be the name of a dataset', hint="use lowercase letters")
    raise problem


# -- first run ---------------------------------------------------------------------------------------------------------


def prepare(settings: ServerSettings) -> str | None:
    """Makes what is missing of the folder; returns the owner's password if there was no owner yet."""
    folder = Path(settings.folder)
    if any(len(str(settings.socket(name))) > LONGEST_SOCKET for name in settings.datasets):
        raise ProgrammingError(f"the path {folder} is too long for a socket", hint="write folder: in a server.yaml")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        problem = OperationalError(f"{folder} cannot be used: {error.strerror}", hint="name another folder")
    else:
        if not settings.certificate_file.exists():
            if settings.certificate or settings.key:
                raise OperationalError(f"there is no certificate {settings.certificate_file}", hint="check the path")
            make_certificate(settings)
        if OWNER in settings.users.all():
            return None
        return settings.users.add(OWNER, OWNER, (), "ask")
    raise problem


def make_certificate(settings: ServerSettings) -> None:
    """A certificate that this server signs itself, for its own names."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dpsql on {settings.host}"[:64])])
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        address: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(settings.host))
    except ValueError:
        address = x509.DNSName(settings.host)
    names += [address] if address not in names else []
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_secret(settings.key_file, private)
    write_secret(settings.certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
