"""The options of a question, in one table: `QueryOptions` says how each is called, typed, read, and where it is given.

`execute`, `explain` and `trace` take these keywords; the options clause of SQL, the command line, the magics and
SQLAlchemy read the same table. An option is added here, in `QueryOptions` and `QueryRequest`, and is read by its stage.
"""

import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypedDict

from dpsql.accounting.exact import Number, exact
from dpsql.errors import Place, ProgrammingError, did_you_mean, shown_argument

PERCENT = "%"
Auto: TypeAlias = Literal["auto"]
"""The query finds it."""
Bounding: TypeAlias = Literal["sample", "l2_clip"]
"""What becomes of a unit in more than max_groups groups."""
EmptyGroups: TypeAlias = Literal["show", "hide"]
"""Whether public groups are shown whose noisy numbers could be noise alone."""
Parameters: TypeAlias = Iterable[object] | Mapping[str, object] | None
"""Values for the ? of a query, or by name for its $name."""

# -- values ------------------------------------------------------------------------------------------------------------
# How the value of an option is read: each raises ProgrammingError, with the way to write it.


class Reader(Protocol):
    def __call__(self, value: object, name: str, largest_delta: Fraction, /) -> object:
        """The value checked, for a session of this delta; `name` is what the option is called where it was given."""


@dataclass(frozen=True)
class Accuracy:
    """The allowed half-width of a 95 % interval: an amount, or a fraction of a known total."""

    amount: Fraction
    relative: bool = False

    def __str__(self) -> str:
        return f"± {float(100 * self.amount):g}{PERCENT}" if self.relative else f"± {float(self.amount):g}"


def positive(value: object, name: str, *_: Fraction) -> Fraction:
    number = exact(value, name)
    if number == 0:
        raise ProgrammingError(f"{name} must be above 0", hint=f"write {name}=0.1, for example")
    return number


def below_one(delta: object) -> Fraction:
    number = exact(delta, "delta")
    if number >= 1:
        raise ProgrammingError(f"delta must be below 1, and {delta} is not", hint="write delta=1e-6, for example")
    return number


def query_delta(delta: object, name: str, largest: Fraction) -> Fraction:
    value = below_one(delta)
    if value > largest:
        raise ProgrammingError(
            f"{name}={float(value):g} is more than the session's {float(largest):g}",
            hint="use a smaller delta, or none for the session's",
        )
    return value


def accuracy_named(value: object, *_: object) -> Accuracy:
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


def mechanism_named(name: object, *_: object) -> str:
    from dpsql.mechanisms.registry import MECHANISMS  # late: --help lists the options, and waits for no mechanism

    if isinstance(name, str) and name.lower() in MECHANISMS:
        return name.lower()
    raise ProgrammingError(
        f"unknown mechanism {shown_argument(name)}",
        hint=did_you_mean(str(name), MECHANISMS) or f"available: {', '.join(MECHANISMS)}",
    )


def count(value: object, name: str, *_: Fraction) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise ProgrammingError(
            f"{name} must be a whole number of at least 1, not {shown_argument(value)}",
            hint=f"write {name}=4, for example",
        )
    return value


def count_or_auto(value: object, name: str, *_: Fraction) -> int | Auto:
    return "auto" if value == "auto" else count(value, name)


def auto_named(value: object, *_: object) -> Auto:
    if value == "auto":
        return "auto"
    raise ProgrammingError(
        f'bounds= can only be "auto" (the query finds where to clip what it sums), not {shown_argument(value)}',
        hint="to set bounds yourself, write SUM(x, contribution_bounds_per_row => (0, 500))",
    )


def bounding_named(value: object, *_: object) -> Bounding:
    if value == "scale":
        warnings.warn(
            'bounding="scale" is now called bounding="l2_clip"', DeprecationWarning, stacklevel=_level_of_caller()
        )
        return "l2_clip"
    if value == "sample" or value == "l2_clip":  # each by itself, which mypy follows
        return value
    raise ProgrammingError(
        f"unknown bounding={shown_argument(value)}: bounding= says what to do with people in too many groups",
        hint='write bounding="sample" to count some of their groups, or bounding="l2_clip" to scale all of them down',
    )


