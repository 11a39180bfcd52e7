"""The identity of a release: its meaning, not its wording. Stored answers are found by it.

It is a description of the frozen dataclasses that a release is planned as, field by field. Every field is in it, but
for those in LEFT_OUT, each of which has its reason: what is new is told apart until somebody has shown that it need not
be. No text of an engine's SQL is in it, so that the answer is found again on another engine, and by a better plan.

What means the same has one description: names that an analyst gives, columns that nothing reads, the order of AND and
OR and of lists, both sides of an equality, conditions in WHERE or ON, the order of inner joins. Whatever is not certain
to be the same is different: a stored answer of another question would be wrong, and one that is not found is charged.
docs/proofs/ledger.md, section Stored answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from dpsql.errors import InternalError
from dpsql.expressions.narrow import MIRRORED, conjuncts
from dpsql.expressions.table import FUNCTIONS
from dpsql.expressions.tree import Call, Column, Literal, names_read
from dpsql.relation.domain import Domain, ListedKeys, source_name
from dpsql.relation.facts import facts_of
from dpsql.relation.relation import (
    CrossUnitJoin,
    Distinct,
    Filter,
    Join,
    LightUnits,
    Mark,
    PerUnit,
    Project,
    Relation,
    Scan,
    SemiJoin,
    SetOp,
    ValuesTable,
    Window,
)
from dpsql.relation.units import is_tracked, memoized_on_node
from dpsql.schema.model import Declared
from dpsql.schema.types import Double, Integer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from dpsql.expressions.tree import Expression
    from dpsql.pipeline.choose_mechanism import NoisyMeasure
    from dpsql.pipeline.plan_query import Planned, PlannedAdaptiveSubquery, PlannedRelease

    Names: TypeAlias = Mapping[str, str]
    """What the columns of a relation are called in its description, by the names that they have in the query."""

VERSION = 1
"""To be raised where the same description comes to mean something else: no answer of before is found from then on."""

PLACE = "where it stands in the text of the question"
ENGINE = "how the engine at hand reads and writes it"
PRICE = "what it costs follows from the noise; the same noise may cost less in another session"
AFTER = "computed from the noisy columns, after the release"
LEFT_OUT = {
    "Column.at": PLACE,
    "Literal.at": PLACE,
    "AdaptiveConstant.at": PLACE,
    "Call.at": PLACE,
    "AggregateCall.at": PLACE,
    "CrossUnitJoin.at": PLACE,
    "CrossUnitJoin.same_unit": "for people to read",
    "Function.takes": "for people to read; functions are known by their names",
    "Function.properties": "a function is known by its name",
    "Function.sql": "a function is known by its name",
    "Properties.parts": "how long an expression may become in engine SQL",
    "Scan.immutable": ENGINE,
    "ScanColumn.never_null": "what follows for the measures is in these; a value is the same with it and without",
    "Join.by_unit_alone": "follows from the condition, and helps to choose bounds, which are in the release",
    "Aggregate.calls": "of these the measures and statistics are made, which are all that is measured",
    "Aggregate.listed": "the relation of the ListedKeys, which are in the release",
    "Aggregate.reports": AFTER,
    "Aggregate.clause": "what an options clause says is in the bounds and in the noise",
    "BinnedBound.release": "the place of a release in the question; that release tells its histograms",
    "BinnedBound.value": "an argument of what the histogram itself aggregates",
    "Release.units": "for people to read; the scans tell them",
    "Release.facts": "follows from the relation; what it decides is in the measures",
    "Release.answers": AFTER,
    "Matched.across": "a part of the aggregate's relation",
    "PublicTable.render": ENGINE,
    "PlannedRelease.name": "the place of a release in the question",
    "PlannedRelease.render": ENGINE,
    "PlannedRelease.ends": AFTER,
    "PlannedRelease.answers_met": "checked before the release, and no part of it",
    "PlannedRelease.answers": AFTER,
    "NoisyMeasure.bounded": "each measure of the release that gets noise, in their order",
    "NoisyMeasure.alone": PRICE,
    "Drawn.leader": "the first of those in `together`",
    "PlannedAdaptiveSubquery.is_noisy": "follows from its SQL",
    "CalibratedRelease.planned": "described by itself",
    "CalibratedRelease.event": PRICE,
    "CalibratedRelease.epsilon": PRICE,
    "CalibratedRelease.delta": PRICE,
    "CalibratedRelease.fingerprint": "the identity itself",
    "CalibratedRelease.subject": "the identity itself",
}
"""Fields that are no part of an identity, and why."""

MOST_EXACT = 2**53
"""Up to here every whole number is a double."""

# -- identity ----------------------------------------------------------------------------------------------------------


def subject_of(planned: Planned, number: int, dataset: str) -> str:
    """The same for the same release at any price."""
    read = {before for part in planned.releases[number].adaptive for before in part.releases}
    subjects = {before: subject_of(planned, before, dataset) for before in read}
    return _digest("subject", dataset, *_with_what_it_reads(planned, number, subjects))


def fingerprint_of(
    planned: Planned,
    number: int,
    drawn: object,
    noises: Sequence[Sequence[NoisyMeasure]],
    dataset: str,
    before: Mapping[int, str],
) -> str:
    """The same for the same release with the same noise. `drawn` says what noise it gets, `noises` are those of all
    releases, and `before` has the fingerprints of the releases in front of it."""
    _, names = release_described(planned.releases[number])
    histograms = listed(
        described(noises[histogram], release_described(planned.releases[histogram])[1])
        for histogram in histograms_of(planned, number)
    )
    read = _with_what_it_reads(planned, number, before)
    return _digest("answer", dataset, *read, described(drawn, names), histograms)


def histograms_of(planned: Planned, number: int) -> list[int]:
    """The releases on which bounds of this one are found: what it is follows from them."""
    binned = [one.release.aggregate.binned for one in planned.releases]
    return [histogram for histogram, part in enumerate(binned) if part is not None and part.release == number]


def _with_what_it_reads(planned: Planned, number: int, before: Mapping[int, str]) -> tuple[str, str, str]:
    """The release, the answers that it reads, and the histograms on which its bounds are found."""
    release = planned.releases[number]
    answers = listed(_answer_read(part, planned, before) for part in release.adaptive)
    histograms = listed(
        release_described(planned.releases[histogram])[0] for histogram in histograms_of(planned, number)
    )
    return release_described(release)[0], answers, histograms


def _answer_read(part: PlannedAdaptiveSubquery, planned: Planned, before: Mapping[int, str]) -> str:
    """The releases that it reads, and which of their columns."""
    made = [(before[number], repr(planned.releases[number].post_processing_table.columns)) for number in part.releases]
    return fields_described(part, SAME, releases=described(made, SAME))


def _digest(*parts: str) -> str:
    return hashlib.sha256(described((VERSION, *parts), SAME).encode("utf-8", "surrogatepass")).hexdigest()


@memoized_on_node
def release_described(planned: PlannedRelease) -> tuple[str, Names]:
    """The release, over those columns that its keys, measures and statistics read; and what these are called."""
    release, aggregate = planned.release, planned.release.aggregate
    domain = described(release.domain, SAME)

    def over(source: str, names: Names) -> str:
        said = fields_described(aggregate, names, source=source)
        said = fields_described(release, names, aggregate=said, domain=domain)
        return fields_described(planned, names, release=said, adaptive="")

    read = _Recording()
    over("", read)
    source, names = relation_described(aggregate.source, read.keys())
    return over(source, names), names


# -- description -------------------------------------------------------------------------------------------------------
# Any value of a plan as a text: different values have different descriptions. A field that has its default is not told,
# so that a new one changes no identity before somebody uses it.


class _AsTheyAre(dict[str, str]):
    """Columns by the names that they have."""

    def __missing__(self, name: str) -> str:
        return name


class _Recording(_AsTheyAre):
    """And which of them were read."""

    def __missing__(self, name: str) -> str:
        self[name] = name
        return name


SAME: Names = _AsTheyAre()


def described(value: object, names: Names) -> str:
    match value:
        case None | bool() | int() | str():
            return repr(value)
        case tuple() | list():
            return listed(described(part, names) for part in value)
        case Column(name):
            return fields_described(value, names, name=repr(names[name]))
        case Call():
            return _call(value, names)
        case Domain():
            return _domain(value)
        case ListedKeys(relation, keys):
            source, found = relation_described(relation, names_read(*keys))
            return fields_described(value, found, relation=source)
    if isinstance(value, Declared) or (is_dataclass(value) and not isinstance(value, type)):
        return fields_described(value, names)
    return _plain(value, names)


def _plain(value: object, names: Names) -> str:
    match value:
        case Fraction() | Decimal() | date():
            return f"{type(value).__name__}({value})"
        case float():
            return f"float({value!r})"
        case Mapping():
            pairs = in_order(f"{described(key, names)}: {described(found, names)}" for key, found in value.items())
            return f"mapping({pairs})"
        case Set():
            return f"set({in_order(described(part, names) for part in value)})"
        case type():
            return f"type({value.__name__})"
    raise InternalError(f"nobody knows what makes one {type(value).__name__} another one")


def listed(parts: Iterable[str]) -> str:
    return f"[{', '.join(parts)}]"


def in_order(parts: Iterable[str]) -> str:
    """The distinct items, in an order determined by their content."""
    return listed(sorted(set(parts)))


def fields_described(value: object, names: Names, **given: str) -> str:
    """All fields but those that are left out; `given` are described already."""
    said = [f"{name}={given[name]}" for name in given]
    said += [f"{name}={described(held, names)}" for name, held in told(value) if name not in given]
    return f"{type(value).__name__}({', '.join(sorted(said))})"


def told(value: Any) -> Iterator[tuple[str, object]]:
    """The fields that an identity tells of, and what they hold, where that is not their default."""
    for name, default in told_fields(value.__class__):
        held = getattr(value, name)
        if not _is_default(held, default):
            yield name, held


def _is_default(value: object, default: object) -> bool:
    """1, 1.0 and True are equal, and not the same."""
    return value is default or (not isinstance(value, tuple) and type(value) is type(default) and value == default)


@cache
def told_fields(kind: type[Any]) -> tuple[tuple[str, object], ...]:
    """The fields that an identity tells of, each with its default, or MISSING."""
    if issubclass(kind, Declared):
        declared = kind.model_fields.items()
        found = [
            (n, MISSING if part.is_required() else part.get_default(call_default_factory=True)) for n, part in declared
        ]
    else:
        found = [(part.name, _default_of(part)) for part in fields(kind)]
    return tuple((name, default) for name, default in found if f"{kind.__name__}.{name}" not in LEFT_OUT)


def _default_of(part: Field[object]) -> object:
    return part.default if part.default_factory is MISSING else part.default_factory()


def _call(call: Call, names: Names) -> str:
    arguments = [described(part, names) for part in _compared(call)]
    match call.function.name:
        case "AND" | "OR" as name:
            return fields_described(
                call, names, arguments=in_order(described(part, names) for part in _operands(call, name))
            )
        case ">" | ">=" as name:
            function = described(FUNCTIONS[MIRRORED[name]], names)
            return fields_described(call, names, function=function, arguments=listed(reversed(arguments)))
        case "=" | "<>":
            arguments.sort()
        case "IN":
            arguments[1:] = sorted(set(arguments[1:]))
    return fields_described(call, names, arguments=listed(arguments))


def _compared(call: Call) -> list[Expression]:
    """The arguments; beside a double 100 is compared as 100.0 is."""
    if call.function.name not in (*MIRRORED, "<>", "IN"):
        return list(call.arguments)
    others = (part.type for part in call.arguments if not isinstance(part, Literal))
    in_doubles = any(isinstance(kind, Double) for kind in others)
    return [_as_double(part) if in_doubles else part for part in call.arguments]


def _as_double(part: Expression) -> Expression:
    match part:
        case Literal(int(value), Integer()) if abs(value) <= MOST_EXACT:
            return Literal(Fraction(value), Double())
    return part


def _operands(expression: Expression, name: str) -> Iterator[Expression]:
    if isinstance(expression, Call) and expression.function.name == name:
        for part in expression.arguments:
            yield from _operands(part, name)
    else:
        yield expression


def _all_of(condition: Expression | None, names: Names) -> str:
    """The parts of a condition, in whatever order they were written."""
    return in_order(_conjuncts(condition, names))


def _conjuncts(condition: Expression | None, names: Names) -> Iterator[str]:
    return (described(part, names) for part in conjuncts(condition)) if condition is not None else iter(())


def _domain(domain: Domain) -> str:
    names = {source_name(number): source_name(number) for number in range(len(domain.sources))}
    conditions = in_order(described(part, names) for part in domain.conditions)
    tests = in_order(_test(test, names) for test in domain.tests)
    return fields_described(domain, names, conditions=conditions, tests=tests)


# -- relations ---------------------------------------------------------------------------------------------------------
# A relation, and what its columns are called in the description: by the table that they come from, and its place.


def relation_described(relation: Relation, read: Collection[str]) -> tuple[str, Names]:
    """The rows, as far as columns of these names are read."""
    match relation:
        case Scan(columns=columns):
            used = listed(described(column, SAME) for column in columns if column.name in read)
            return fields_described(relation, SAME, columns=used), SAME
        case ValuesTable(_, columns):
            used = listed(described(column, SAME) for column in columns if column[0] in read)
            return fields_described(relation, SAME, columns=used), SAME
        case Filter() | SemiJoin() | Join(kind="INNER"):
            return _side_by_side(relation, read)
        case Project():
            return _project(relation, read)
        case Join():
            return _outer_join(relation, read)
        case CrossUnitJoin():
            return _cross_unit_join(relation, read)
        case Mark():
            return _mark(relation, read)
        case SetOp():
            return _set_operation(relation, read)
        case Distinct(source):
            said, names = relation_described(source, _columns(source))
            different = in_order(repr(names[name]) for name in _columns(source))
            return fields_described(relation, SAME, source=f"{said} {different}"), names
        case PerUnit():
            return _per_unit(relation, read)
        case Window():
            return _window(relation, read)
        case LightUnits(source):
            said, names = relation_described(source, read)
            return fields_described(relation, names, source=said), names


def _columns(relation: Relation) -> Set[str]:
    return facts_of(relation).any_row.keys()


def _project(project: Project, read: Collection[str]) -> tuple[str, Names]:
    if (passed := _passthrough(project, read)) is not None:
        said, names = relation_described(project.source, set(passed.values()))
        return said, {name: names[below] for name, below in passed.items()}
    kept = [(name, value) for name, value in project.columns if name in read]
    said, names = relation_described(project.source, names_read(*(value for _, value in kept)))
    columns, called = _called("p", {name: described(value, names) for name, value in kept})
    return fields_described(project, names, source=said, columns=columns), called


def _passthrough(project: Project, read: Collection[str]) -> dict[str, str] | None:
    """The columns that are read and what they are called below, if they have other names and nothing else is new."""
    passed = {name: value.name for name, value in project.columns if name in read and isinstance(value, Column)}
    says_more = any(name not in ("source", "columns") for name, _ in told(project))
    return None if says_more or len(passed) < len(set(read)) else passed


def _called(letter: str, values: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Computed columns in an order of their own, and what they are called by their place in it."""
    columns = sorted(set(values.values()))
    return listed(columns), {name: f"{letter}{columns.index(value)}" for name, value in values.items()}


