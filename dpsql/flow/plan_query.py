"""plan_query: the engine SQL of each release, and the SQL that finishes the answer from noisy values.

    rows      each unit's rows: _unit, the keys, every measured value as a whole number of quanta
    partials  one row per unit and group: counts and sums
    bounded   what of it may count: at most `rows` rows per group; groups ranked by a keyed hash
    released  the sum over units of their `groups` first groups

joined to the list of public groups, so that every one of them is returned, even when empty. Where the engine guarantees
one row per unit, `rows` is summed directly. Nothing that the analyst wrote passes through as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.aggregates.estimate import Estimate, Linear
from dpsql.aggregates.final import final_sql
from dpsql.aggregates.measure import CountRows, CountUnits, CountValues, SumValues
from dpsql.aggregates.propagate import estimate_of
from dpsql.expressions.emit import emit
from dpsql.expressions.tree import columns_of
from dpsql.expressions.write import column, engine_type, greatest, integer, least
from dpsql.relation.write import UNIT, named, relation_sql, select
from dpsql.relation.write_domain import domain_sql
from dpsql.resolve.selection import release_name

if TYPE_CHECKING:
    from dpsql.flow.infer_sensitivity import Bounded, Measured, MeasuredRelease
    from dpsql.flow.question import Question
    from dpsql.flow.setting import Setting
    from dpsql.schema.types import ColumnType

RANK = "_rank"
SALT = "salt"
LARGEST = 2**62
"""Sums are held within +-2^62 before they leave the engine: a map that never widens a difference."""


@dataclass(frozen=True)
class PlannedRelease:
    measured: MeasuredRelease
    keys: tuple[tuple[str, ColumnType], ...]
    query: exp.Query = field(compare=False)
    """The engine SQL, with a placeholder for the salt."""

    def salted(self, salt: int) -> exp.Query:
        query = self.query.copy()
        for mark in list(query.find_all(exp.Placeholder)):
            mark.replace(integer(salt))
        return query

    @cached_property
    def sql(self) -> str:
        """The SQL as it would run, with the salt 0."""
        return self.salted(0).sql("duckdb")

    @property
    def column_types(self) -> dict[str, str]:
        """Every column of the release and its type, in the engine's words."""
        keys = {name: engine_type(kind).sql("duckdb") for name, kind in self.keys}
        return keys | {bounded.column: "BIGINT" for bounded in self.measured.measures}


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
    """Complete SQL over tables _noisy_0, _noisy_1, ... of keys and noisy measures."""


def plan_query(measured: Measured, setting: Setting) -> Planned:
    releases = tuple(_plan(release) for release in measured.releases)
    finish, outputs = _finish(measured)
    sql = finish.sql("duckdb")
    types = {noisy_name(number): release.column_types for number, release in enumerate(releases)}
    names = setting.scratch.describe(sql, types)
    return Planned(measured.question, releases, outputs or tuple(Output(name, None, None) for name in names), sql)


def noisy_name(number: int) -> str:
    return f"_noisy_{number}"


# -- the release ------------------------------------------------------------------------------------------------------


def _plan(release: MeasuredRelease) -> PlannedRelease:
    keys = release.tracked.aggregate.keys
    names = [f"_k{number}" for number in range(len(keys))]
    rows = _rows(release, names)
    one_row = release.tracked.scan.one_row_per_unit
    released = _direct(release, names, rows) if one_row else _by_unit(release, names, rows)
    query = _listed(release, names, released)
    types = tuple((name, key.type) for name, key in zip(names, keys, strict=True))
    return PlannedRelease(release, types, query)


def _rows(release: MeasuredRelease, names: list[str]) -> exp.Select:
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


def _direct(release: MeasuredRelease, names: list[str], rows: exp.Select) -> exp.Select:
    """One row per unit: every row is a whole contribution."""
    totals = [named(_saturated(_row_total(bounded)), bounded.column) for bounded in release.measures]
    return _grouped(select([*map(column, names), *totals], rows), names)


def _row_total(bounded: Bounded) -> exp.Expr:
    match bounded.measure:
        case CountUnits() | CountRows():
            return exp.Count(this=exp.Star())
        case CountValues():
            return exp.Count(this=column(bounded.column))
        case _:
            return exp.Sum(this=column(bounded.column))