def empty_groups_named(value: object, *_: object) -> EmptyGroups:
    if value == "show" or value == "hide":  # each by itself, which mypy follows
        return value
    raise ProgrammingError(
        f'empty_groups= is "show" or "hide", not {shown_argument(value)}',
        hint='write empty_groups="hide" to leave out groups whose numbers cannot be told from 0',
    )


def _level_of_caller() -> int:
    """The `stacklevel` of dpsql's caller, so that a DeprecationWarning points to the code to change."""
    level, frame = 1, sys._getframe(1)
    inside = Path(__file__).parent
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(inside):
        level, frame = level + 1, frame.f_back
    return level


def weights_named(value: object, *_: object) -> tuple[tuple[str, Fraction], ...]:
    hint = 'write weights={"n": 2, "total": 1}; twice the weight means half the error'
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ProgrammingError(f"weights= takes a weight for each column name, not {shown_argument(value)}", hint=hint)
    try:
        return tuple((name, positive(weight, "a weight")) for name, weight in value.items())
    except ProgrammingError as error:
        problem = ProgrammingError(error.problem, hint=hint)
    raise problem


def switched(value: object, *_: object) -> bool:
    return bool(value)


# -- table -------------------------------------------------------------------------------------------------------------


NUMBER = "<float>"


def whole_number(text: str) -> int | str:
    """
    >>> whole_number("4"), whole_number("AUTO")
    (4, 'auto')
    """
    return int(text) if text.isdecimal() else text.lower()


def weights_written(text: str) -> dict[str, str] | str:
    """
    >>> weights_written("n=2, total=1")
    {'n': '2', 'total': '1'}
    """
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {name.strip(): weight.strip() for name, _, weight in pairs} if all(name for name, *_ in pairs) else text


@dataclass(frozen=True, kw_only=True)
class QueryOption:
    """All that is known of an option besides its name and type."""

    help: str
    """For the command line; docs/sql.md says more."""
    read: Reader
    parse: Callable[[str], object] = str
    """The value that a text stands for: of the options clause, the command line or a magic."""
    metavar: str | None = "<str>"
    """What the command line calls its value; None: it has none, and is a switch."""
    clause: str | None = None
    """Its name in the options clause of SQL, if it can be given there."""
    flag: str = ""
    """On the command line, where it is not called as in Python."""
    off: str = ""
    """What switches it off there, if it is not off by itself."""
    stage: str
    """The stage that reads it first."""
    name: str = ""
    """In Python, and the field of the `QueryRequest`."""


