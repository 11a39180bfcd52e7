"""What the table says of a mechanism is tried, for each of them; one more additive mechanism is a row and no more."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.accounting.filters import filter_named
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.aggregates.measure import Average, Matched, Mode, Quantile
from dpsql.mechanisms.additive import Allowance, Box, Noise, PureMechanism, Share
from dpsql.mechanisms.laplace import LaplaceNoise
from dpsql.mechanisms.registry import ADDITIVE, MECHANISMS, Mechanism

SCHEMA = {
    "dataset": "mechanisms",
    "contribution": {"max_groups": 2, "max_rows_per_group": 2},
    "tables": {
        "t": {
            "unit": "u",
            "columns": {
                "u": "integer",
                "k": {"type": "text", "values": ["a", "b"]},
                "x": {"type": "double", "bounds": [0, 100]},
            },
        }
    },
}
COUNT = "SELECT COUNT(*) AS n FROM t"
BY_KEY = "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k"
ASKED = {
    Quantile: "SELECT MEDIAN(x) FROM t",
    Mode: "SELECT MODE(k) FROM t",
    Average: "SELECT AVG(x) FROM t",
    Matched: "SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.k = b.k",
}
PROPOSED = {Quantile: 5, Average: 5, Matched: 10_000}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE t AS SELECT i // 2 AS u, CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b' END AS k, (i % 100)::DOUBLE AS x
        FROM range(1000) AS r(i)""")
    yield connection
    connection.close()


def connect(raw: duckdb.DuckDBPyConnection, delta: float = 1e-6, **options: Any) -> dpsql.Connection:
    return dpsql.connect(raw, schema=SCHEMA, budget=1000, delta=delta, **options)


def proposal(mechanism: Mechanism, statistic: type) -> dict[str, Any]:
    return {"propose": PROPOSED[statistic]} if mechanism.needs_proposal else {}


def dearest_step(noise: Noise) -> float:
    """The largest privacy loss of a move by one, over the values near 0."""
    tails = noise.survival(np.arange(1.0, 100.0))
    logarithms = np.log(np.concatenate([[1 - 2 * tails[0]], tails[:-1] - tails[1:]]))
    return float(np.abs(np.diff(logarithms)).max())


PURE = [name for name, mechanism in ADDITIVE.items() if isinstance(mechanism, PureMechanism)]


@pytest.mark.parametrize("name", PURE)
def test_a_small_move_costs_in_proportion(name: str) -> None:
    """A unit may move many groups by little instead of one by its bound: docs/proofs/light_units.md."""
    mechanism = ADDITIVE[name]
    assert isinstance(mechanism, PureMechanism)
    assert dearest_step(mechanism.noise(Fraction(10), Box())) <= 1 / 10 + 1e-9


EVERY_DRAW = [
    pytest.param(mechanism, statistic, id=f"{mechanism.name} {statistic.__name__}")
    for mechanism in MECHANISMS.values()
    for statistic in ASKED
]


SAID = {Quantile: "median", Mode: "mode", Average: "average", Matched: "of pairs"}
"""What explain() calls each of them."""


@pytest.mark.parametrize(("mechanism", "statistic"), EVERY_DRAW)
def test_it_answers_what_it_says_and_nothing_else(
    raw: duckdb.DuckDBPyConnection, mechanism: Mechanism, statistic: type
) -> None:
    asked = {"mechanism": mechanism.name, "epsilon": 5, **({"propose": 5} if mechanism.needs_proposal else {})}
    asked |= proposal(mechanism, statistic) if statistic in mechanism.draws else {}
    if statistic in mechanism.draws:
        (release,) = connect(raw).explain(ASKED[statistic], **asked).releases
        (drawn,) = release.statistics
        assert drawn.mechanism == mechanism.name
        assert SAID[statistic] in drawn.what
    elif statistic is Average and mechanism.noise is not None:  # from a sum and a count
        assert connect(raw).explain(ASKED[statistic], **asked).mechanism == mechanism.name
    else:
        with pytest.raises(dpsql.Unsupported):
            connect(raw).explain(ASKED[statistic], **asked)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))
def test_a_delta_is_asked_for_where_it_is_needed(raw: duckdb.DuckDBPyConnection, mechanism: Mechanism) -> None:
    statistic = next(iter(mechanism.draws), None)
    sql = COUNT if statistic is None else ASKED[statistic]
    options = {} if statistic is None else proposal(mechanism, statistic)
    without = connect(raw, delta=0)
    if not mechanism.needs_delta:
        without.explain(sql, epsilon=5, mechanism=mechanism.name, **options)
        return
    with pytest.raises(dpsql.ProgrammingError, match="needs a delta"):
        without.explain(sql, epsilon=5, mechanism=mechanism.name, **options)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))
