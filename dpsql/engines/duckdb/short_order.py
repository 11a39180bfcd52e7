"""A unit's public groups in an order of 16 bits: with a unit of 32 these are the 8 bytes that DuckDB sorts fastest.

    ORDER BY hash(salt, unit, group), group     9 bits of the hash, then the 7 bits of the group's number, each turned
                                                over or not by a hash of the unit

The number of a group stays in it, so no two groups of a unit are equal in that order, whatever the hashes are. Where
the 9 bits are equal, which comes first depends on the unit: no group is preferred. docs/proofs/bounding.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine_sql.tree import Apply, Fold, Ordered, Over, Short

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsql.engine_sql.tree import Term

OF_GROUP = 2**7 - 1
OF_HASH = 2**16 - 1 - OF_GROUP
"""Which bits say what."""
NUMBER = Short(8)
"""Of numbers from 1 to 127."""


def hashed_number(window: Over) -> tuple[Term, ...] | None:
    """Salt, unit and group, if it ranks numbered groups of a unit by a keyed hash, and those that tie by number."""
    match window:
        case Over(Fold("dense_rank" | "row_number"), (_,), (Ordered(Apply("keyed hash", hashed)), Ordered(group))):
            return hashed if group.kind == NUMBER and hashed[2:] == (group,) else None
    return None


def short_order(keyed_hash: Callable[..., str], salt: str, unit: str, group: str) -> str:
    """In whole numbers without a sign from the first to the last, which takes half the time of others."""
    turned = f"xor({keyed_hash(salt, unit)}, CAST({group} AS UINTEGER))"
    return f"CAST(xor({keyed_hash(salt, unit, group)} & {OF_HASH}, {turned} & {OF_GROUP}) AS USMALLINT)"
