"""The HTTP API: the same questions as over PostgreSQL's protocol, as JSON, for those who have a token.

    POST /shop/query    {"sql": "SELECT count(*) FROM orders", "options": {"epsilon": 0.05}}
    POST /shop/explain  the same, free
    GET  /shop/tables, /shop/budget, /shop/history, /openapi.json, /health

There are no cookies and no pages: a browser sends nothing by itself, so there is nothing to forge. Replies are never
cached, and leave at a tick, as all that a worker says.
"""

from __future__ import annotations

import hmac
import json
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from dpsql.errors import ProgrammingError
from dpsql.options import OPTIONS
from dpsql.server.channel import tagged
from dpsql.server.protocol import NO_DATABASE, TOO_MANY, Problem, Refused, refused
from dpsql.server.users import ChargePolicy, token_hash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.requests import Request

    from dpsql.server.users import User
    from dpsql.server.wire import Front

LARGEST_BODY = 1 << 20
WRONG_TOKEN = "28000"
STATUS = {WRONG_TOKEN: 401, NO_DATABASE: 404, "53400": 402, TOO_MANY: 429, "57P01": 503, "57014": 408, "58000": 500}
"""What is wrong, as HTTP says it; everything else is 400."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'",
}
FIELDS = ("sql", "parameters", "options", "charge", "dialect", "intervals")


class HttpFront:
    """The application; `front` is the process that it is in."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/openapi.json", self._openapi),
                Route("/{dataset}/tables", self._guarded(self._tables)),
                Route("/{dataset}/budget", self._guarded(self._account)),
                Route("/{dataset}/history", self._guarded(self._account)),
                Route("/{dataset}/explain", self._guarded(self._ask), methods=["POST"]),
                Route("/{dataset}/query", self._guarded(self._ask), methods=["POST"]),
            ]
        )

    async def _health(self, request: Request) -> Response:
        return replied({"status": "ok"})

    async def _openapi(self, request: Request) -> Response:
        return replied(openapi())

    def _guarded(self, answer: Callable[[Request, User], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
        """Only for who has a token for the dataset; refusals as JSON, and nothing of a mistake of ours."""

        async def guarded(request: Request) -> Response:
            try:
                return replied(await answer(request, self._signed_in(request)))
            except Refused as end:
                problem = end.problem
            except Exception as error:
                self.front.log("bug", kind=type(error).__name__)
                problem = Problem("58000", "the server made a mistake", "please report what you did")
            self.front.log("error", over="https", state=problem.state)
            told = {"state": problem.state, "problem": problem.text, "hint": problem.hint, "position": problem.position}
            return replied({"error": told}, STATUS.get(problem.state, 400))

        return guarded

    def _signed_in(self, request: Request) -> User:
        """The user of a token, which begins with the user's name; wrong ones are throttled by address."""
        address = request.client.host if request.client is not None else "local"
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        name = token.partition(":")[0][:64]
        if self.front.throttle.wait(name, address) > 0:
            raise refused(TOO_MANY, "too many wrong tokens", "try again in a minute")
        user = self.front.users.all().get(name)
        tokens = [] if user is None or kind.lower() != "bearer" else user.tokens
        if user is None or not any(hmac.compare_digest(known.hash, token_hash(token)) for known in tokens):
            self.front.throttle.failed(name, address)
            self.front.log("sign-in", user=name, address=address, over="https", outcome="refused")
            raise refused(WRONG_TOKEN, "a token is needed", "send the header Authorization: Bearer TOKEN")
        self.front.throttle.succeeded(name, address)
        dataset = request.path_params["dataset"]
        if self.front.link(dataset) is None or not user.may_read(dataset):
            raise refused(NO_DATABASE, "there is no such dataset for you", "ask the data owner")
        return user

    async def _tables(self, request: Request, user: User) -> Any:
        return (await self.front.catalog(request.path_params["dataset"])).declared

    async def _account(self, request: Request, user: User) -> Any:
        return await self._asked(request, user, request.url.path.rpartition("/")[2])

    async def _ask(self, request: Request, user: User) -> Any:
        body = await read_body(request)
        charge = user.policy
        try:
            if "charge" in body:
                charge = charge.narrowed(ChargePolicy.parse(str(body["charge"])))
        except ProgrammingError as error:
            problem = refused("22023", error.problem, error.hint)
        else:
            given = {
                "sql": body["sql"],
                "parameters": parameters(body.get("parameters")),
                "options": body.get("options") or {},
                "dialect": body.get("dialect", "duckdb"),
                "intervals": bool(body.get("intervals", True)),
                "charge": str(charge),
            }
            operation = "execute" if request.url.path.endswith("/query") else "explain"
            return await self._asked(request, user, operation, **given)
        raise problem

    async def _asked(self, request: Request, user: User, operation: str, **given: Any) -> Any:
        link = self.front.link(request.path_params["dataset"])
        assert link is not None
        return await link.ask(operation, user.name, **given)


async def read_body(request: Request) -> dict[str, Any]:
    """The body of a question: an object with `sql`, and what else FIELDS names."""
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > LARGEST_BODY:
            raise refused("54000", f"the body is longer than {LARGEST_BODY:,} bytes", "ask a shorter question")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("sql"), str):
        raise refused("22023", "the body is not a question", 'send {"sql": "SELECT count(*) FROM orders"}')
    if unknown := [name for name in body if name not in FIELDS]:
        raise refused("22023", f"there is no field {unknown[0][:40]!r}", f"there are {', '.join(FIELDS)}")
    options = body.get("options") or {}
    if not isinstance(options, dict) or (unknown := [name for name in options if name not in OPTIONS]):
        raise refused("22023", f"there is no option {str(unknown[:1])[:40]}", f"there are {', '.join(OPTIONS)}")
    return body


def parameters(given: Any) -> Any:
    """A list, or an object of names; dates and decimals are texts, as they are in SQL."""
    if given is None:
        return None
    if isinstance(given, dict):
        return {name: tagged(plain_value(value)) for name, value in given.items()}
    if isinstance(given, list):
        return [tagged(plain_value(value)) for value in given]
    raise refused("22023", "parameters are a list or an object", 'send {"parameters": [10]}')


def plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        raise refused(
            "22023", "a parameter cannot be an object", "pass numbers, texts, booleans, null or lists of them"
        )
    return [plain_value(part) for part in value] if isinstance(value, list) else value


def replied(document: Any, status: int = 200) -> Response:
    """In ASCII: a half character, which a text may hold, has no other spelling."""
    return Response(json.dumps(finite(document)), status, HEADERS, "application/json")


def finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they are texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list | tuple) else value