class QueryOptions(TypedDict, total=False):
    """The options of `execute`, `explain` and `trace`. None is as good as left out.

    epsilon, delta: the cost of the whole query.
    accuracy: instead of epsilon, how wide the error bars may be: 50, or "5%" of the total in the first answer.
    mechanism: such as "gaussian" or "smooth"; the best one is chosen if left out.
    propose: for propose-test-release: how far one unit can move the answer.
    max_groups, max_rows_per_group: how much of one unit counts, or "auto".
    bounds: with "auto", the query finds where to clip what it sums; see `receipt.bounds`.
    bounding: what becomes of a unit in more than max_groups groups: "sample", some of them count; "l2_clip", all of
        them count for a part, which needs public groups and Gaussian noise.
    weights: by name, which columns matter more; twice the weight is half the error.
    empty_groups: with "hide", public groups whose numbers cannot be told from 0 are left out; "show" keeps them.
    diagnose: a twentieth of the first question to a table tells, for all questions, how much its bounds may leave out;
        with True, one of this question tells how much was left out of it: see `notes`; with False nothing does.
    fresh: draw again instead of recalling the same answer.
    """

    epsilon: Annotated[
        Number | None,
        QueryOption(
            help="The cost of the query; by default a tenth of the budget.",
            read=positive,
            metavar=NUMBER,
            clause="epsilon",
            stage="calibrate_noise",
        ),
    ]
    delta: Annotated[
        Number | None,
        QueryOption(
            help="The delta of that cost; by default the session's.",
            read=query_delta,
            metavar=NUMBER,
            clause="delta",
            flag="--query-delta",
            stage="calibrate_noise",
        ),
    ]
    accuracy: Annotated[
        Number | None,
        QueryOption(
            help="Instead of epsilon: spend the least that gives this ± at 95 %, such as 50 or 5%.",
            read=accuracy_named,
            stage="calibrate_noise",
        ),
    ]
    mechanism: Annotated[
        str | None,
        QueryOption(
            help="The noise mechanism, such as laplace or gaussian; by default the best.",
            read=mechanism_named,
            clause="mechanism",
            stage="infer_sensitivity",
        ),
    ]
    propose: Annotated[
        Number | None,
        QueryOption(
            help="How far you think one person can move the answer; a private test checks it.",
            read=positive,
            metavar=NUMBER,
            clause="propose",
            stage="infer_sensitivity",
        ),
    ]
    max_groups: Annotated[
        int | Auto | None,
        QueryOption(
            help="Groups in which one person counts, in place of the schema's; or auto.",
            read=count_or_auto,
            parse=whole_number,
            clause="max_groups_contributed",
            stage="track_units",
        ),
    ]
    max_rows_per_group: Annotated[
        int | Auto | None,
        QueryOption(
            help="Rows of one person that count in a group, in place of the schema's; or auto.",
            read=count_or_auto,
            parse=whole_number,
            clause="max_rows_contributed",
            stage="track_units",
        ),
    ]
    bounds: Annotated[
        Auto | None,
        QueryOption(
            help="auto: the query finds where to clip summed values, within the schema's bounds.",
            read=auto_named,
            stage="infer_sensitivity",
        ),
    ]
    bounding: Annotated[
        Bounding | None,
        QueryOption(
            help="For people in more than max_groups groups: sample some, or l2_clip to scale all down.",
            read=bounding_named,
            stage="infer_sensitivity",
        ),
    ]
    weights: Annotated[
        Mapping[str, Number] | None,
        QueryOption(
            help="Which columns matter more, such as n=2,total=1; twice the weight, half the error.",
            read=weights_named,
            parse=weights_written,
            stage="calibrate_noise",
        ),
    ]
    empty_groups: Annotated[
        EmptyGroups | None,
        QueryOption(
            help="With hide, public groups whose numbers cannot be told from 0 are left out, free.",
            read=empty_groups_named,
            stage="post_process",
        ),
    ]
    diagnose: Annotated[
        bool | None,
        QueryOption(
            help="Whether a twentieth of the cost tells how much bounding left out; by default once for each table.",
            read=switched,
            metavar=None,
            off="--no-diagnose",
            stage="track_units",
        ),
    ]
    fresh: Annotated[
        bool | None,
        QueryOption(
            help="Draw new noise, at full cost, even if the query was asked before.",
            read=switched,
            metavar=None,
            stage="calibrate_noise",
        ),
    ]


def _named(name: str, option: QueryOption) -> QueryOption:
    return replace(option, name=name, flag=option.flag or f"--{name.replace('_', '-')}")


OPTIONS: Mapping[str, QueryOption] = {
    name: _named(name, kind.__metadata__[0]) for name, kind in QueryOptions.__annotations__.items()
}
MIN_UNITS = QueryOption(
    help="Hide groups with fewer people.",
    read=count,
    parse=whole_number,
    clause="min_privacy_units_per_group",
    stage="infer_sensitivity",
    name="min_units",
)
"""The one that can be given in the options clause alone."""
CLAUSE_OPTIONS: Mapping[str, QueryOption] = {
    option.clause: option for option in (*OPTIONS.values(), MIN_UNITS) if option.clause is not None
}
"""What the options clause may say, by its names there."""
CONFIRMING = ("privacy_unit_column", "group_selection_strategy")
"""What it may say besides: track_units refuses them unless they are so anyway."""