def _sides(left: Relation, right: Relation, read: Set[str]) -> tuple[str, str, Names]:
    found: list[str] = []
    names: dict[str, str] = {}
    for letter, side in (("l", left), ("r", right)):
        used = read & _columns(side)
        said, own = relation_described(side, used)
        found.append(said)
        names |= {name: f"{letter}.{own[name]}" for name in used}
    return found[0], found[1], names


def _outer_join(join: Join, read: Collection[str]) -> tuple[str, Names]:
    left, right, names = _sides(join.left, join.right, {*read, *names_read(join.condition)})
    return fields_described(join, names, left=left, right=right, condition=_all_of(join.condition, names)), names


def _cross_unit_join(across: CrossUnitJoin, read: Collection[str]) -> tuple[str, Names]:
    used = names_read(across.condition, *(key for pair in across.pairs for key in pair))
    left, right, names = _sides(across.left, across.right, {*read, *used})
    return fields_described(across, names, left=left, right=right, condition=_all_of(across.condition, names)), names


def _set_operation(both: SetOp, read: Collection[str]) -> tuple[str, Names]:
    """Columns of both sides have the same names; but for UNION ALL each of them tells rows apart."""
    columns = [name for name in _columns(both.left) if both.kind != "UNION ALL" or name in read]
    sides = {}
    for side, relation in (("left", both.left), ("right", both.right)):
        said, names = relation_described(relation, columns)
        sides[side] = f"{said} {listed(repr(names[name]) for name in columns)}"
    return fields_described(both, SAME, **sides), {name: f"u{place}" for place, name in enumerate(columns)}


