"""What cannot be randomised is refused with a count, and never shown."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpsql.errors import ProgrammingError
from dpsql.local import KaryResponse, OptimizedUnaryEncoding, RandomizedResponse, Rappor, SubsetSelection, best_for

DAYS = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
KINDS = (KaryResponse, OptimizedUnaryEncoding, Rappor, SubsetSelection)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), None, True, "much", 1e-30])
def test_an_epsilon_that_is_none(kind: Callable[..., object], epsilon: object) -> None:
    with pytest.raises(ProgrammingError, match=r"epsilon|nothing"):
        kind(["a", "b", "c"], epsilon)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", [[], ["yes"], "yes", ["a", "a"], [1, True], [0.5, float("nan")]])
def test_a_domain_that_is_none(kind: Callable[..., object], domain: object) -> None:
    with pytest.raises(ProgrammingError, match=r"domain"):
        kind(domain, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_values_outside_the_domain_are_counted(kind: Callable[..., object]) -> None:
    mechanism = kind(["yes", "no"], 1.0)
    answers = ["yes", "secret disease", "no", "other secret"] * 50_000
    with pytest.raises(ProgrammingError, match=r"^100,000 of 200,000 values are outside the domain") as raised:
        mechanism.perturb(answers)  # type: ignore[attr-defined]
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA, pd.NaT, np.datetime64("NaT")])
def test_null_is_refused_or_an_answer_of_its_own(nothing: object) -> None:
    with pytest.raises(ProgrammingError, match="1 of 3 values are NULL"):
        KaryResponse(["yes", "no"], 1.0).perturb(["yes", nothing, "no"])
    reports = KaryResponse(["yes", "no", None], 30.0).perturb(["yes", nothing, "no"])
    assert reports.tolist() == ["yes", None, "no"]


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        ([True, False], [False, True]),
        (np.array([1, 2, 3], dtype=np.int8), [1, 2, 3]),
        (np.array(["a", "b"]), ["a", "b"]),
        (pd.Series(["a", "b"]), ["a", "b"]),
        (pd.Series(["a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series([1, 2], dtype="Int64"), [1, 2]),
        (pl.Series(["a", "b"]), ["a", "b"]),
        (
            [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)],
            [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)],
        ),
        ([], ["a", "b"]),
    ],
)
def test_columns_of_many_kinds(values: object, domain: list[object]) -> None:
    """At epsilon 40 the truth is told but for once in 10^17."""
    assert KaryResponse(domain, 40).perturb(values).tolist() == list(values)  # type: ignore[arg-type, call-overload]
    mechanism = OptimizedUnaryEncoding(domain, 1.0)
    assert mechanism.perturb(values).shape == (len(values), 1)  # type: ignore[arg-type]


def test_a_text_is_no_number() -> None:
    with pytest.raises(ProgrammingError, match="2 of 2"):
        KaryResponse([1, 2], 1.0).perturb(["1", "2"])
    with pytest.raises(ProgrammingError, match="a single column"):
        KaryResponse([1, 2], 1.0).perturb(np.zeros((2, 2)))


def test_reports_of_another_domain_are_counted() -> None:
    mechanism = OptimizedUnaryEncoding(range(5), 1.0)
    with pytest.raises(ProgrammingError, match="rows of 1 bytes"):
        mechanism.estimate(np.zeros((3, 2), dtype=np.uint8))
    with pytest.raises(ProgrammingError, match="2 of 3 reports have bits outside"):
        mechanism.estimate(np.array([[31], [32], [255]], dtype=np.uint8))
    with pytest.raises(ProgrammingError, match="1 of 2 values are outside"):
        KaryResponse(["a", "b"], 1.0).estimate(["a", "c"])


def test_reports_as_integers_and_back(coins) -> None:  # type: ignore[no-untyped-def]
    for k in (2, 8, 9, 63):
        mechanism = OptimizedUnaryEncoding(range(k), 1.0)
        reports = mechanism.perturb(np.arange(k), coins)
        column = mechanism.as_integers(reports)
        assert column.min() >= 0
        assert np.array_equal(mechanism.from_integers(column), reports)
    wide = OptimizedUnaryEncoding(range(64), 1.0)
    with pytest.raises(ProgrammingError, match="64 bits do not fit"):
        wide.as_integers(wide.perturb([1]))


def test_channels_that_are_too_large() -> None:
    with pytest.raises(ProgrammingError, match="1,048,576 columns"):
        _ = OptimizedUnaryEncoding(range(20), 1.0).channel


def test_other_mistakes() -> None:
    with pytest.raises(ProgrammingError, match="n must be the number"):
        best_for(["a", "b"], 1.0, 0)
    with pytest.raises(ProgrammingError, match="more often"):
        Rappor(["a", "b"], 1.0, instantaneous=(0.75, 0.5))
    with pytest.raises(ProgrammingError, match="between 0 and 1"):
        Rappor(["a", "b"], 1.0, instantaneous=(0.5, 1))
    with pytest.raises(ProgrammingError, match="confidence level"):
        RandomizedResponse(1.0).estimate([True]).intervals(95)
