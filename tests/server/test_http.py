"""The HTTP API against a live server: questions, refusals, tokens, and what is not for whom."""

from __future__ import annotations

import json
import random
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the HTTP API needs dpsql[server]")
pytestmark = pytest.mark.server
BY_REGION = "SELECT region, COUNT(*) AS n FROM orders GROUP BY region ORDER BY region"
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def ask(server: Any) -> Ask:
    """The status and the document of a request, with ada's token unless another is named."""
    token = server.settings.users.issue("ada")
    context = ssl.create_default_context(cafile=Path(server.settings.folder) / "server.crt")
    base = f"https://127.0.0.1:{server.children[-1].ready['https_port']}"

    def asked(path: str, body: Any = None, token: str | None = token) -> tuple[int, Any]:
        raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(base + path, raw)
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as found:
                return found.status, json.load(found)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null") if "json" in error.headers["content-type"] else None

    return asked


def test_a_question_its_explanation_and_the_account(ask: Ask) -> None:
    options = {"epsilon": 0.03}
    status, explained = ask("/shop/explain", {"sql": BY_REGION, "options": options})
    assert (status, explained["receipt"]["epsilon"], explained["rows"]) == (200, 0.03, [])
    status, found = ask("/shop/query", {"sql": BY_REGION, "options": options})
    assert status == 200
    assert [column["name"] for column in found["columns"]] == ["region", "n"]
    assert [region for region, _ in found["rows"]] == ["east", "north", "south", "west"]
    assert all(low <= n <= high for (_, n), (_, (low, high)) in zip(found["rows"], found["ends"], strict=True))
    assert ask("/shop/query", {"sql": BY_REGION, "options": options})[1]["rows"] == found["rows"]
    assert ask("/shop/explain", {"sql": BY_REGION, "options": options})[1]["receipt"]["recalled"]
    assert ask("/shop/budget")[1]["analyst"] == "ada"
    assert {entry["analyst"] for entry in ask("/shop/history")[1]} == {"ada"}
    assert [table["name"] for table in ask("/shop/tables")[1]["tables"]] == ["customers", "orders"]


def test_parameters_and_a_smaller_charge(ask: Ask) -> None:
    sql = "SELECT COUNT(*) FROM orders WHERE items > ? AND region IN ?"
    assert ask("/shop/query", {"sql": sql, "parameters": [3, ["north", "south"]]})[0] == 200
    named = {"sql": "SELECT COUNT(*) FROM orders WHERE items > $low", "parameters": {"low": 4}}
    assert ask("/shop/query", named)[0] == 200
    status, found = ask("/shop/query", {"sql": "SELECT COUNT(*) FROM orders WHERE items > 17", "charge": "free-only"})
    assert (status, found["error"]["state"]) == (402, "53400")


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/shop/query", {"sql": "SELECT amuont FROM orders"}, 400, 'did you mean "amount"?'),
        ("/shop/query", {"sql": "SELECT note FROM orders"}, 400, "aggregate"),
        ("/shop/query", {"sql": "SELECT 1", "sqll": 1}, 400, "there are sql"),
        ("/shop/query", {"sql": "SELECT 1", "options": {"epsilom": 1}}, 400, "there are epsilon"),
        ("/shop/query", {"sql": "SELECT 1", "parameters": [{"a": 1}]}, 400, "pass numbers"),
        ("/shop/query", {"sql": BY_REGION, "charge": "up-to 5"}, 400, "up-to 0.05 or less"),
        ("/shop/query", {"sql": BY_REGION, "options": {"epsilon": 1}}, 402, "epsilon=0.05 or less"),
        ("/shop/query", b"{", 400, "send"),
        ("/shop/query", b"[" * 100_000, 400, "send"),
        ("/shop/query", b"x" * 1_100_000, 400, "shorter"),
        ("/clinic/query", {"sql": "SELECT 1"}, 404, "ask the data owner"),
    ],
)
def test_refusals_name_a_way_out(ask: Ask, path: str, body: Any, status: int, says: str) -> None:
    found, document = ask(path, body)
    assert (found, says in document["error"]["hint"]) == (status, True)


def test_nobody_gets_in_without_a_token_and_revoked_ones_are_none(ask: Ask, server: Any) -> None:
    for path in ("/shop/tables", "/shop/budget", "/shop/history"):
        assert ask(path, token=None)[0] == 401
    assert ask("/shop/budget", token="guest:wrong")[0] == 401
    assert ask("/shop/budget", token=f"owner:{server.passwords['owner']}")[0] == 401
    token = server.settings.users.issue("guest")
    assert ask("/shop/history", token=token) == (200, [])
    assert token not in server.settings.users.path.read_text()
    server.settings.users.revoke("guest", server.settings.users.get("guest").tokens[-1].number)
    assert ask("/shop/history", token=token)[0] == 401


def test_the_document_describes_what_is_there(ask: Ask) -> None:
    status, document = ask("/openapi.json", token=None)
    assert status == 200
    for path, item in document["paths"].items():
        for method in item.keys() & {"get", "post"}:
            found, _ = ask(path.format(dataset="shop"), {"sql": BY_REGION} if method == "post" else None)
            assert str(found) in item[method]["responses"]
            assert found == 200
    assert ask("/health", token=None) == (200, {"status": "ok"})
    assert ask("/shop/nothing")[0] == 404


def test_broken_requests_are_refused(ask: Ask) -> None:
    rng = random.Random("fuzz")
    values = [None, 1, -1.5, 1e308, "x", "\ud800", "\0", [], {}, [[]], {"a": {}}, True, "9" * 400, ["\0"], 10**400]
    for _ in range(150):
        body = {
            "sql": rng.choice([BY_REGION, "SELECT 1", "SELECT COUNT(*) FROM orders WHERE items > ?", *map(str, values)])
        }
        for name in rng.sample(["parameters", "options", "charge", "dialect", "intervals"], 2):
            body[name] = rng.choice(
                [rng.choice(values), {rng.choice(["epsilon", "accuracy", "x"]): rng.choice(values)}]
            )
        status, document = ask(rng.choice(["/shop/explain", "/shop/query"]), body)
        assert status in (200, 400, 402), document
