"""plan_query: the engine SQL of each release, and the SQL that finishes the answer from noisy values.

    rows      each unit's rows: _unit, the keys, every measured value as a whole number of quanta
    partials  one row per unit and group: counts and sums
    bounded   what of it may count: at most `rows` rows per group; groups ranked by a keyed hash
    released  the sum over units of their `groups` first groups

joined to the list of public groups, so that every one of them is returned, even when empty. Where the engine guarantees
one row per unit, `rows` is summed directly. Nothing that the analyst wrote passes through as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.estimate import Estimate, Linear
from dpsql.aggregates.final import answer_type, final_sql
from dpsql.aggregates.measure import CountRows, CountUnits, CountValues, SumValues
from dpsql.aggregates.propagate import estimate_of
from dpsql.engines.scratch import ScratchTable
from dpsql.expressions.emit import emit
from dpsql.expressions.tree import columns_of
from dpsql.expressions.write import Sql, binary, call, cast, column, engine_type, integer, listed, named
from dpsql.relation.write import UNIT, relation_sql, select
from dpsql.relation.write_domain import domain_sql
from dpsql.resolve.selection import release_name
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from dpsql.flow.infer_sensitivity import Bounded, Measured, MeasuredRelease
    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
    from dpsql.schema.types import ColumnType

RANK = "_rank"
LARGEST = 2**62
"""Sums are held within +-2^62 before they leave the engine: a map that never widens a difference."""


@dataclass(frozen=True)
class PlannedRelease:
    name: str
    measured: MeasuredRelease
    keys: tuple[tuple[str, ColumnType], ...]

    def salted(self, salt: int) -> Sql:
        """The engine SQL; the salt decides which of a unit's groups count."""
        return _release_sql(self.measured, [name for name, _ in self.keys], salt)

    @cached_property
    def sql(self) -> Sql:
        """The SQL as it would run, with the salt 0."""
        return self.salted(0)

    @cached_property
    def scratch_table(self) -> ScratchTable:
        """What the finish reads: the keys, each aggregate made of its measures, and the measures themselves."""
        keys = {name: str(engine_type(kind)) for name, kind in self.keys}
        stored = keys | {bounded.column: "BIGINT" for bounded in self.measured.measures}
        answers = {
            f"_a{position}": (answer_type(answer), final_sql(answer.estimate, answer.type))
            for position, answer in enumerate(self.measured.answers)
        }
        return ScratchTable(self.name, stored, {name: (kind, column(name)) for name, kind in stored.items()} | answers)


@dataclass(frozen=True)
class Output:
    """A column of the answer: its error follows from `estimate` where there is one."""

    name: str
    estimate: Estimate | None
    release: int | None
    hidden: tuple[tuple[str, int], ...] = ()
    """Measures that the finish returns behind the visible columns: name and position."""


@dataclass(frozen=True)
class Planned:
    question: Question
    releases: tuple[PlannedRelease, ...]
    outputs: tuple[Output, ...]
    finish: str
    """The SQL above the releases, over tables _release_0, _release_1, ..."""


def plan_query(measured: Measured, setting: Setting) -> Planned:
    releases = tuple(_plan(release_name(number), release) for number, release in enumerate(measured.releases))
    finish = measured.finish.copy()
    outputs = _outputs(finish, measured)
    sql = finish.sql("duckdb", copy=False)
    names = setting.scratch.describe(sql, [release.scratch_table for release in releases])
    return Planned(measured.question, releases, outputs or tuple(Output(name, None, None) for name in names), sql)


def _plan(name: str, release: MeasuredRelease) -> PlannedRelease:
    keys = release.tracked.aggregate.keys
    return PlannedRelease(name, release, tuple((f"_k{number}", key.type) for number, key in enumerate(keys)))


# -- the release ------------------------------------------------------------------------------------------------------


def _release_sql(release: MeasuredRelease, names: list[str], salt: int) -> Sql:
    rows = _rows(release, names)
    if release.tracked.scan.one_row_per_unit:
        return _listed(release, names, _direct(release, names, rows))
    return _listed(release, names, _by_unit(release, names, rows, salt))


def _rows(release: MeasuredRelease, names: list[str]) -> Sql:
    aggregate, known = release.tracked.aggregate, release.tracked.knowledge.always
    keys = [named(emit(key, known), name) for key, name in zip(aggregate.keys, names, strict=True)]
    inputs = [
        (bounded.column, bounded.measure)
        for bounded in release.measures
        if isinstance(bounded.measure, CountValues | SumValues)
    ]
    used = {used.name for part in (*aggregate.keys, *(m.argument for _, m in inputs)) for used in columns_of(part)}
    values = [named(measure.input(emit(measure.argument, known)), name) for name, measure in inputs]
    return select([column(UNIT), *keys, *values], relation_sql(aggregate.source, used))


def _direct(release: MeasuredRelease, names: list[str], rows: Sql) -> Sql:
    """One row per unit: every row is a whole contribution."""
    totals = [named(_saturated(_row_total(bounded)), bounded.column) for bounded in release.measures]
    return _grouped(select([*map(column, names), *totals], rows), names)