def _per_unit(relation: PerUnit, read: Collection[str]) -> tuple[str, Names]:
    calls = [(name, call) for name, call in relation.calls if name in read]
    arguments = [argument for _, call in calls for argument in call.arguments]
    said, names = relation_described(relation.source, names_read(*(key for _, key in relation.keys), *arguments))
    keys, of_keys = _called("k", {name: described(key, names) for name, key in relation.keys})
    made, of_calls = _called("c", {name: described(call, names) for name, call in calls})
    return fields_described(relation, names, source=said, keys=keys, calls=made), of_keys | of_calls


def _window(window: Window, read: Collection[str]) -> tuple[str, Names]:
    """Ties are broken by all columns that are read, in the order of their names: so these are as they are."""
    columns = listed(described(part, SAME) for part in window.columns if part[0] in read)
    return f"{fields_described(window, SAME, columns=columns)} {sorted(read)}", SAME


def _mark(mark: Mark, read: Collection[str]) -> tuple[str, Names]:
    used = (set(read) - {mark.name}) | (names_read(mark.test.condition) & _columns(mark.source))
    said, names = relation_described(mark.source, used)
    called = {name: f"s.{names[name]}" for name in used}
    test = f"{said} {_test(mark.test, called)}"
    return fields_described(mark, called, test=test, name=""), {**called, mark.name: "mark"}


