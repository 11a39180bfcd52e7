"""A unit's public groups in an order of 16 bits: with a unit of 32 these are the 8 bytes that DuckDB sorts fastest.

    ORDER BY hash(salt, unit, group), group     9 bits of the hash, then the 7 bits of the group's number, each turned
                                                over or not by a hash of the unit

The number of a group stays in it, so no two groups of a unit are equal in that order, whatever the hashes are. Where
the 9 bits are equal, which comes first depends on the unit: no group is preferred. docs/proofs/bounding.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import LONG, apply, cast, integer
from dpsql.engine_sql.tree import Apply, Fold, Ordered, Over, Short

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import Term

GROUP_BITS, HASH_BITS = 7, 9
NUMBER = Short(8)
"""Of numbers from 1 to 127."""


def in_short_order(window: Over) -> Over:
    """The same window, if it ranks numbered groups of a unit by a keyed hash, and those that tie by number."""
    match window:
        case Over(Fold("dense_rank" | "row_number"), (_,), (Ordered(Apply("keyed hash") as hashed), Ordered(group))):
            if group.kind == NUMBER and hashed.arguments[2:] == (group,):
                return replace(window, order_by=(Ordered(_packed(hashed, group)),))
    return window


def _packed(hashed: Apply, group: Term) -> Term:
    """Never more than 16 bits, and each of its parts fits into its own."""
    of_unit = replace(hashed, arguments=hashed.arguments[:2])
    first = apply("&", cast(hashed, LONG), integer(2**HASH_BITS - 1), kind=LONG)
    turned = apply("xor", cast(group, LONG), cast(of_unit, LONG), kind=LONG)
    last = apply("&", turned, integer(2**GROUP_BITS - 1), kind=LONG)
    both = apply("+", apply("*", first, integer(2**GROUP_BITS), kind=LONG), last, kind=LONG)
    return cast(apply("-", both, integer(2 ** (GROUP_BITS + HASH_BITS - 1)), kind=LONG), Short(16))