def _by_unit(release: MeasuredRelease, names: list[str], rows: exp.Select) -> exp.Select:
    ranked = release.tracked.aggregate.grouped and not _reaches_all(release)
    partials = [part for bounded in release.measures for part in bounded.measure.partial(bounded.column)]
    by_unit = _grouped(select([column(UNIT), *map(column, names), *partials], rows), [UNIT, *names])
    kept = [
        named(bounded.measure.bounded(bounded.column, release.rows), bounded.column) for bounded in release.measures
    ]
    bounded_rows = select([*map(column, names), *kept, *([_rank(names)] if ranked else [])], by_unit)
    totals = [named(_saturated(exp.Sum(this=column(bounded.column))), bounded.column) for bounded in release.measures]
    released = select([*map(column, names), *totals], bounded_rows)
    if ranked:
        # BETWEEN and not <=: DuckDB turns the latter into a top-N that needs far more memory.
        released.where(exp.Between(this=column(RANK), low=integer(1), high=integer(release.groups)), copy=False)
    return _grouped(released, names)


def _reaches_all(release: MeasuredRelease) -> bool:
    """Whether a unit may count in every group that there is, so that none has to be dropped."""
    domain = release.tracked.domain
    return domain is not None and domain.size <= release.groups


def _rank(names: list[str]) -> exp.Expr:
    """The order in which a unit's groups count: by a keyed hash, hashed twice because once is not uniform."""
    inner = exp.Anonymous(this="hash", expressions=[exp.Placeholder(this=SALT), column(UNIT), *map(column, names)])
    order = exp.Order(expressions=[exp.Ordered(this=exp.Anonymous(this="hash", expressions=[inner]))])
    return named(exp.Window(this=exp.RowNumber(), partition_by=[column(UNIT)], order=order), RANK)


def _grouped(query: exp.Select, names: list[str]) -> exp.Select:
    if names:
        query.set("group", exp.Group(expressions=[column(name) for name in names]))
    return query


def _saturated(total: exp.Expr) -> exp.Expr:
    held = least(greatest(exp.Coalesce(this=total, expressions=[integer(0)]), integer(-LARGEST)), integer(LARGEST))
    return exp.Cast(this=held, to=exp.DataType.build("BIGINT"))


def _listed(release: MeasuredRelease, names: list[str], released: exp.Select) -> exp.Query:
    """Sorted by key, since the order of an unsorted result could tell about a group that is not shown."""
    domain = release.tracked.domain
    order = exp.Order(expressions=[exp.Ordered(this=column(name), nulls_first=False) for name in names])
    if not names:
        return released
    if domain is None:
        released.set("order", order)
        return released
    groups = exp.Subquery(this=domain_sql(domain, names), alias=_alias("groups"))
    found = exp.Subquery(this=released, alias=_alias("found"))
    same = [exp.NullSafeEQ(this=column(name, "groups"), expression=column(name, "found")) for name in names]
    columns = [named(column(name, "groups"), name) for name in names]
    columns += [
        named(exp.Coalesce(this=column(bounded.column, "found"), expressions=[integer(0)]), bounded.column)
        for bounded in release.measures
    ]
    query = exp.Select(expressions=columns, from_=exp.From(this=groups))
    query.append("joins", exp.Join(this=found, side="LEFT", on=exp.and_(*same, copy=False)))
    query.set("order", order)
    return query


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


# -- the finish -------------------------------------------------------------------------------------------------------


def _finish(measured: Measured) -> tuple[exp.Query, tuple[Output, ...]]:
    finish = measured.finish.copy()
    outputs = _outputs(finish, measured)
    tables = [
        exp.CTE(this=_answers(release, number), alias=_alias(release_name(number)))
        for number, release in enumerate(measured.releases)
    ]
    clause = finish.args.get("with_")
    finish.set("with_", exp.With(expressions=[*tables, *(clause.expressions if clause else ())]))
    return finish, outputs


def _answers(release: MeasuredRelease, number: int) -> exp.Select:
    """SELECT keys, each aggregate from its measures, and the measures themselves."""
    keys = [column(f"_k{position}") for position in range(len(release.tracked.aggregate.keys))]
    answers = [
        named(final_sql(answer.estimate, answer.type), f"_a{position}")
        for position, answer in enumerate(release.answers)
    ]
    measures = [column(bounded.column) for bounded in release.measures]
    table = exp.Table(this=exp.to_identifier(noisy_name(number), quoted=True))
    return exp.Select(expressions=[*keys, *answers, *measures], from_=exp.From(this=table))


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
    finish.set("expressions", [*finish.expressions, *(named(column(part), f"_hidden_{part}") for part in positions)])
    return tuple(outputs)