def read_options(options: Mapping[str, object], largest_delta: Fraction) -> dict[str, Any]:
    """The fields of a `QueryRequest` that the options of execute() name; None is as good as left out."""
    for name in options.keys() - OPTIONS:
        hint = "use epsilon= for the cost of one query" if name == "budget" else did_you_mean(name, OPTIONS)
        raise ProgrammingError(f"there is no option {name}=", hint=hint)
    given = {name: value for name, value in options.items() if value is not None}
    if "accuracy" in given and "epsilon" in given:
        raise ProgrammingError(
            "epsilon= and accuracy= both set the accuracy", hint="give one; the other follows from it"
        )
    return {name: OPTIONS[name].read(value, name, largest_delta) for name, value in given.items()}


# -- clause ------------------------------------------------------------------------------------------------------------
# What an options clause of SQL says, as text; dpsql/sql/privacy_options.py finds it.


@dataclass(frozen=True)
class SqlOption:
    name: str
    value: str
    at: Place


@dataclass(frozen=True)
class SqlOptions:
    """The options clause, if there is one."""

    options: tuple[SqlOption, ...] = ()
    at: Place | None = None
    outermost: bool = True
    """Whether it stands in the outermost SELECT."""
    parameters: frozenset[str] = frozenset()
    """The parameters that stand in it."""

    def get(self, name: str) -> SqlOption | None:
        return next((option for option in self.options if option.name == name), None)


NO_OPTIONS = SqlOptions()

# -- request -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """The options of one query. Bounds that are not given come from the schema."""

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
    bounding: Bounding = "sample"
    """Whether some groups of a unit that is in too many count in full, or all of them for a part."""
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
    empty_groups: EmptyGroups = "show"
    """Whether public groups are shown that the released numbers cannot tell from empty ones."""
    diagnose: bool | None = None
    """Whether to ask, for a part of the cost, how much bounding left out; None: how much it may, once for a table."""
    named: frozenset[str] = frozenset()
    """The fields that execute() was given by name; the others are defaults."""
    options: SqlOptions = NO_OPTIONS
    """The options clause of the SQL, for what later stages have to check."""
    clauses: "tuple[QueryRequest, ...]" = ()
    """Where there are several: the question as each of them asks it. Their epsilons add up to that of the whole."""
    parameter_names: tuple[str, ...] = ()
    """What the parameters are called, where they have names."""
    dialect: str = "duckdb"
    """Whose words the SQL uses."""
    now: datetime | None = None
    """The time of asking, in UTC, where the SQL reads the clock: what CURRENT_DATE and NOW() are."""
    notes: tuple[str, ...] = ()
    """What the analyst should know about it, and may: it follows from the question and the schema alone."""

    def by_clause(self, number: int | None) -> "QueryRequest":
        """The question as the clause asks it that speaks for a release."""
        return self.clauses[number] if self.clauses and number is not None else self

    def __str__(self) -> str:
        privacy_loss = f"epsilon {float(self.epsilon):g}" if self.accuracy is None else str(self.accuracy)
        if self.share is not None:
            privacy_loss = f"{float(100 * self.share):g}{PERCENT} of the session"
        named = [
            option.name if value is True else f"{option.name} {_shown(self, option.name)}"
            for option in (*OPTIONS.values(), MIN_UNITS)
            for value in [getattr(self, option.name)]
            if option.name not in ("epsilon", "accuracy") and value != getattr(QueryRequest, option.name)
        ]
        return ", ".join([privacy_loss, *named])


