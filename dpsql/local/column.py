"""Randomises one column of a table, and describes its reports for the schema."""

from __future__ import annotations

import os
from collections.abc import Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dpsql.errors import (
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    UnknownName,
    did_you_mean,
    shown_argument,
)
from dpsql.local.k_ary import KaryResponse, RandomizedResponse
from dpsql.local.mechanism import read_epsilon
from dpsql.local.rappor import Rappor
from dpsql.local.subset_selection import SubsetSelection
from dpsql.local.unary import BitReports, OptimizedUnaryEncoding
from dpsql.schema.model import Collected
from dpsql.schema.model import Column as DeclaredColumn
from dpsql.schema.problems import Document, all_problems
from dpsql.schema.types import Boolean, Integer, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dpsql.local.mechanism import Column, LocalMechanism
    from dpsql.schema.types import ColumnType

# -- choose ------------------------------------------------------------------------------------------------------------
# Which mechanism to collect with: the one whose estimates err least.

# Simple ones first: among equals, the first is taken.
CHOICES = (KaryResponse, SubsetSelection, OptimizedUnaryEncoding, Rappor)


def best_for(domain: Iterable[object], epsilon: object, n: int) -> LocalMechanism:
    """The least variance, summed over all values, of the counts of n people; it is the same whatever they answer.

    >>> best_for(range(4), 3.0, n=1000)
    KaryResponse(4 values, epsilon=3)
    >>> best_for(range(50), 1.0, n=1000)
    SubsetSelection(50 values, epsilon=1)
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ProgrammingError(
            f"n must be the number of people who report, not {shown_argument(n)}", hint="write n=1000, for example"
        )
    listed = tuple(domain)
    return min((kind(listed, epsilon) for kind in CHOICES), key=lambda mechanism: mechanism.total_variance(n))


# -- column ------------------------------------------------------------------------------------------------------------

MECHANISMS = ("kary", "randomized_response", "rappor", "oue", "subset")


class Randomizer:
    """How a column is randomised; the declaration is checked as a schema is, before any answer is read."""

    def __init__(self, kind: ColumnType, values: Iterable[object], epsilon: object, mechanism: str = "kary") -> None:
        if not isinstance(mechanism, str) or mechanism not in MECHANISMS:
            raise ProgrammingError(
                f"unknown mechanism {shown_argument(mechanism)}",
                hint=did_you_mean(str(mechanism), MECHANISMS) or f"available: {', '.join(MECHANISMS)}",
            )
        listed: list[Any] = list(values)
        for value in listed:
            if isinstance(value, Sized) and not isinstance(value, str) and getattr(value, "ndim", 1) > 0:
                raise ProgrammingError(
                    f"a value cannot be {shown_argument(value)}", hint='write values=["never", "daily"]'
                )
        listed = [value.item() if hasattr(value, "item") else value for value in listed]
        if None in listed:
            raise ProgrammingError(
                "NULL cannot be one of the values of a column",
                hint='make "no answer" a value of its own, such as "none": fill it in, and list it',
            )
        declared = {"mechanism": mechanism, "epsilon": float(read_epsilon(epsilon)), "values": listed}
        self.entry: dict[str, Any] = {"type": kind.name, "collected": declared}
        """What stands under the column's name in a schema."""
        self.mechanism = declared_mechanism(_checked(self.entry))

    @property
    def is_bits(self) -> bool:
        return isinstance(self.mechanism, BitReports)

    def reports(self, answers: Column) -> NDArray[Any]:
        """Values, or whole numbers whose bits are the values that a report supports."""
        made = self.mechanism.perturb(answers)
        return self.mechanism.as_integers(made) if isinstance(self.mechanism, BitReports) else made


def _checked(entry: dict[str, Any]) -> Collected:
    try:
        column = DeclaredColumn.model_validate(entry)
    except ValidationError as error:
        problem = all_problems(error, Document(), entry)
    else:
        assert column.collected is not None
        return column.collected
    raise problem


# The mechanism that a schema says a column was collected with.

KINDS = (KaryResponse, OptimizedUnaryEncoding, SubsetSelection)


def declared_mechanism(collected: Collected) -> LocalMechanism:
    if collected.mechanism == Rappor.name:
        return Rappor(collected.values, collected.epsilon, instantaneous=collected.instantaneous)
    if collected.mechanism == RandomizedResponse.name:
        return RandomizedResponse(collected.epsilon, collected.values)
    (kind,) = (kind for kind in KINDS if kind.name == collected.mechanism)
    return kind(collected.values, collected.epsilon)


