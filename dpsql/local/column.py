"""One column of a table randomised: its reports as a table holds them, and what the schema says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dpsql.errors import ProgrammingError
from dpsql.local.k_ary import KaryResponse, RandomizedResponse
from dpsql.local.rappor import Rappor
from dpsql.local.shares import read_epsilon
from dpsql.local.subset_selection import SubsetSelection
from dpsql.local.unary import BitReports, OptimizedUnaryEncoding
from dpsql.schema.column import Collected
from dpsql.schema.column import Column as DeclaredColumn
from dpsql.schema.problems import Document, all_problems
from dpsql.source import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dpsql.local.domain import Column
    from dpsql.local.mechanism import Mechanism
    from dpsql.schema.column import Collected
    from dpsql.schema.types import ColumnType

MECHANISMS = ("kary", "randomized_response", "rappor", "oue", "subset")


class Randomizer:
    """How a column is randomised; the declaration is checked as a schema is, before any answer is read."""

    def __init__(self, kind: ColumnType, values: Iterable[object], epsilon: object, mechanism: str = "kary") -> None:
        if mechanism not in MECHANISMS:
            raise ProgrammingError(
                f"there is no mechanism {mechanism!r}",
                hint=did_you_mean(str(mechanism), MECHANISMS) or f"these are known: {', '.join(MECHANISMS)}",
            )
        listed = [value.item() if hasattr(value, "item") else value for value in values]
        if None in listed:
            raise ProgrammingError(
                "NULL cannot be one of the values of a column",
                hint='let no answer be a value of its own, such as "none": fill it in, and list it',
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


def declared_mechanism(collected: Collected) -> Mechanism:
    if collected.mechanism == Rappor.name:
        return Rappor(collected.values, collected.epsilon, instantaneous=collected.instantaneous)
    if collected.mechanism == RandomizedResponse.name:
        return RandomizedResponse(collected.epsilon, collected.values)
    (kind,) = (kind for kind in KINDS if kind.name == collected.mechanism)
    return kind(collected.values, collected.epsilon)