def with_options(request: QueryRequest, options: SqlOptions, largest_delta: Fraction) -> QueryRequest:
    """The request with the options clause applied; refused if execute() contradicts the clause."""
    changed: dict[str, Any] = {}
    for given in (given for given in options.options if given.name not in CONFIRMING):
        option = CLAUSE_OPTIONS[given.name]
        changed[option.name] = _read(given, option, largest_delta)
        if option.name in request.named and getattr(request, option.name) != changed[option.name]:
            raise ProgrammingError(
                f"the SQL says {given.name} = {given.value}, but execute() says "
                f"{option.name}={_shown(request, option.name)}",
                at=given.at,
                hint="set it in one place",
            )
    if "epsilon" in changed:
        changed["share"] = None
    return replace(request, options=options, **changed)


def with_clauses(request: QueryRequest, clauses: tuple[SqlOptions, ...], largest_delta: Fraction) -> QueryRequest:
    """The request with one clause applied to the whole query, or several to its parts, with their costs added up."""
    if len(clauses) < 2:
        return with_options(request, clauses[0], largest_delta) if clauses and clauses[0].options else request
    parts = tuple(with_options(request, clause, largest_delta) for clause in clauses)
    for field in ("epsilon", "delta", "accuracy"):
        if field in request.named:
            raise ProgrammingError(
                f"the SQL has {len(clauses)} options clauses, and execute() says {field}={_shown(request, field)}",
                at=clauses[1].at,
                hint="set the cost of each part in its own clause",
            )
    for clause in clauses:
        if clause.get("epsilon") is None:
            raise ProgrammingError(
                "one of the options clauses has no epsilon",
                at=clause.at,
                hint="give each one: OPTIONS(epsilon = 0.2)",
            )
    deltas = [part.delta for part in parts if part.delta is not None]
    if len(deltas) not in (0, len(parts)):
        raise ProgrammingError(
            "only some of the options clauses have a delta",
            at=next(clause.at for clause in clauses if clause.get("delta") is None),
            hint="give it in every clause, or in none",
        )
    delta = query_delta(sum(deltas), "delta", largest_delta) if deltas else None
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
            f"the options clauses differ in {field}, which applies to the whole query",
            at=clauses[1].at,
            hint="use the same value in each, or split the query",
        )
    return first


def refuse_options(request: QueryRequest, names: Collection[str], instead: str) -> None:
    """Refuses options in the clause that the caller already determines, such as the cost."""
    for option in (option for part in (request, *request.clauses) for option in part.options.options):
        if option.name in names:
            raise ProgrammingError(
                f"the SQL says {option.name} = {option.value}, but {instead} already says how much to spend",
                at=option.at,
                hint="set it in one place",
            )


def with_proposal(request: QueryRequest) -> QueryRequest:
    """A proposal selects propose-test-release, which requires one."""
    from dpsql.mechanisms.registry import MECHANISMS  # late, as above

    proposing = [name for name, mechanism in MECHANISMS.items() if mechanism.needs_proposal]
    if request.propose is not None and request.mechanism is None:
        return replace(request, mechanism=proposing[0])
    if (request.propose is not None) == (request.mechanism in proposing):
        return request
    if request.mechanism in proposing:
        raise ProgrammingError(
            'mechanism="ptr" needs a proposal',
            hint="write propose=200, how much you think one person can change the answer, or a value that few exceed",
        )
    raise ProgrammingError(
        f'propose= is only for mechanism="ptr", not for mechanism="{request.mechanism}"',
        hint='write mechanism="ptr", or omit propose=',
    )


def _read(given: SqlOption, option: QueryOption, largest_delta: Fraction) -> object:
    try:
        return option.read(option.parse(given.value), given.name, largest_delta)
    except ProgrammingError as error:
        problem = ProgrammingError(error.problem, at=given.at, hint=error.hint)
    raise problem


def _shown(request: QueryRequest, field: str) -> object:
    value = getattr(request, field)
    return f"{float(value):g}" if isinstance(value, Fraction) else value
