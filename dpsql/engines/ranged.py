"""What a renderer leaves out because the tree says between which numbers a value lies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.engine_sql.build import NULL
from dpsql.engine_sql.tree import Apply, Constant, Short, TryCast
from dpsql.engines.kinds import kind_of
from dpsql.engines.ranges import Ranges, magnitude
from dpsql.engines.render import Renderer
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpsql.engine_sql.tree import Case, Filling, Known, Select, Term
    from dpsql.engines.ranges import Range


class RangedRenderer(Renderer):
    def __init__(self, blanks: Mapping[str, Filling] | None = None) -> None:
        super().__init__(blanks)
        self.ranges = Ranges()
        self.columns: list[Mapping[str, Range]] = [{}]
        self.operands: list[tuple[str, list[Known], list[Range]]] = []

    def kind_of(self, value: Term) -> Known:
        return kind_of(value, self.operands[-1][1] if self.operands else ())

    def range_of(self, value: Term) -> Range:
        return self.ranges.of(value, self.columns[-1], self.operands[-1][2] if self.operands else ())

    def most(self, value: Term) -> float:
        """What a value is at most, on either side of zero."""
        return magnitude(self.range_of(value))

    @contextmanager
    def bound(self, name: str, values: Sequence[Term]) -> Iterator[None]:
        """Within, operands stand for these values."""
        self.operands.append((name, list(map(self.kind_of, values)), list(map(self.range_of, values))))
        yield
        self.operands.pop()

    @contextmanager
    def reading(self, columns: Mapping[str, Range]) -> Iterator[None]:
        self.columns.append(columns)
        yield
        self.columns.pop()

    def select(self, select: Select) -> str:
        with self.reading(self.ranges.of_columns(select.source)):
            return super().select(select)

    def case(self, case: Case) -> str:
        """Doubles that lie within their bounds anyway are not clamped once more."""
        match case.branches[0]:
            case Apply("between", (value, Constant() as low, Constant() as high)), then if then == value:
                least, most = self.range_of(value)
                others = (isinstance(test, Apply) and test.arguments[0] == value for test, _ in case.branches[1:])
                if (
                    isinstance(self.kind_of(value), Double)
                    and self.range_of(low)[0] <= least <= most <= self.range_of(high)[1]
                    and case.otherwise == NULL
                    and all(others)
                ):
                    return self.term(value)
        return super().case(case)

    def surely_fits(self, cast: TryCast) -> bool:
        """Whether it is a double between whole numbers of the kind that it is cast to."""
        match cast:
            case TryCast(value, Integer() | Short() as kind) if isinstance(self.kind_of(value), Double):
                bits = kind.bits if isinstance(kind, Short) else 64
                return self.most(value) <= 2.0 ** (bits - 2)
        return False
