"""What is asked of the answers behind randomised reports: over a table of all answers that there can be.

    SELECT region, COUNT(*) FROM survey WHERE smoker = 'yes' GROUP BY region      smoker was collected by k-ary response

The rows themselves tell no answer, so no row can be chosen by it. But the number of rows with each *report* is a linear
function of the number with each answer, and can be solved for these: the engine counts reports in groups, and what the
query says of answers (a condition, keys, values) is a weight of each possible answer. docs/proofs/local.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

from dpsql.expressions.properties import exact_value, one_of
from dpsql.expressions.tree import Column, substituted
from dpsql.expressions.tree import Literal as Constant
from dpsql.relation.domain import Domain, source_name
from dpsql.schema.types import Boolean

if TYPE_CHECKING:
    from dpsql.expressions.properties import Properties
    from dpsql.expressions.tree import Expression
    from dpsql.schema.column import Collected
    from dpsql.schema.types import ColumnType

PREFIX = "_r_"


def report_name(inner: str) -> str:
    """The column of a scan that holds the reports themselves; the column without the prefix is the answers'."""
    return PREFIX + inner


@dataclass(frozen=True)
class Report:
    """A column of reports, and the answers that they are made of."""

    name: str
    declared: str
    type: ColumnType
    collected: Collected

    @property
    def column(self) -> Column:
        """An answer, in expressions over all possible answers."""
        return Column(self.name, self.type)

    @property
    def answers(self) -> Properties:
        return one_of(self.type, map(exact_value, self.collected.values), nullable=False)


@dataclass(frozen=True)
class ReportCall:
    """COUNT, SUM or AVG of a function of the answers, or COUNT of rows where there is none."""

    name: Literal["COUNT", "SUM", "AVG"]
    argument: Expression | None
    counted: int
    """Which count of the release it is made of."""


@dataclass(frozen=True, kw_only=True)
class Reports:
    """The question about answers that stands above a release which counts reports, these being its last keys."""

    columns: tuple[Report, ...]
    condition: Expression | None
    keys: tuple[int | Expression, ...]
    """As the query says them: a key of the release by its number, or a function of the answers."""
    key_types: tuple[ColumnType, ...]
    calls: tuple[ReportCall, ...]
    is_free: bool
    """Whether nothing else of people is read, so that the reports may be counted as they are."""

    @property
    def answer_count(self) -> int:
        return prod(len(report.collected.values) for report in self.columns)

    @property
    def table(self) -> Domain:
        """Every combination of answers, with what the query asks of it: condition, keys, values."""
        renamed: dict[Expression, Column] = {
            report.column: Column(source_name(number), report.type) for number, report in enumerate(self.columns)
        }
        asked = [
            *(report.column for report in self.columns),
            self.condition or Constant(True, Boolean()),
            *(key for key in self.keys if not isinstance(key, int)),
            *(call.argument for call in self.calls if call.argument is not None),
        ]
        sources = tuple(report.answers for report in self.columns)
        return Domain(sources, tuple(substituted(part, renamed) for part in asked), ())