def _row_total(bounded: Bounded) -> Sql:
    match bounded.measure:
        case CountUnits() | CountRows():
            return Sql("count(*)")
        case CountValues():
            return call("count", column(bounded.column))
        case _:
            return call("sum", column(bounded.column))


def _by_unit(release: MeasuredRelease, names: list[str], rows: Sql, salt: int) -> Sql:
    ranked = release.tracked.aggregate.grouped and not _reaches_all(release)
    partials = [part for bounded in release.measures for part in bounded.measure.partial(bounded.column)]
    by_unit = _grouped(select([column(UNIT), *map(column, names), *partials], rows), [UNIT, *names])
    kept = [
        named(bounded.measure.bounded(bounded.column, release.rows), bounded.column) for bounded in release.measures
    ]
    bounded_rows = select([*map(column, names), *kept, *([_rank(names, salt)] if ranked else [])], by_unit)
    totals = [named(_saturated(call("sum", column(bounded.column))), bounded.column) for bounded in release.measures]
    released = select([*map(column, names), *totals], bounded_rows)
    if ranked:
        # BETWEEN and not <=: DuckDB turns the latter into a top-N that needs far more memory.
        released = Sql(f"{released} WHERE {column(RANK)} BETWEEN 1 AND {integer(release.groups)}")
    return _grouped(released, names)


def _reaches_all(release: MeasuredRelease) -> bool:
    """Whether a unit may count in every group that there is, so that none has to be dropped."""
    domain = release.tracked.domain
    return domain is not None and domain.size <= release.groups


def _rank(names: list[str], salt: int) -> Sql:
    """The order in which a unit's groups count: by a keyed hash, hashed twice because once is not uniform."""
    order = call("hash", call("hash", integer(salt), column(UNIT), *map(column, names)))
    return named(Sql(f"row_number() OVER (PARTITION BY {column(UNIT)} ORDER BY {order})"), RANK)


def _grouped(query: Sql, names: list[str]) -> Sql:
    return Sql(f"{query} GROUP BY {listed([column(name) for name in names])}") if names else query


def _saturated(total: Sql) -> Sql:
    held = call("greatest", call("coalesce", total, integer(0)), integer(-LARGEST))
    return cast(call("least", held, integer(LARGEST)), Integer())


def _listed(release: MeasuredRelease, names: list[str], released: Sql) -> Sql:
    """Sorted by key, since the order of an unsorted result could tell about a group that is not shown."""
    if not names:
        return released
    order = f"ORDER BY {', '.join(f'{column(name)} NULLS LAST' for name in names)}"
    domain = release.tracked.domain
    if domain is None:
        return Sql(f"{released} {order}")
    keys = [named(column(name, "groups"), name) for name in names]
    totals = [
        named(call("coalesce", column(bounded.column, "found"), integer(0)), bounded.column)
        for bounded in release.measures
    ]
    same = " AND ".join(binary(column(n, "groups"), "IS NOT DISTINCT FROM", column(n, "found")) for n in names)
    groups = f"({domain_sql(domain, names)}) AS groups"
    return Sql(f"SELECT {listed([*keys, *totals])} FROM {groups} LEFT JOIN ({released}) AS found ON {same} {order}")


# -- the finish -------------------------------------------------------------------------------------------------------


def _outputs(finish: exp.Query, measured: Measured) -> tuple[Output, ...]:
    """The columns of an answer that is one SELECT over one release, with their errors; others have none."""
    if not isinstance(finish, exp.Select) or finish.find(exp.Star):
        return ()
    number = _release_below(finish)
    if number is None:
        return tuple(Output(item.alias_or_name, None, None) for item in finish.expressions)
    answers = {f"_a{i}": answer.estimate for i, answer in enumerate(measured.releases[number].answers)}
    return _with_hidden(
        finish, [(item.alias_or_name, estimate_of(item, answers)) for item in finish.expressions], number
    )


def _release_below(finish: exp.Select) -> int | None:
    source = finish.args.get("from_")
    name = source.this.name if source is not None and isinstance(source.this, exp.Table) else ""
    prefix, _, number = name.rpartition("_")
    return int(number) if prefix == "_release" and not finish.args.get("joins") else None


def _with_hidden(finish: exp.Select, found: list[tuple[str, Estimate | None]], number: int) -> tuple[Output, ...]:
    """A ratio's error depends on its own noisy parts, so these come along behind the visible columns."""
    visible = len(found)
    positions: dict[str, int] = {}
    outputs = []
    for name, estimate in found:
        wanted: tuple[str, ...] = ()
        if estimate is not None and not isinstance(estimate, Linear):
            if finish.args.get("distinct"):
                estimate = None
            else:
                wanted = tuple(
                    dict.fromkeys(part for side in (estimate.above, estimate.below) for part, _ in side.weights)
                )
        hidden = tuple((part, positions.setdefault(part, visible + len(positions))) for part in wanted)
        outputs.append(Output(name, estimate, number, hidden))
    finish.set(
        "expressions", [*finish.expressions, *(exp.alias_(exp.column(part), f"_hidden_{part}") for part in positions)]
    )
    return tuple(outputs)
