"""The public API says what it does: every class, method and argument that docs/api.md shows has its words."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsql

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^::: (dpsql[\w.]+)\.(\w+)$", PAGE, re.MULTILINE)
FIXED_BY_PEP_249 = {"executemany", "setinputsizes", "setoutputsize"}


def found(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def is_ours(function: Any) -> bool:
    return bool(function.__module__.startswith("dpsql"))


def functions_of(shown: Any) -> Iterator[tuple[str, Any]]:
    """A function itself, or the public methods and properties that a class of dpsql defines or inherits."""
    if inspect.isfunction(shown):
        yield shown.__name__, shown
        return
    for part in shown.__mro__:
        for name, member in list(vars(part).items()):
            function = getattr(member, "fget", None) or getattr(member, "func", None) or member
            function = getattr(function, "__func__", function)
            if inspect.isfunction(function) and not {name[0], function.__name__[0]} & {"_"} and is_ours(function):
                yield name, function


API = [
    pytest.param(function, id=f"{name}.{part}")
    for module, name in SHOWN
    if name != "errors"
    for part, function in functions_of(found(module, name))
]


@pytest.mark.parametrize("function", API)
def test_every_method_says_what_it_does_and_what_it_takes(function: Any) -> None:
    said = inspect.getdoc(function) or ""
    assert said
    taken = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    listed = re.findall(r"^    (\w+): ", said.partition("Args:\n")[2], re.MULTILINE)
    if not {*listed} <= {*taken}:
        listed.append("options")  # each of them has a line
    assert function.__name__ in FIXED_BY_PEP_249 or [name for name in taken if name not in listed] == []


@pytest.mark.parametrize(("module", "name"), [each for each in SHOWN if each[1] != "errors"])
def test_every_class_and_field_has_its_words(module: str, name: str) -> None:
    shown = found(module, name)
    assert inspect.getdoc(shown)
    assert not dataclasses.is_dataclass(shown) or not (shown.__doc__ or "").startswith(f"{name}(")


def test_the_page_shows_what_can_be_imported() -> None:
    errors = {name for name in dpsql.__all__ if isinstance(getattr(dpsql, name), type)}
    errors = {name for name in errors if issubclass(getattr(dpsql, name), Warning | dpsql.Error)}
    rest = set(dpsql.__all__) - errors
    assert [name for name in rest if not re.search(rf"\b{name}\b", PAGE)] == []
    assert [name for name in errors if name not in PAGE.partition("::: dpsql.errors")[2]] == []