# -- description -------------------------------------------------------------------------------------------------------


def openapi() -> dict[str, Any]:
    """The API as an OpenAPI document."""
    question = {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {
            "sql": {"type": "string"},
            "parameters": {"oneOf": [{"type": "array"}, {"type": "object"}], "description": "for ? or $name"},
            "options": {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: {"description": option.help} for name, option in OPTIONS.items()},
            },
            "charge": {"type": "string", "description": "less than the login may spend: free-only, or up-to 0.01"},
            "dialect": {"type": "string", "enum": ["duckdb", "bigquery", "snowflake", "postgres"]},
            "intervals": {"type": "boolean", "description": "whether `ends` has the 95 % intervals; default true"},
        },
    }
    dataset = [{"name": "dataset", "in": "path", "required": True, "schema": {"type": "string"}}]
    body = {"required": True, "content": {"application/json": {"schema": question}}}
    codes = sorted({200, 400, *STATUS.values()})
    replies = {str(code): {"description": "an answer" if code == 200 else "refused; see `error`"} for code in codes}
    get = {name: f"the {name} of a dataset" for name in ("tables", "budget", "history")}
    post = {"query": "answer a question and charge it", "explain": "cost and error of a question, free"}
    paths = {f"/{{dataset}}/{name}": {"get": {"summary": text, "responses": replies}} for name, text in get.items()}
    for name, text in post.items():
        paths[f"/{{dataset}}/{name}"] = {"post": {"summary": text, "requestBody": body, "responses": replies}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "dpsql", "version": "1", "description": "Differentially private SQL"},
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {path: {**item, "parameters": dataset} for path, item in paths.items()},
    }


# -- server ------------------------------------------------------------------------------------------------------------


class HttpServer(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(front: Front, certificate: str, key: str) -> HttpServer:
    config = uvicorn.Config(
        HttpFront(front).app,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        limit_concurrency=front.most_sessions,
        http="h11",
        ws="none",
    )
    config.load()
    return HttpServer(config)