def test_a_proposal_is_asked_for_where_it_is_needed(raw: duckdb.DuckDBPyConnection, mechanism: Mechanism) -> None:
    sql = ASKED[next(iter(mechanism.draws), Average)]
    given: dict[str, Any] = {} if mechanism.needs_proposal else {"propose": 5}
    with pytest.raises(dpsql.ProgrammingError, match="propos"):
        connect(raw).explain(sql, mechanism=mechanism.name, **given)


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("counted", ["auto", "basic", "zcdp", "gdp"])
def test_a_dose_costs_no_more_than_it_is_allowed(name: str, counted: str) -> None:
    """All measures of the query together; without a delta their epsilons add up, with one the session's rules say."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    session = filter_named(counted, epsilon, delta)
    allowed = Allowance(epsilon, delta if counted == "basic" else session.curve_delta, session)
    shares = [Share(2, Fraction(1, 2)), Share(2, Fraction(1, 3)), Share(4, Fraction(1, 6))]
    calibrations, event = ADDITIVE[name].calibrate(allowed, shares)
    cost = privacy_loss(event)
    assert (session.spent(cost).epsilon if MECHANISMS[name].needs_delta else cost.epsilon) <= 1 + 1e-9
    half, third, sixth = calibrations
    assert half.noise(5).name == name
    assert sixth.noise(5).std > third.noise(5).std > half.noise(5).std > half.noise(1).std > half.noise(0).std == 0


@pytest.mark.parametrize("parts", [(1, 2, 3), (1, 1, 1), (7, 11, 13), (1, 5, 90), (3, 3, 5)])
def test_a_bundle_is_charged_all_that_a_case_of_it_loses(parts: tuple[int, ...]) -> None:
    """Two measures of one case and one of another; each has its own rounding, and the charge has another."""
    session = filter_named("gdp", Fraction(1), Fraction(1, 10**6))
    for whole in (sum(parts), 3 * sum(parts), 7 * sum(parts)):
        places = (((0, 0), 0), ((0, 0), 0), ((0, 0), 1))
        shares = [Share(2, Fraction(part, whole), place) for part, place in zip(parts, places, strict=True)]
        allowed = Allowance(Fraction(1), session.curve_delta, session)
        calibrations, event = ADDITIVE["gaussian"].calibrate(allowed, shares)
        one, other, alone = (privacy_loss(found.alone).mu_squared for found in calibrations)
        assert max(one + other, alone) <= privacy_loss(event).mu_squared


# -- one more ----------------------------------------------------------------------------------------------------------


class WiderNoise(LaplaceNoise):
    name = "wider"


class Wider(PureMechanism):
    """Half as much as would be allowed."""

    def noise(self, scale: Fraction, box: Box) -> WiderNoise:
        return WiderNoise(2 * scale)


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Mechanism(name="wider", proof="discrete_laplace.md", noise=Wider())
    monkeypatch.setitem(MECHANISMS, row.name, row)
    monkeypatch.setitem(ADDITIVE, row.name, Wider())


@pytest.mark.usefixtures("one_more")
@pytest.mark.parametrize(("delta", "counted"), [(0, "auto"), (1e-6, "auto"), (1e-6, "basic")])
def test_a_third_additive_mechanism_is_a_row(raw: duckdb.DuckDBPyConnection, delta: float, counted: str) -> None:
    with connect(raw, delta=delta, composition=counted) as connection:
        named = connection.explain(BY_KEY, epsilon=1, mechanism="wider")
        laplace = connection.explain(BY_KEY, epsilon=1, mechanism="laplace")
        assert named.mechanism == "wider"
        for wide, usual in zip(named.releases[0].measures, laplace.releases[0].measures, strict=True):
            assert wide.std == pytest.approx(2 * usual.std, rel=1e-2)
        # It competes with the others, and loses; all that compares kinds of noise goes on working.
        chosen = connection.explain(BY_KEY, epsilon=1)
        assert chosen.mechanism in ("laplace", "knorm", "gaussian")
        assert "wider" not in chosen.reason, "worse in both"
        assert "takes" in connection.explain(BY_KEY, accuracy=500).reason
        assert {part.explanation.mechanism for part in connection.plan([COUNT, BY_KEY], epsilon=2).queries} <= set(
            ADDITIVE
        )
        assert connection.execute(COUNT, epsilon=100, mechanism="wider").fetchone() == (pytest.approx(1000, abs=10),)
