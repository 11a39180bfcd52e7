"""What all parts of a schema file have in common: known keys, and names as SQL understands them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

from dpsql.schema.problems import complaint
from dpsql.schema.types import misfit
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AUTO: Literal["auto"] = "auto"


class Declared(BaseModel):
    """A part of the schema file: a mapping with known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
    sample: ClassVar[str]
    elsewhere: ClassVar[dict[str, str]] = {}
    """Keys that are looked for here and stand in another place, with the way there."""

    @model_validator(mode="before")
    @classmethod
    def _know_every_key(cls, data: object) -> object:
        if isinstance(data, cls):
            return data
        if not isinstance(data, dict):
            raise complaint(misfit(data, "a mapping", "").problem, hint=f"write  {cls.sample}")
        for key in map(str, data):
            if key not in cls.model_fields:
                raise complaint(
                    f'unknown key "{key}"', key, hint=cls.elsewhere.get(key) or did_you_mean(key, cls.model_fields)
                )
        return data


class Named(Declared):
    """A part that stands under its name in a mapping."""

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        return self._name

    def named(self, name: str) -> Self:
        copy = self.model_copy()
        copy._name = name
        return copy


def is_name(text: str) -> bool:
    return bool(text) and text == text.strip() and text.isprintable() and {".", '"'}.isdisjoint(text)


def check_names(names: Iterable[str], *, dots: int = 0) -> None:
    """A table may have the schema of the database in front: sales.orders."""
    seen: dict[str, str] = {}
    for name in names:
        if name.count(".") > dots or not all(map(is_name, name.split("."))):
            raise complaint(
                f"{name!r} cannot be a name",
                name,
                hint="a name has no dots, double quotes or control characters, and no blanks around it"
                + ("; a table of another schema is declared as  sales.orders" if dots else ""),
            )
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            raise complaint(
                f'"{name}" and "{twin}" are the same name in SQL', name, hint="rename one: case does not count"
            )


def spelled(kind: str, name: str, declared: Mapping[str, object], *at: str) -> str:
    """`name` as it is declared, so that all later code may compare names as they are."""
    for known in declared:
        if known.lower() == name.lower():
            return known
    raise complaint(f'there is no {kind} "{name}"', *at, hint=did_you_mean(name, declared))
