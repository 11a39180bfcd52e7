"""What a schema declares, as it goes on record: whose rows are counted is a part of what epsilon means.

    orders: {unit: customer, columns: {amount: {type: double, bounds: [0, 500]}}}
    orders: {unit: order_id, ...}                                                     refused on the same ledger
    orders: {unit: customer, columns: {amount: {type: double, bounds: [0, 900]}}}     noted

Changes that protect people less for the same epsilon need an entry by the data owner. All others are noted, with their
date. Only what is declared is written, nothing of the data. docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Facts = Mapping[str, Any]
"""The keys of a part of a schema file, such as a table, that are not at their defaults."""
NOT_DECLARED = "none"
MEANING = ("unit", "unique", "public")
"""The keys of a table that say who is protected."""


@dataclass(frozen=True)
class Declaration:
    tables: Mapping[str, Facts]
    """By name in lower case: what is declared of each table, also of those that only earlier schemas declared."""
    fingerprint: str
    """Of the schema."""
    changed: tuple[str, ...] = ()
    """What is not as it was on record before."""

    @classmethod
    def of(cls, tables: Mapping[str, Facts], fingerprint: str) -> Declaration:
        return cls({name.lower(): facts for name, facts in tables.items()}, fingerprint)

    def following(self, before: Declaration, *, accepted: bool = False) -> Declaration:
        """The declaration after the one on record. What it leaves out stays known: it may be declared again.

        Unless the owner accepts it, what epsilon means stays as it was, also where this declaration would protect
        people more: an analyst with another schema does not change what holds for everybody.
        """
        keep = _with_columns if accepted else _as_before
        tables = {name: keep(facts, before.tables.get(name, {})) for name, facts in self.tables.items()}
        return Declaration({**before.tables, **tables}, self.fingerprint, tuple(_changes(before, self)))

    def redefines(self, before: Declaration) -> tuple[str, ...]:
        """The changes by which the same epsilon would protect people less, or protect somebody else."""
        return tuple(
            change
            for name, facts in self.tables.items()
            if name in before.tables
            for change in _redefined(name, before.tables[name], facts)
        )

    def to_json(self) -> str:
        described = {"tables": self.tables, "changed": self.changed}
        return json.dumps(described, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, fingerprint: str) -> Declaration:
        described = json.loads(text)
        return cls(described["tables"], fingerprint, tuple(described["changed"]))

    def __str__(self) -> str:
        """
        >>> print(Declaration.of({"visits": {"unit": "person"}, "towns": {"public": True}}, ""))
        schema: visits by person; towns is public
        """
        return f"schema: {'; '.join(self.changed or (_described(name, table) for name, table in self.tables.items()))}"


def _described(name: str, table: Facts) -> str:
    if table.get("public"):
        return f"{name} is public"
    return f"{name} by {_unit(table)}{', one row each' if table.get('unique') else ''}"


def _unit(table: Facts) -> str:
    """
    >>> _unit({"unit": {"through": "order_id", "to": "orders.id"}})
    'order_id -> orders.id'
    """
    unit = table.get("unit", NOT_DECLARED)
    return f"{unit['through']} -> {unit['to']}" if isinstance(unit, Mapping) else str(unit)


def _redefined(name: str, before: Facts, after: Facts) -> Iterator[str]:
    if after.get("public"):
        if not before.get("public"):
            yield f'table "{name}" becomes public, and was about people'
        return
    if not before.get("public") and _unit(before).lower() != _unit(after).lower():
        yield f'the unit of table "{name}" becomes {_unit(after)}, and was {_unit(before)}'
    if after.get("unique") and not before.get("unique"):
        yield f'table "{name}" becomes unique: true, and was not'
    known = {column.lower(): facts for column, facts in before.get("columns", {}).items()}
    for column, facts in after.get("columns", {}).items():
        reports = facts.get("collected")
        if reports is not None and column.lower() in known and known[column.lower()].get("collected") != reports:
            yield f'column "{column}" of table "{name}" becomes  collected: {reports["mechanism"]}, and was not'


def _with_columns(table: Facts, before: Facts) -> Facts:
    columns = {**before.get("columns", {}), **table.get("columns", {})}
    return {**table, "columns": columns} if columns else table


def _as_before(table: Facts, before: Facts) -> Facts:
    columns = {name: facts for name, facts in before.get("columns", {}).items() if "collected" in facts}
    reports = {
        name: {**facts, "collected": columns[name]["collected"]} if name in columns else facts
        for name, facts in table.get("columns", {}).items()
    }
    kept = {key: before[key] for key in MEANING if key in before}
    return _with_columns({**table, **kept, **({"columns": reports} if reports else {})}, before)


def _changes(before: Declaration, after: Declaration) -> Iterator[str]:
    for name, facts in after.tables.items():
        if name not in before.tables:
            yield f"new table: {_described(name, facts)}"
        else:
            yield from _differences(name, before.tables[name], _with_columns(facts, before.tables[name]))


def _differences(path: str, before: object, after: object) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _differences(_place(path, key), before.get(key), after.get(key))
    else:
        yield f"{path}: {_short(after)}, was {_short(before)}"


def _place(path: str, key: str) -> str:
    """Columns are named without the key that holds them: orders.amount.bounds."""
    return path if key == "columns" else f"{path}.{key}"


def _short(value: object) -> str:
    return NOT_DECLARED if value is None else json.dumps(value, ensure_ascii=False).replace('"', "")
