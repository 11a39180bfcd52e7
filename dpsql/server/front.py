"""The process that faces the network, and has no data: python -m dpsql.server.front

It opens its ports, reads its certificate, and then gives up all files but Python's own and the server's folder, and the
network but for the connections that come in (confine.py). What it knows of the data is what the workers say. It reads
its settings as one line of JSON from standard input, and goes when that ends.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from dpsql.errors import Error
from dpsql.server.catalog import Catalog
from dpsql.server.channel import Link
from dpsql.server.confine import OWN, SYSTEM, confine, python_files
from dpsql.server.settings import ServerSettings
from dpsql.server.users import Throttle
from dpsql.server.wire import PIDS, WireSession

if TYPE_CHECKING:
    import ssl

    from dpsql.server.http import HttpServer

MOST_SESSIONS, MOST_OPEN = 250, 500
"""Connections of people who have signed in, and of everybody."""


class NetworkFront:
    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.users = settings.users
        self.throttle = Throttle()
        self.tls: ssl.SSLContext = settings.tls()
        self.sessions: dict[int, WireSession] = {}
        self.most_sessions = MOST_SESSIONS
        self._links = {name: Link(name, settings.socket(name), settings.tick) for name in settings.datasets}
        self._catalogs: dict[str, Catalog] = {}
        self._making = asyncio.Lock()
        self._open = 0

    def link(self, dataset: str) -> Link | None:
        return self._links.get(dataset)

    async def catalog(self, dataset: str) -> Catalog:
        async with self._making:
            if dataset not in self._catalogs:
                declared = await self._links[dataset].ask("hello", "")
                made = asyncio.get_running_loop().run_in_executor(None, Catalog, dataset, declared)
                self._catalogs[dataset] = await made
            return self._catalogs[dataset]

    def log(self, event: str, **facts: object) -> None:
        """One line of JSON: names, outcomes and codes; no SQL, no value, no secret."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(json.dumps({"time": now, "event": event, **facts}), file=sys.stderr, flush=True)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= MOST_OPEN:
            writer.close()
            return
        self._open += 1
        session = WireSession(self, reader, writer, next(PIDS))
        try:
            await session.serve()
        except Exception as error:
            # What it says may quote a question.
            self.log("bug", kind=type(error).__name__)
            writer.close()
        finally:
            self._open -= 1


async def run(settings: ServerSettings) -> None:
    front = NetworkFront(settings)
    loop = asyncio.get_running_loop()
    # What asyncio would say of a broken connection is for programmers, and may quote what was sent.
    loop.set_exception_handler(lambda _, context: front.log("bug", kind=type(context.get("exception")).__name__))
    server = await asyncio.start_server(front.connected, settings.host, settings.postgres_port)
    https = _https(front)
    is_confined = confine([*python_files(), *SYSTEM, *OWN, settings.folder], network=False)
    for name in settings.datasets:
        await front.catalog(name)
    ports = {"postgres_port": server.sockets[0].getsockname()[1], "https_port": None}
    serving = None
    if https is not None:
        ports["https_port"] = https[1].getsockname()[1]
        serving = asyncio.create_task(https[0].serve([https[1]]))
    print(json.dumps({"ready": True, **ports, "is_confined": is_confined}), flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()
    if https is not None and serving is not None:
        https[0].should_exit = True
        await serving


def _https(front: NetworkFront) -> tuple[HttpServer, socket.socket] | None:
    """The server of the HTTP API and its port; None where what it needs is not installed."""
    try:
        from dpsql.server.http import http_server
    except ImportError:
        return None
    settings = front.settings
    opened = socket.create_server((settings.host, settings.https_port))
    return http_server(front, str(settings.certificate_file), str(settings.key_file)), opened


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the supervisor says when to end
    try:
        asyncio.run(run(ServerSettings(**json.loads(sys.stdin.readline()))))
    except (Error, OSError) as error:
        print(json.dumps({"problem": str(error).splitlines()[0], "hint": getattr(error, "hint", None)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
