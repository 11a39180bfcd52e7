"""The question that walks through the stages, and how each of its options is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpsql.accounting.exact import exact
from dpsql.errors import ProgrammingError, did_you_mean
from dpsql.mechanisms.registry import MECHANISMS
from dpsql.schema.model import AUTO
from dpsql.sql.privacy_options import NO_OPTIONS, Option, SqlOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PERCENT = "%"
Auto: TypeAlias = Literal["auto"]
"""The query finds it."""


@dataclass(frozen=True)
class Accuracy:
    """How wide an interval of 95 % may be on either side: an amount, or a part of a total that is known."""

    amount: Fraction
    relative: bool = False

    def __str__(self) -> str:
        return f"± {float(100 * self.amount):g}{PERCENT}" if self.relative else f"± {float(self.amount):g}"


@dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """What was asked and at what price. Bounds that are not given come from the schema."""

    sql: str
    parameters: tuple[object, ...] = ()
    epsilon: Fraction = Fraction(0)
    delta: Fraction | None = None
    mechanism: str | None = None
    propose: Fraction | None = None
    """For propose-test-release: what the analyst believes one unit can do to the answer."""
    max_groups: int | Auto | None = None
    max_rows_per_group: int | Auto | None = None
    bounds: Auto | None = None
    """Whether clips of all that is summed are found, within the declared bounds."""
    scaled: bool = False
    """Whether all groups of a unit that is in too many count for a part, instead of some of them in full."""
    fresh: bool = False
    accuracy: Accuracy | None = None
    """Where it is named, epsilon is found from it."""
    share: Fraction | None = None
    """Where nothing says how much to spend: this part of the session, and epsilon is found from it."""
    statistic_epsilon: Fraction | None = None
    """What each statistic has of epsilon, where that is not the same as for each measure."""
    min_units: int | None = None
    """Groups with fewer units are not shown."""
    weights: tuple[tuple[str, Fraction], ...] | None = None
    """How much columns of the answer matter, where the analyst says so; the others have a weight of 1."""
    diagnose: bool = False
    """Whether to ask, for a part of the cost, how much bounding left out."""
    named: frozenset[str] = frozenset()
    """The fields that execute() was given by name; the others are defaults."""
    options: SqlOptions = NO_OPTIONS
    """The options clause of the SQL, for what later stages have to check."""
    clauses: tuple[QueryRequest, ...] = ()
    """Where there are several: the question as each of them asks it. Their epsilons add up to that of the whole."""
    parameter_names: tuple[str, ...] = ()
    """What the parameters are called, where they have names."""
    dialect: str = "duckdb"
    """Whose words the SQL uses."""
    notes: tuple[str, ...] = ()
    """What the analyst should know about it, and may: it follows from the question and the schema alone."""

    def by_clause(self, number: int | None) -> QueryRequest:
        """The question as the clause asks it that speaks for a release."""
        return self.clauses[number] if self.clauses and number is not None else self

    def __str__(self) -> str:
        privacy_loss = f"epsilon {float(self.epsilon):g}" if self.accuracy is None else str(self.accuracy)
        if self.share is not None:
            privacy_loss = f"{float(100 * self.share):g}{PERCENT} of the session"
        named = [
            f"{name} {_shown(self, name)}"
            for name in ("delta", "mechanism", "propose", "max_groups", "max_rows_per_group", "bounds", "min_units")
            if getattr(self, name) is not None
        ]
        named += ["bounding scale"] if self.scaled else []
        return ", ".join([privacy_loss, *named, *(["fresh"] if self.fresh else [])])


def with_options(request: QueryRequest, options: SqlOptions, largest_delta: Fraction) -> QueryRequest:
    """The question with what its options clause says. Where execute() says something else it is refused."""
    changed: dict[str, Any] = {}
    for option in options.options:
        if option.name in READ:
            field, read = READ[option.name]
            changed[field] = _read(option, read, largest_delta)
            if field in request.named and getattr(request, field) != changed[field]:
                raise ProgrammingError(
                    f"the SQL says {option.name} = {option.value}, and execute() {field}={_shown(request, field)}",
                    at=option.at,
                    hint="say it in one place",
                )
    if "epsilon" in changed:
        changed["share"] = None
    return replace(request, options=options, **changed)


def with_clauses(request: QueryRequest, clauses: tuple[SqlOptions, ...], largest_delta: Fraction) -> QueryRequest:
    """The question with what one clause says of all of it, or several of its parts, whose costs are added up."""
    if len(clauses) < 2:
        return with_options(request, clauses[0], largest_delta) if clauses and clauses[0].options else request
    parts = tuple(with_options(request, clause, largest_delta) for clause in clauses)
    for field in ("epsilon", "delta", "accuracy"):
        if field in request.named:
            raise ProgrammingError(
                f"the SQL has {len(clauses)} options clauses, and execute() says {field}={_shown(request, field)}",
                at=clauses[1].at,
                hint="let each clause say what its part may cost",
            )
    for clause in clauses:
        if clause.get("epsilon") is None:
            raise ProgrammingError(
                "one of several options clauses says no epsilon",
                at=clause.at,
                hint="name one in each: OPTIONS(epsilon = 0.2)",
            )
    deltas = [part.delta for part in parts if part.delta is not None]
    if len(deltas) not in (0, len(parts)):
        raise ProgrammingError(
            "some of the options clauses name a delta, and some do not",
            at=next(clause.at for clause in clauses if clause.get("delta") is None),
            hint="name it in each clause, or in none",
        )
    delta = query_delta(sum(deltas), largest_delta) if deltas else None
    return replace(
        request,
        epsilon=sum((part.epsilon for part in parts), Fraction(0)),
        delta=delta,
        share=None,
        mechanism=_in_all("mechanism", parts, clauses),
        propose=_in_all("propose", parts, clauses),
        clauses=parts,
    )


def _in_all(field: str, parts: tuple[QueryRequest, ...], clauses: tuple[SqlOptions, ...]) -> Any:
    """What all clauses say."""
    first, *others = (getattr(part, field) for part in parts)
    if any(other != first for other in others):
        raise ProgrammingError(
            f"the options clauses differ in {field}, which is one for the whole question",
            at=clauses[1].at,
            hint="say the same in each, or ask in several questions",
        )
    return first


def refuse_options(request: QueryRequest, names: Collection[str], instead: str) -> None:
    """Where the price is found, the options clause cannot name it."""
    for option in (option for part in (request, *request.clauses) for option in part.options.options):
        if option.name in names:
            raise ProgrammingError(
                f"the SQL says {option.name} = {option.value}, and {instead} says how much to spend",
                at=option.at,
                hint="say it in one place",
            )


def with_proposal(request: QueryRequest) -> QueryRequest:
    """A proposal asks for propose-test-release, which needs one."""
    proposing = [name for name, mechanism in MECHANISMS.items() if mechanism.needs_proposal]
    if request.propose is not None and request.mechanism is None:
        return replace(request, mechanism=proposing[0])
    if (request.propose is not None) == (request.mechanism in proposing):
        return request
    if request.mechanism in proposing:
        raise ProgrammingError(
            "propose-test-release needs a proposal",
            hint="write propose=200: how much you think one unit can change the answer, or a value that few exceed",
        )
    raise ProgrammingError(
        f'propose= is for propose-test-release, and mechanism="{request.mechanism}" is named',
        hint='write mechanism="ptr", or leave propose= out',
    )


def _read(option: Option, read: Callable[[str, Fraction], object], largest_delta: Fraction) -> object:
    try:
        return read(option.value, largest_delta)
    except ProgrammingError as error:
        problem = ProgrammingError(error.problem, at=option.at, hint=error.hint)
    raise problem


def _shown(request: QueryRequest, field: str) -> object:
    value = getattr(request, field)
    return f"{float(value):g}" if isinstance(value, Fraction) else value


def mechanism_named(name: object) -> str:
    if isinstance(name, str) and name.lower() in MECHANISMS:
        return name.lower()
    raise ProgrammingError(
        f"there is no mechanism {name!r}",
        hint=did_you_mean(str(name), MECHANISMS) or f"these are known: {', '.join(MECHANISMS)}",
    )


def positive(value: object, name: str) -> Fraction:
    number = exact(value, name)
    if number == 0:
        raise ProgrammingError(f"{name} must be above 0", hint=f"write {name}=0.1, for example")
    return number


def accuracy_named(value: object) -> Accuracy:
    """
    >>> str(accuracy_named(50)), str(accuracy_named("5%"))
    ('± 50', '± 5%')
    """
    relative = isinstance(value, str) and value.strip().endswith(PERCENT)
    try:
        amount = positive(str(value).strip().removesuffix(PERCENT) if relative else value, "accuracy")
        return Accuracy(amount / 100 if relative else amount, relative)
    except ProgrammingError as error:
        problem = ProgrammingError(error.problem, hint='write accuracy=50, or accuracy="5%"')
    raise problem


def weights_named(value: object) -> tuple[tuple[str, Fraction], ...]:
    hint = 'write weights={"n": 2, "total": 1}: a column of twice the weight has half the error'
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ProgrammingError(f"weights= says by name how much columns matter, not {value!r}", hint=hint)
    try:
        return tuple((name, positive(weight, "a weight")) for name, weight in value.items())
    except ProgrammingError as error:
        problem = ProgrammingError(error.problem, hint=hint)
    raise problem


def below_one(delta: object) -> Fraction:
    number = exact(delta, "delta")
    if number >= 1:
        raise ProgrammingError(f"delta must be below 1, and {delta} is not", hint="write delta=1e-6, for example")
    return number


def query_delta(delta: object, largest: Fraction) -> Fraction:
    value = below_one(delta)
    if value > largest:
        raise ProgrammingError(
            f"delta={float(value):g} is more than the session's {float(largest):g}",
            hint="name a smaller delta, or none: the session's is used then",
        )
    return value


def count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise ProgrammingError(
            f"{name} is a whole number from 1 on, not {value!r}", hint=f"write {name}=4, for example"
        )
    return value


def count_or_auto(value: object, name: str) -> int | Auto:
    return AUTO if value == AUTO else count(value, name)


def auto_named(value: object) -> Auto:
    if value == AUTO:
        return AUTO
    raise ProgrammingError(
        f'bounds= is "auto": the query finds where to clip what it sums, and not {value!r}',
        hint="to name bounds, write SUM(x, contribution_bounds_per_row => (0, 500))",
    )


def is_scaling(value: object) -> bool:
    if value in ("sample", "scale"):
        return value == "scale"
    raise ProgrammingError(
        f"bounding= says what becomes of a unit that is in too many groups, and {value!r} says nothing about it",
        hint='write bounding="sample": some of its groups count; or bounding="scale": all of them do, for a part',
    )


def _whole(name: str) -> Callable[[str, Fraction], int]:
    return lambda value, _: count(int(value) if value.isdecimal() else value, name)


def _whole_or_auto(name: str) -> Callable[[str, Fraction], int | Auto]:
    return lambda value, _: count_or_auto(int(value) if value.isdecimal() else value.lower(), name)


# Option of the clause -> field of the question, and how its text is read.
READ: dict[str, tuple[str, Callable[[str, Fraction], object]]] = {
    "epsilon": ("epsilon", lambda value, _: positive(value, "epsilon")),
    "delta": ("delta", query_delta),
    "max_groups_contributed": ("max_groups", _whole_or_auto("max_groups_contributed")),
    "max_rows_contributed": ("max_rows_per_group", _whole_or_auto("max_rows_contributed")),
    "min_privacy_units_per_group": ("min_units", _whole("min_privacy_units_per_group")),
    "mechanism": ("mechanism", lambda value, _: mechanism_named(value)),
    "propose": ("propose", lambda value, _: positive(value, "propose")),
}
