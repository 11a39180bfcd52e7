"""What each stage before the charge makes of a question, one below the other. Free: no data, no budget."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING

from dpsql.errors import Error
from dpsql.pipeline.stages import FREE, walk_free

if TYPE_CHECKING:
    from dpsql.pipeline.public_environment import PublicEnvironment
    from dpsql.pipeline.query_request import QueryRequest


@dataclass(frozen=True, repr=False)
class Trace:
    stages: tuple[tuple[str, str], ...]
    """The name of each stage, and what it gave; of a question that is refused, what the refusing stage says."""
    refusal: Error | None = None

    def __str__(self) -> str:
        return "\n".join(f"{name}\n{indent(text, '  ')}" for name, text in self.stages)

    def __repr__(self) -> str:
        return str(self)


def trace_question(request: QueryRequest, public: PublicEnvironment) -> Trace:
    """A refusal ends the trace, as a part of it: where it comes from is what one wants to see."""
    found: list[str] = []
    refusal = None
    try:
        for value in walk_free(request, public):
            found.append(str(value))
    except Error as problem:
        refusal = problem.with_traceback(None)
        found.append(f"refused: {problem}")
    return Trace(tuple(zip((stage.__name__ for stage in FREE), found, strict=False)), refusal)