# -- stream file -------------------------------------------------------------------------------------------------------
# A file of any size randomised part by part: one column is replaced by reports, everything else is copied.
#
# What is written stands under a name of its own until it is whole, so that a failure leaves nothing behind, and nothing
# that was there is lost.

ROWS = 1 << 18
"""Rows of a part."""
CSV, PARQUET = ".csv", ".parquet"


def randomize_file(
    source: Path,
    out: Path,
    column: str,
    epsilon: object,
    mechanism: str,
    values: Sequence[str] | None,
    progress: Callable[[int], None],
) -> tuple[int, dict[str, Any]]:
    """The number of randomised answers, and the schema entry; `progress` is called with the number of finished rows."""
    _check_paths(source, out)
    pa = _arrow()
    with _reader(source) as (schema, parts), _whole_or_not(out) as partial:
        if column not in schema.names:
            raise UnknownName(f'the file has no column "{column}"', hint=did_you_mean(column, schema.names))
        kind = _kind(schema.field(column).type, column)
        randomizer = Randomizer(kind, _values(kind, column, values), epsilon, mechanism)
        place, rows = schema.get_field_index(column), 0
        stored = pa.int64() if randomizer.is_bits else schema.field(column).type
        written = schema.set(place, pa.field(column, stored))
        with _writer(out, partial, written) as write:
            for part in parts:
                reports = randomizer.reports(part.column(place).to_numpy(zero_copy_only=False))
                write(part.set_column(place, written.field(place), pa.array(reports, stored)).cast(written))
                rows += part.num_rows
                progress(part.num_rows)
    return rows, randomizer.entry


def count_rows(source: Path) -> int | None:
    """The number of rows, if the file records it."""
    if source.suffix.lower() != PARQUET or not source.is_file():
        return None
    _arrow()
    from pyarrow import parquet

    rows: int = parquet.read_metadata(source).num_rows
    return rows


def _arrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise NotSupportedError("files are read with pyarrow", hint="pip install pyarrow") from None
    return pa


def _check_paths(source: Path, out: Path) -> None:
    for path in (source, out):
        if path.suffix.lower() not in (CSV, PARQUET):
            raise ProgrammingError(f"{path.name} is neither .parquet nor .csv", hint="name a Parquet or CSV file")
    if not source.is_file():
        raise OperationalError(f"there is no file {source}", hint="check the path")
    if out.exists():
        raise OperationalError(f"{out} already exists and would be overwritten", hint="choose another name for --out")


@contextmanager
def _reader(source: Path) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The file's schema, and its parts as tables. All columns of a text file are read as text, unchanged."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if source.suffix.lower() == PARQUET:
        with parquet.ParquetFile(source) as file:
            yield file.schema_arrow, (pa.Table.from_batches([batch]) for batch in file.iter_batches(ROWS))
        return
    with source.open("rb") as text:
        names = csv.open_csv(text).schema.names
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    with csv.open_csv(source, convert_options=options) as stream:
        yield stream.schema, (pa.Table.from_batches([batch]) for batch in stream)


@contextmanager
def _writer(out: Path, partial: Path, schema: Any) -> Iterator[Callable[[Any], None]]:
    from pyarrow import csv, parquet

    if out.suffix.lower() == PARQUET:
        with parquet.ParquetWriter(partial, schema) as writer:
            yield writer.write_table
    else:
        with csv.CSVWriter(partial, schema) as writer:
            yield writer.write_table


@contextmanager
def _whole_or_not(out: Path) -> Iterator[Path]:
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.rename(out)
    finally:
        partial.unlink(missing_ok=True)


def _kind(arrow: Any, column: str) -> ColumnType:
    from pyarrow import types

    inner = arrow.value_type if types.is_dictionary(arrow) else arrow
    if types.is_boolean(inner):
        return Boolean()
    if types.is_integer(inner):
        return Integer()
    if types.is_string(inner) or types.is_large_string(inner):
        return Text()
    raise ProgrammingError(
        f'"{column}" holds {inner}, which cannot be randomised', hint="randomise text, integer or boolean answers"
    )


def _values(kind: ColumnType, column: str, values: Sequence[str] | None) -> list[object]:
    if isinstance(kind, Boolean):
        return [False, True]
    if values is None:
        raise ProgrammingError(
            f'the possible answers of "{column}" are unknown, and must not be taken from the data',
            hint="list them: --values never,sometimes,daily",
        )
    if isinstance(kind, Text):
        return list(values)
    try:
        return [int(value) for value in values]
    except ValueError:
        problem = ProgrammingError(f'"{column}" holds integers', hint="list integer values: --values 0,1,2")
    raise problem
