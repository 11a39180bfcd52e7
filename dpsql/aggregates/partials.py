"""Measures that are sums of contributions: the values that they read from each row, and their partial sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.aggregates.measure import Disjoint, SumValues, read_by
from dpsql.engine_sql.build import cast, fields, in_64_bits, select, total
from dpsql.engine_sql.tree import AggFunc, Alias, Field
from dpsql.expressions.casts import saturated
from dpsql.expressions.emit import emit
from dpsql.expressions.tree import names_read
from dpsql.relation.relation import CrossUnitJoin, Join, SetOp
from dpsql.relation.units import parts_of
from dpsql.schema.types import Integer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dpsql.aggregates.measure import ByUnit, Input
    from dpsql.aggregates.release_sql import ReleaseWriter
    from dpsql.engine_sql.tree import Query


@dataclass(frozen=True)
class Summed:
    """Measures by their names, and the columns of values that they share."""

    measures: list[tuple[str, ByUnit]]
    columns: Mapping[str, str]
    """The column with the values of a measure, by its name."""
    values: Mapping[str, Input]
    """What these columns read."""
    multiplied: bool
    """Whether a query can make more rows of one, and so any number of them."""

    @property
    def stored(self) -> list[tuple[str, Input, Field]]:
        """The values before clamping."""
        return [(name, part, Field(name, kind=part.argument.type)) for name, part in self.values.items()]

    @property
    def clamped(self) -> list[Alias]:
        """Values as whole numbers, each counted from its centre."""
        return [
            Alias(part.centred(value) if isinstance(part, SumValues) else part.input(value), name)
            for name, part, value in self.stored
        ]

    @property
    def partials(self) -> list[Alias]:
        """The values computed from a unit's rows in a group."""
        found = [part for name, measure in self.measures for part in measure.partial(name, self.values_of(name))]
        return list(map(_for_any_number, found)) if self.multiplied else found

    def values_of(self, name: str) -> str:
        return self.columns.get(name, name)

    @property
    def totals(self) -> list[Alias]:
        """The sums over units."""
        return [Alias(saturated(total(Field(name))), name) for name, _ in self.measures]


def summed_by(writer: ReleaseWriter, measures: list[tuple[str, ByUnit]]) -> Summed:
    inputs = {name: part for name, measure in measures if (part := read_by(measure)) is not None}
    columns = _value_columns(writer, inputs, [name for name, part in measures if isinstance(part, Disjoint)])
    values = {name: part for name, part in inputs.items() if columns[name] == name}
    multiplied = any(
        isinstance(part, Join | CrossUnitJoin | SetOp) for part in parts_of(writer.release.aggregate.source)
    )
    return Summed(measures, columns, values, multiplied)


def _for_any_number(partial: Alias) -> Alias:
    """A 64-bit sum could overflow and fail in a query that multiplies rows, so it is summed wider and cast."""
    match partial.value:
        case AggFunc("sum", (value,), kind=Integer()):
            return Alias(in_64_bits(total(cast(value, Integer()))), partial.name)
    return partial


def _value_columns(writer: ReleaseWriter, inputs: Mapping[str, Input], exclusive: Collection[str]) -> dict[str, str]:
    """The column that has the values of each: what is counted is what is summed, if that is NULL where it is."""
    sums = {
        part.argument: name
        for name, part in inputs.items()
        if isinstance(part, SumValues) and not part.null_is_zero and writer.is_finite(part.argument)
    }
    return {
        name: name if isinstance(part, SumValues) or name in exclusive else sums.get(part.argument, name)
        for name, part in inputs.items()
    }


def value_rows(writer: ReleaseWriter, summed: Summed) -> Query:
    """_unit, the keys, and the values to be counted or summed, before clamping."""
    release, parts = writer.release, summed.values.values()
    known = release.facts.any_row
    clamped = [part.argument for part in parts if isinstance(part, SumValues) and part.clamps(known)]
    others = names_read(*release.aggregate.keys, *(part.argument for part in parts if part.argument not in clamped))
    # What is computed is a column first: where it is clamped it is read several times.
    values = [Alias(emit(part.argument, known), name) for name, part in summed.values.items()]
    return writer.rows(values, [part.argument for part in parts], names_read(*clamped) - others)


def with_columns(below: Query, names: Sequence[str], more: list[Alias]) -> Query:
    """The same rows with columns that are computed from theirs."""
    return select([*fields(names), *more], below) if more else below
