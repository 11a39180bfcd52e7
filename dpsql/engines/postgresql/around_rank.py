"""The values around one rank: counted by point, summed up in their order, and cut to the ranks that are needed.

    _values  what each unit may bring: a value per row
    _points  how often each point occurs in a group; NULL is none, and keeps groups without a value
    _sums    how many values there are up to each point, and in the whole group

Only points of the needed ranks are collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.engine_sql.tree import AroundRank
    from dpsql.engines.render import Renderer


def around_rank(renderer: Renderer, profile: AroundRank) -> str:
    keys = [renderer.quoted(name) for name in profile.keys]
    value, point = renderer.quoted(profile.value), renderer.term(profile.point)
    first, last = _ranks(profile, renderer.number(profile.reach))
    by_keys = f"PARTITION BY {', '.join(keys)}" if keys else ""
    parts = {
        "_values": renderer.query(profile.values),
        "_pointed": f"SELECT {_listed(keys, f'{point} AS _point', value)} FROM _values",
        "_points": (
            f"SELECT {_listed(keys, '_point', f'count({value}) AS _count')} FROM _pointed "
            f"GROUP BY {_listed(keys, '_point')}"
        ),
        "_sums": (
            f"SELECT {_listed(keys, '_point', '_count')}, sum(_count) OVER ({by_keys} ORDER BY _point) AS _upto, "
            f"sum(_count) OVER ({by_keys}) AS _rows FROM _points"
        ),
    }
    needed = f"_point IS NOT NULL AND _upto >= {first} AND _upto - _count < {last}"
    points, counts, below, rows = map(renderer.quoted, profile.names)
    columns = [
        *(
            f"coalesce(array_agg({part} ORDER BY _point) FILTER (WHERE {needed}), '{{}}') AS {name}"
            for part, name in (("_point", points), ("_count", counts))
        ),
        f"CAST(coalesce(min(_upto - _count) FILTER (WHERE {needed}), 0) AS BIGINT) AS {below}",
        f"CAST(coalesce(max(_rows), 0) AS BIGINT) AS {rows}",
    ]
    before = ", ".join(f"{name} AS ({sql})" for name, sql in parts.items())
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"WITH {before} SELECT {_listed(keys, *columns)} FROM _sums{grouping}"


def _ranks(profile: AroundRank, reach: int) -> tuple[str, str]:
    """The first and the last rank that is needed; there always is one, where there is a value."""
    above, below = profile.fraction.numerator, profile.fraction.denominator
    middle = f"div(_rows * {above}, {below})"
    return f"least(greatest({middle} - {reach}, 1), _rows)", f"greatest(least({middle} + 1 + {reach}, _rows), 1)"


def _listed(keys: list[str], *others: str) -> str:
    return ", ".join([*keys, *others])
