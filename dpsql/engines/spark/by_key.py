"""Groups of a unit by their key, where they are known by their rank: Spark sums by hash only what has fixed width.

    SELECT min(_k0), ... FROM (... ORDER BY hash(...)) AS _rank ...) GROUP BY _unit, _rank      is made
    SELECT _k0, ... FROM (... ORDER BY hash(...), _k0) AS _rank ...) GROUP BY _unit, _k0

The least of texts would have it sort the rows once more. Hashes that tie are told apart by the key, as they are where
there are several keys: no more groups of a unit count for it (docs/proofs/bounding.md).
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.engine_sql.tree import Derived, Field, Fold, Named, Ordered, Over, Select


def by_key(select: Select) -> Select:
    match select:
        case Select(
            columns=(Named(Fold("min", (Field() as key,))), *partials),
            source=Derived(
                Select(columns=(*shown, Named(Over(Fold("dense_rank"), _, (hashed,)) as rank, place))) as rows
            ) as source,
            group_by=(unit, Field(known_by)),
        ) if known_by == place:
            ranked = Named(replace(rank, order_by=(hashed, Ordered(key))), place)
            below = replace(source, query=replace(rows, columns=(*shown, ranked)))
            columns = (Named(key, key.name), *partials)
            return replace(select, columns=columns, source=below, group_by=(unit, key))
    return select