def _test(semi: SemiJoin, names: Names) -> str:
    """What is asked of rows whose columns are called so; of these rows themselves only whether they are people's."""
    read = names_read(semi.condition, *semi.compared) & _columns(semi.other)
    other, found = relation_described(semi.other, read)
    both = {**names, **{name: f"other.{found[name]}" for name in read}}
    return fields_described(
        semi,
        both,
        source=repr(is_tracked(semi.source)),
        other=other,
        condition=_all_of(semi.condition, both),
        compared=in_order(described(part, both) for part in semi.compared),
    )


# -- inner joins -------------------------------------------------------------------------------------------------------
# Inner joins, conditions and tests: which relations are put side by side, and all that a row has to satisfy.

SETTLED = ("source", "left", "right", "kind", "condition")
"""What such a node is made of; anything else that it says is said of all of its rows."""

if TYPE_CHECKING:
    Places: TypeAlias = dict[str, tuple[int, str]]
    """For each column the number of its relation, and what it is called there."""
    Asked: TypeAlias = list[tuple[Filter | SemiJoin | Join, Places]]
    """What is asked of rows, over columns of these relations."""


def _side_by_side(relation: Relation, read: Collection[str]) -> tuple[str, Names]:
    sides: list[str] = []
    asked: Asked = []
    places = _taken_apart(relation, set(read), sides, asked)
    order = sorted(range(len(sides)), key=sides.__getitem__)

    def called(places: Places) -> dict[str, str]:
        return {name: f"{order.index(number)}.{column}" for name, (number, column) in places.items()}

    conditions = in_order(part for node, found in asked for part in _conditions(node, called(found)))
    return f"{listed(sides[number] for number in order)} {conditions}", called(places)


