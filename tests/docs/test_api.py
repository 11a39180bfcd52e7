"""The public API says what it does: every class, method and argument that docs/api.md shows has its words."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def words_missing(function: Any) -> Iterator[str]:
    """The docstring, or the arguments that it does not list."""
    said = inspect.getdoc(function) or ""
    if not said:
        yield "a docstring"
    taken = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    listed = re.findall(r"^    (\w+): ", said.partition("Args:\n")[2], re.MULTILINE)
    if not {*listed} <= {*taken}:
        listed.append("options")  # each of them has a line
    if function.__name__ not in FIXED_BY_PEP_249:
        yield from (name for name in taken if name not in listed)


def test_every_method_says_what_it_does_and_what_it_takes() -> None:
    functions = [
        (f"{module}.{name}.{part}", function)
        for module, name in SHOWN
        if name != "errors"
        for part, function in functions_of(found(module, name))
    ]
    assert len(functions) > 100
    assert [f"{where}: {missing}" for where, function in functions for missing in words_missing(function)] == []


def test_every_class_and_field_has_its_words() -> None:
    for module, name in SHOWN:
        shown = found(module, name) if name != "errors" else None
        made_up = dataclasses.is_dataclass(shown) and (shown.__doc__ or "").startswith(f"{name}(")
        assert name == "errors" or (inspect.getdoc(shown) and not made_up), f"{module}.{name} has no docstring"


def test_the_page_shows_what_can_be_imported() -> None:
    errors = {name for name in dpsql.__all__ if isinstance(getattr(dpsql, name), type)}
    errors = {name for name in errors if issubclass(getattr(dpsql, name), Warning | dpsql.Error)}
    rest = set(dpsql.__all__) - errors
    assert [name for name in rest if not re.search(rf"\b{name}\b", PAGE)] == []
    assert [name for name in errors if name not in PAGE.partition("::: dpsql.errors")[2]] == []
