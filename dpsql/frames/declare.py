"""From the arguments of protect() to a schema; errors name those arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.errors import ProgrammingError, SchemaError, UnknownName, did_you_mean, shown_argument
from dpsql.frames.vocabulary import TABLE
from dpsql.schema import Schema
from dpsql.schema.model import is_name
from dpsql.schema.problems import Document
from dpsql.schema.types import Date, Integer, Timestamp

if TYPE_CHECKING:
    from dpsql.schema.problems import KeyPath
    from dpsql.schema.types import ColumnType

    Types = Mapping[str, ColumnType]

SAMPLES = {"bounds": "(0, 500)", "values": '["north", "south"]'}
OF_TIMES, OF_INTEGERS = '("2024-01-01", "2024-12-31")', "[1, 2, 3]"
CONVERTED = {
    "bounds": "convert it to dates or numbers before protect()",
    "values": 'convert it to whole numbers before protect(): astype("Int64") in pandas',
}
"""What else to do with a column whose type does not take what was given."""


@dataclass(frozen=True)
class ProtectCall(Document):
    """The arguments of protect(), which take the place of a schema file."""

    types: Types = field(default_factory=dict)

    def error(self, path: KeyPath, problem: str, hint: str | None) -> SchemaError:
        *_, column, key = ("", *path)
        if key in SAMPLES:
            return SchemaError(f"{key}[{column!r}]: {problem}", hint=bounds_hint(column, key, self.types.get(column)))
        return SchemaError(f"{key}: {problem}", hint=hint and hint.replace(": ", "="))


def bounds_hint(column: str, key: str = "bounds", kind: ColumnType | None = None) -> str:
    """
    >>> bounds_hint("day", "bounds", Date())
    'write bounds={"day": ("2024-01-01", "2024-12-31")} in protect(), chosen without looking at the data'
    """
    sample = SAMPLES[key]
    if key == "bounds" and isinstance(kind, Date | Timestamp):
        sample = OF_TIMES
    elif key == "values" and isinstance(kind, Integer):
        sample = OF_INTEGERS
    return f'write {key}={{"{column}": {sample}}} in protect(), chosen without looking at the data'


def declare(
    frame: Collection[str],
    types: Types,
    public: Mapping[str, Types],
    *,
    unit: object,
    bounds: object,
    values: object,
    unique: object,
    **contribution: int | str | None,
) -> Schema:
    """`frame` lists all columns, `types` those with an SQL type; only the latter are declared."""
    usable = _usable(types)
    columns: dict[str, dict[str, Any]] = {name: {"type": kind, "nullable": True} for name, kind in usable.items()}
    _check_column("unit", unit, frame, usable)
    for key, given in (("bounds", {} if bounds is None else bounds), ("values", {} if values is None else values)):
        if not isinstance(given, Mapping):
            raise ProgrammingError(
                f"{key}= is a dict of columns, not {shown_argument(given)}", hint=bounds_hint("amount", key)
            )
        for name, facts in given.items():
            _check_column(key, name, frame, usable)
            _check_kind(key, name, usable[name])
            if not isinstance(facts, str | list | tuple | range | set | frozenset) and hasattr(facts, "__iter__"):
                raise ProgrammingError(
                    f'{key}: "{name}" is given {shown_argument(facts)}, which may hold rows',
                    hint=bounds_hint(name, key, usable[name]),
                )
            columns[name][key] = facts if isinstance(facts, str) or not hasattr(facts, "__iter__") else list(facts)
    for name, most in contribution.items():
        if most is not None and not isinstance(most, int | str):
            raise ProgrammingError(
                f'{name}= is a number or "auto", not {shown_argument(most)}', hint=f"write {name}=4, for example"
            )
    if not isinstance(unique, bool):
        raise ProgrammingError(
            f"unique= is True or False, not {shown_argument(unique)}",
            hint="write unique=True if each person has one row",
        )
    tables = {name: {"public": True, "columns": dict(_usable(found))} for name, found in public.items()}
    declared = {
        "dataset": f"df by {unit}",
        "contribution": {name: value for name, value in contribution.items() if value is not None},
        "tables": {**tables, TABLE: {"unit": unit, "unique": unique, "columns": columns}},
    }
    return Schema.model_validate(declared, context=ProtectCall(types=usable))


def narrowed(schema: Schema, frame: Collection[str]) -> Schema:
    """The schema without the columns that a frame no longer has."""
    table = schema.tables[TABLE]
    gone = table.columns.keys() - set(frame)
    if table.unit_column in gone:
        raise UnknownName(
            f'the frame no longer has its unit column "{table.unit_column}"',
            hint="keep it in the frame (after set_index, call reset_index); it says who each row belongs to",
        )
    if not gone:
        return schema
    declared = schema.model_dump(exclude_defaults=True)
    for name in gone:
        del declared["tables"][TABLE]["columns"][name]
    return Schema.model_validate(declared)


def _usable(types: Types) -> Types:
    """The columns that a schema can name: no dots or quotes, and unique when case is ignored."""
    lower = [name.lower() for name in types]
    return {name: kind for name, kind in types.items() if is_name(name) and lower.count(name.lower()) == 1}


def _check_column(argument: str, name: object, frame: Collection[str], usable: Types) -> None:
    if isinstance(name, str) and name in usable:
        return
    if isinstance(name, str) and name in frame:
        raise SchemaError(
            f'{argument}: the column "{name}" cannot be used: SQL does not support its name or type',
            hint="rename it: no dots, no quotes, and unique when case is ignored; or convert it to numbers, text "
            "or dates",
        )
    shown = f'"{name}"' if isinstance(name, str) else shown_argument(name)
    raise UnknownName(f"{argument}: the frame has no column {shown}", hint=did_you_mean(str(name), usable))


def _check_kind(key: str, name: str, kind: ColumnType) -> None:
    if not (kind.takes_bounds if key == "bounds" else kind.takes_values):
        other = "values" if kind.takes_values else "bounds" if kind.takes_bounds else None
        raise SchemaError(
            f'{key}: the column "{name}" is {kind.name}, which takes no {key}',
            hint=f"{bounds_hint(name, other, kind)}; or {CONVERTED[key]}" if other else None,
        )