def _taken_apart(relation: Relation, read: set[str], sides: list[str], asked: Asked) -> Places:
    """Collects the joined relations and the conditions on their rows."""
    match relation:
        case Filter(source, condition) | SemiJoin(source=source, condition=condition):
            used = names_read(condition) & _columns(source)
            places = _taken_apart(source, read | used, sides, asked)
        case Join(left, right, "INNER", condition):
            used = read | names_read(condition)
            places = _taken_apart(left, used & _columns(left), sides, asked)
            places |= _taken_apart(right, used & _columns(right), sides, asked)
        case Project(source) if (passed := _passthrough(relation, read)) is not None:
            places = _taken_apart(source, set(passed.values()), sides, asked)
            return {name: places[below] for name, below in passed.items()}
        case _:
            said, names = relation_described(relation, read)
            sides.append(said)
            return {name: (len(sides) - 1, names[name]) for name in read}
    asked.append((relation, places))
    return places


def _conditions(node: Filter | SemiJoin | Join, names: Names) -> Iterator[str]:
    if isinstance(node, SemiJoin):
        yield _test(node, names)
        return
    yield from _conjuncts(node.condition, names)
    for name, held in told(node):
        if name not in SETTLED:
            yield f"{type(node).__name__}.{name}={described(held, names)}"
