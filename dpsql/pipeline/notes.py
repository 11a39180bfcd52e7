"""The notes below an answer: what bounding left out, how rows were chosen, which columns are mostly noise.

They follow from the declaration and from noisy values alone, so they are free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsql.aggregates.estimate import DEVIATIONS, Linear, Ratio, as_shown, noise_of
from dpsql.aggregates.format import format_statistic
from dpsql.aggregates.measure import CountUnits, CountUnitsWith, CountValues, Matched, OverDistinct, SumValues, read_by
from dpsql.aggregates.table import is_one_per_unit
from dpsql.display.numbers import several
from dpsql.expressions.format import format_expression, format_value
from dpsql.expressions.narrow import is_clamped, kept_properties
from dpsql.expressions.properties import range_of
from dpsql.expressions.tree import Call, properties_of
from dpsql.intervals import for_all
from dpsql.limits import LONGEST_COPIED
from dpsql.mechanisms.auto_bounds import share_left_out
from dpsql.mechanisms.left_out import CAPS, LeftOut
from dpsql.pipeline.allocate import AUTO_BOUNDS, DIAGNOSING
from dpsql.pipeline.auto_bounds import format_clipped
from dpsql.pipeline.estimate_answers import levels_thresholds
from dpsql.pipeline.replan import histogram_of
from dpsql.relation.relation import Distinct, Filter, Mark, PerUnit, Project, Scan, SemiJoin, Window
from dpsql.relation.widths import LETTERS_COPIED, cuts_keys
from dpsql.relation.work import heaviest_counted
from dpsql.result import asked_on
from dpsql.schema.types import Decimal, Integer
from dpsql.sql.rows import release_name
from dpsql.sql.syntax import reads_all_groups

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from dpsql.aggregates.estimate import Estimate, Formula
    from dpsql.aggregates.measure import Measure
    from dpsql.aggregates.release import Drawn, Release
    from dpsql.engines.results import Cells
    from dpsql.expressions.tree import Expression, Known
    from dpsql.mechanisms.left_out import RowsPerPerson
    from dpsql.pipeline.calibrate_noise import Calibrated, CalibratedRelease
    from dpsql.pipeline.format import Output
    from dpsql.pipeline.plan_query import PlannedRelease
    from dpsql.relation.relation import AggregateCall, Diagnosis
    from dpsql.result import Receipt, ResultColumn

    Columns = Mapping[str, NDArray[Any]]

MOSTLY = 0.5
"""A column is mostly noise if at least this fraction of its values cannot be told from 0."""
SURE = 0.99
"""The confidence that no empty bin of a histogram is taken for a filled one."""
NEARLY_ALL = 0.99
WORTH_SAYING = 0.005
"""A note appears if at least this share of the rows is left out."""
DIAGNOSE = "diagnose=True measures what these limits leave out"
MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""The standard deviation of a median of n values, times the root of n, in theirs."""
GOOD = 0.1
"""The relative error for which `MostlyNoise` names an epsilon."""


def bounding_notes(releases: Sequence[CalibratedRelease], *, told: bool) -> Iterator[str]:
    """The contribution bounds of all releases, each note once, and how to learn what they leave out."""
    asked = [release for release in releases if not release.planned.release.aggregate.is_auxiliary]
    yield from dict.fromkeys(note for release in asked for note in _bounds_of(release))
    if not told and any(_may_be_diagnosed(release) for release in asked):
        yield DIAGNOSE


def _may_be_diagnosed(calibrated: CalibratedRelease) -> bool:
    """Whether fixed bounds may leave out rows or groups of people, and `diagnose` can count them."""
    release = calibrated.planned.release
    fixed = not calibrated.planned.auto_bounds and not any(part.is_l2_clipped for part in release.measures)
    return fixed and release.aggregate.reports is None and any(_limits(release))


def _bounds_of(calibrated: CalibratedRelease) -> Iterator[str]:
    release = calibrated.planned.release
    yield from _may_bias(release)
    if calibrated.threshold is not None and not release.names_totals:
        # ROLLUP totals are measured separately and include everybody.
        over = "" if release.levels else ", and calculations over all groups leave them out"
        yield f"groups of fewer than about {calibrated.threshold:,} people are not shown{over}"
    elif release.names_totals:
        yield from _levels_shown(calibrated)


def _levels_shown(calibrated: CalibratedRelease) -> Iterator[str]:
    """From how many people on the groups of each level are shown."""
    release = calibrated.planned.release
    for level, thresholds in zip(release.levels, levels_thresholds(calibrated), strict=False):
        keys = ", ".join(format_expression(release.aggregate.keys[key]) for key in level.kept)
        is_named = any(set(finer.kept) > set(level.kept) for finer in release.levels)
        unless = " unless a group in them is shown" if is_named else ""
        yield from (
            f"groups by {keys} of fewer than about {least:,} people are not shown{unless}"
            for least in thresholds.values()
        )


def is_noise_only(release: Release) -> bool:
    """Whether bounding may move an answer away from the truth, by an amount that its error does not include."""
    return any(_may_bias(release)) or _is_clipped(release)


def _is_clipped(release: Release) -> bool:
    """Whether the analyst, or `"auto"`, clamps values within the range that they may have."""
    known = release.facts.any_row
    if any(answer.test is not None for answer in release.answers):  # a proposed clip
        return True
    return any(
        call.group_bounds is not None or any(_is_narrowed(argument, known) for argument in call.arguments)
        for call in release.aggregate.calls
    )


def _is_narrowed(value: Expression, known: Known) -> bool:
    if not is_clamped(value) or not isinstance(value, Call):
        return False
    return range_of(properties_of(value, known)) != range_of(properties_of(value.arguments[0], known))


def _may_bias(release: Release) -> Iterator[str]:
    """The limits that may leave out part of what a person contributes."""
    yield from _left_out(release)
    yield from _limits(release)
    for argument, ends in release.presumed:
        what, (low, high) = format_clipped(argument), map(format_value, range_of(ends))
        instead = "set contribution_bounds_per_row for other bounds"
        yield f"{what} is clamped to [{low}, {high}], from max_rows_per_group; {instead}"


def _limits(release: Release) -> Iterator[str]:
    """How many rows and groups of a person count at most, where somebody may have more."""
    if release.one_row_per_unit or any(isinstance(drawn.statistic, Matched) for drawn in release.statistics):
        return
    most = math.inf if release.rows_per_unit is None else release.rows_per_unit
    where = " in each group" if release.aggregate.grouped else ""
    few = "" if release.light_rows is None else f", for anyone with more than {release.light_rows:,} rows in total"
    if _bounds_rows(release) and release.is_down_weighted:
        yield _in_parts(release.light_rows or 0)
    elif _bounds_rows(release) and not _counts_units_alone(release):
        yield _at_most(release.rows, "row", where) + few
    if release.ranked and most > max(release.groups, release.light_rows or 0):
        scaled = any(part.is_l2_clipped for part in release.measures)
        yield _scaled(release.groups) if scaled else _at_most(release.groups, "group") + few


def _bounds_rows(release: Release) -> bool:
    """Whether a person may have more rows than count."""
    most = max(release.rows, release.light_rows or 0)
    return not release.one_row_per_unit and (release.rows_per_unit is None or release.rows_per_unit > most)


def _counts_units_alone(release: Release) -> bool:
    """Whether each person counts once in a group, whatever their number of rows."""
    # Where one row of a unit counts, COUNT(*) is measured as a number of units too.
    asked_for = all(call.distinct or is_one_per_unit(call) for call in release.aggregate.calls)
    return asked_for and all(isinstance(part.measure, CountUnits | CountUnitsWith) for part in release.measures)


def _in_parts(most: int) -> str:
    """
    >>> _in_parts(15)
    'anyone with more than 15 rows is scaled down to count as 15'
    """
    return f"anyone with more than {several(most, 'row', 'rows')} is scaled down to count as {most:,}"


def _scaled(groups: int) -> str:
    return f"anyone in n > {groups:,} groups counts sqrt({groups:,} / n) in each of them"


def _at_most(number: int, what: str, where: str = "") -> str:
    """
    >>> _at_most(2, "row", " in each group")
    'at most 2 rows per person count in each group'
    """
    return f"at most {number:,} {what}{' per person counts' if number == 1 else 's per person count'}{where}"


def rounding_notes(releases: Sequence[CalibratedRelease]) -> Iterator[str]:
    """Integers and decimals over so wide a range that their sum has coarser steps than they have."""
    parts = (part.measure for release in releases for part in release.planned.release.measures)
    sums = (part for part in map(_summed_by, parts) if part is not None and not part.mean)
    for argument, quantum in dict.fromkeys((part.argument, part.quantum) for part in sums):
        kind = argument.type
        finest = Fraction(1, 10**kind.scale) if isinstance(kind, Decimal) else Fraction(1)
        if isinstance(kind, Integer | Decimal) and quantum > finest:
            steps = f"multiples of {format_value(quantum)}, since its bounds are so wide"
            yield f"{format_clipped(argument)} is summed in {steps}; narrower contribution_bounds_per_row are finer"


# -- what is left out --------------------------------------------------------------------------------------------------
# How much fixed bounds may leave out of a column, by a histogram of the rows per person of the table that it reads. It
# holds for every WHERE and GROUP BY: these take rows from a person, and never add any. docs/proofs/left_out.md.

ROWS_OF_ROWS = (Filter, Project, Distinct, SemiJoin, Mark, PerUnit, Window)
"""What makes of a person's rows no more than there were."""


def left_out_of(output: Output, release: PlannedRelease, people: RowsPerPerson) -> LeftOut | None:
    """None if it is not known: of quotients, of joins, or where nothing can be told from noise."""
    losses = _losses_of(output, release)
    if not losses or people.cap is None:
        return None
    most = release.release.rows_per_unit or people.cap
    left_out = LeftOut(
        people,
        kept=min(loss.kept for loss in losses),
        full=min(loss.full for loss in losses),
        cap=max(min(loss.cap or people.cap, people.cap, most) for loss in losses),
        low=min(loss.low for loss in losses),
        high=max(loss.high for loss in losses),
    )
    return left_out if left_out.is_known else None


def table_to_measure(outputs: Sequence[Output], releases: Sequence[PlannedRelease]) -> Scan | None:
    """The table whose rows per person tell what is left out of these columns."""
    told = (
        release
        for output in outputs
        for release in (() if output.release is None else (releases[output.release],))
        if any(_limits(release.release)) and _losses_of(output, release)
    )
    return next((scan for release in told for scan in (table_of(release),)), None)


def table_of(planned: PlannedRelease) -> Scan | None:
    """The one table that a release reads with fixed bounds, if nothing makes more rows of a person's rows."""
    release, source = planned.release, planned.release.aggregate.source
    while isinstance(source, ROWS_OF_ROWS):
        source = source.source
    is_plain = not (release.levels or release.presumed or planned.auto_bounds or planned.adaptive or planned.reports)
    if not is_plain or not isinstance(source, Scan) or source.unit is None or source.unit.table != source.table:
        return None
    is_bounded_alone = not any(part.is_l2_clipped for part in release.measures) and not _is_clipped(release)
    return source if is_bounded_alone and not any(_left_out(release)) and not source.unit.path else None


class Loss(NamedTuple):
    """What bounding may take from a column."""

    kept: int
    """So many of a person's rows count at least."""
    full: int
    """Of people with at most so many rows all count."""
    cap: int | None
    """What is beyond so many rows of a person makes no difference; None if all do."""
    low: float
    high: float
    """What a row adds at least and at most."""


def _losses_of(output: Output, planned: PlannedRelease) -> list[Loss]:
    """Of every aggregate that is measured as the column is; empty if what one of them loses is not known."""
    if output.estimate is None or table_of(planned) is None:
        return []
    release = planned.release
    pairs = zip(release.aggregate.calls, release.answers, strict=True)
    found = [_loss(call, answer.estimate, release) for call, answer in pairs if as_shown(answer) == output.estimate]
    known = [loss for loss in found if loss is not None]
    return known if len(known) == len(found) else []


def _loss(call: AggregateCall, estimate: Estimate | Formula, release: Release) -> Loss | None:
    full = max(release.light_rows or 0, 1)
    if call.distinct:
        # A person counts once in a group, and is missing only from groups beyond max_groups.
        measured = {part.column: part.measure for part in release.measures}
        weights = estimate.weights if isinstance(estimate, Linear) else ()
        of_units = all(isinstance(measured.get(name), CountUnits | CountUnitsWith) for name, _ in weights)
        groups = max(release.groups, full)
        return Loss(groups, groups, groups + 1 if release.ranked else groups, 0.0, 1.0) if of_units else None
    kept = min(release.rows, release.groups) if release.ranked else release.rows
    kept = max(kept, full) if release.is_down_weighted else kept
    if call.name in ("COUNT", "COUNT_IF"):
        return Loss(kept, full, None, 0.0, 1.0)
    seen = kept_properties(call.arguments[0], release.facts.surviving) if call.name in ("SUM", "AVG") else None
    low, high = (None, None) if seen is None or not seen.is_number else range_of(seen)
    return None if low is None or high is None else Loss(kept, full, None, min(0.0, float(low)), max(0.0, float(high)))


def histogram_note(histogram: Calibrated | None) -> Iterator[str]:
    """What the histogram of rows per person costs, before it is drawn."""
    if histogram is None:
        return
    what = "how many rows people have in the table, which bounds what is not counted"
    if histogram.recalled:
        yield f"{what}, is on record: free"
    else:
        epsilon = f"epsilon {histogram.cost.epsilon:.4g} of the cost measures, once for all questions,"
        yield f"{epsilon} {what}; diagnose=False omits it"


def left_out_note(
    outputs: Sequence[Output], releases: Sequence[PlannedRelease], people: RowsPerPerson | None
) -> Iterator[str]:
    """What the histogram of rows per person tells of the bounds, before any WHERE."""
    table = None if people is None else table_to_measure(outputs, releases)
    if people is None or table is None:
        return
    name = table.table
    if people.cap is None:
        yield f"the bounds may leave out any number of rows: people have more than {CAPS[-1]:,} rows of {name}"
        return
    found = [left_out_of(output, releases[output.release], people) for output in outputs if output.release is not None]
    known = [left_out for left_out in found if left_out is not None]
    if any(left_out.kept < people.cap <= left_out.cap for left_out in known):
        when = "" if people.drawn_at is None else f", as of {people.drawn_at:%Y-%m-%d}"
        yield f"what is not counted is known of each person's first {people.cap:,} rows of {name}{when}"
    if not any(known):
        yield f"{name} has too few people, at the epsilon of its first question, to tell what these bounds leave out"


def heavy_unit_notes(releases: Sequence[CalibratedRelease]) -> Iterator[str]:
    """The people whom a query leaves out, so that no one person decides how long it takes. `explain` shows it too."""
    yield from dict.fromkeys(note for release in releases for note in _left_out(release.planned.release))


def _left_out(release: Release) -> Iterator[str]:
    if (most := heaviest_counted(release.aggregate.source)) is not None:
        yield f"people with more than {most:,} rows are left out, because the query multiplies each person's rows"
    if cuts_keys(release.aggregate):
        why = "because the query multiplies rows"
        yield f"keys of more than {LONGEST_COPIED} bytes are cut to {LETTERS_COPIED} letters, {why}"


def constant_note(releases: Sequence[CalibratedRelease]) -> Iterator[str]:
    """Intervals of a release that reads noisy answers cover its own noise only; if it compares with them, none do."""
    if any(release.planned.reads_noise for release in releases):
        yield "± ?: rows are compared with a noisy answer, so the error is unknown"
    elif any(part.releases for release in releases for part in release.planned.adaptive):
        yield "± does not include the noise of the subquery's answer"


def share_notes(outputs: Sequence[Output], releases: Sequence[CalibratedRelease]) -> Iterator[str]:
    """Ratios whose numerator and denominator are bounded separately, which biases them."""
    for output in outputs:
        # An average is clamped to its bounds, and both its sides count the same rows.
        if not isinstance(output.estimate, Ratio) or output.estimate.low is not None or output.release is None:
            continue
        release = releases[output.release].planned.release
        if release.is_down_weighted:
            continue  # all columns count the same parts of the same rows
        sides = [{name for name, _ in side.weights} for side in (output.estimate.above, output.estimate.below)]
        if sides[0] != sides[1] and _bounds_rows(release) and _counts_values(release, sides[0] | sides[1]):
            why = "because numerator and denominator are bounded separately"
            more = f"anyone has more than {several(max(release.rows, release.light_rows or 0), 'row', 'rows')}"
            instead = next(_summed(release, sides[0]), "condition")
            yield f'"{output.name}" is biased if {more}, {why}; AVG({instead}) is not'


def _counts_values(release: Release, columns: Collection[str]) -> bool:
    measures = (part.measure for part in release.measures if part.column in columns)
    return any(not isinstance(part, OverDistinct) and isinstance(read_by(part), CountValues) for part in measures)


def _summed(release: Release, columns: Collection[str]) -> Iterator[str]:
    """The arguments of the sums in these columns."""
    for part in release.measures:
        summed = _summed_by(part.measure)
        if part.column in columns and summed is not None:
            yield format_clipped(summed.argument)


def _summed_by(measure: Measure) -> SumValues | None:
    read = None if isinstance(measure, OverDistinct) else read_by(measure)
    return read if isinstance(read, SumValues) else None


def found_notes(releases: Sequence[CalibratedRelease]) -> Iterator[str]:
    """The bounds that `"auto"` found."""
    for release in releases:
        found = ", ".join(_found(release))
        if found:
            yield f"bounds found with {float(AUTO_BOUNDS):.0%} of the cost: {found}"


def _found(release: CalibratedRelease) -> Iterator[str]:
    found = release.planned.found
    if found.rows is not None:
        yield f"max_rows_per_group={found.rows}"
    if found.groups is not None:
        yield f"max_groups={found.groups}"
    for value, (low, high) in found.clips:
        yield f"{format_clipped(value)} from {float(low):g} to {float(high):g}"


def left_out_notes(releases: Sequence[CalibratedRelease], columns: Sequence[Columns | None]) -> Iterator[str]:
    """The share of rows beyond the bounds that `"auto"` found, from the histograms that they were found with."""
    for number, release in enumerate(releases):
        histograms = {
            binned.what: histogram_of(part, binned, table)
            for part, table in zip(releases, columns, strict=True)
            for binned in (part.planned.release.aggregate.binned,)
            if binned is not None and binned.release == number and table is not None
        }
        found = release.planned.found
        left_out = share_left_out(
            histograms.get("rows"), histograms.get("groups"), found.rows or math.inf, found.groups or math.inf
        )
        if left_out >= WORTH_SAYING and not _counts_units_alone(release.planned.release):
            more = "more if a few people, whom noise hides, have very many rows"
            yield f"these bounds leave out at least about {left_out:.0%} of the rows, {more}"


def drawn_notes(outputs: Sequence[Output], releases: Sequence[CalibratedRelease]) -> Iterator[str]:
    """The error of statistics, which have no interval: of a quantile in ranks, of a mode in rows."""
    for number, release in enumerate(releases):
        for drawn, draw in release.statistics:
            if draw.noise is None:
                yield f"{_name_of(drawn, number, outputs)}: {draw.note}"


def _name_of(drawn: Drawn, release: int, outputs: Sequence[Output]) -> str:
    """The column that shows a statistic, or else what it is."""
    read = ((output, output.estimate) for output in outputs if output.release == release)
    names = (
        output.name
        for output, estimate in read
        if isinstance(estimate, Linear) and drawn.column in dict(estimate.weights)
    )
    return next(names, "") or format_statistic(drawn.statistic)


def unranked_notes(
    outputs: Sequence[Output],
    releases: Sequence[CalibratedRelease],
    hopeless: Sequence[Mapping[str, NDArray[np.bool_]]],
) -> Iterator[str]:
    """The quantiles that are NULL, with the number of groups where they are."""
    for number, (release, groups) in enumerate(zip(releases, hopeless, strict=True)):
        keys = release.planned.release.key_names
        for drawn, draw in release.statistics:
            if drawn.column in groups and (null := int(groups[drawn.column].sum())):
                where = f" in {several(null, 'group', 'groups')}" if keys else ""
                name = _name_of(drawn, number, outputs)
                yield f"{name} is NULL{where}: it may be off by {draw.ranks:,} rows, as many as there are or more"


def unaveraged_notes(
    outputs: Sequence[Output], releases: Sequence[CalibratedRelease], columns: Sequence[Mapping[str, NDArray[Any]]]
) -> Iterator[str]:
    """The averages that are NULL because noise alone could have made their count, with the number of groups."""
    of = {release.planned.name: (release, table) for release, table in zip(releases, columns, strict=True)}
    for output in outputs:
        found = None if output.release is None else of.get(release_name(output.release))
        if not isinstance(output.estimate, Ratio) or not output.estimate.weighed or found is None:
            continue
        release, table = found
        parts = [(float(weight), name) for name, weight in output.estimate.below.weights]
        count = sum(weight * np.ma.getdata(table[name]).astype(float) for weight, name in parts)
        margin = DEVIATIONS * sum(abs(weight) * table[noise_of(name)] for weight, name in parts)
        if null := int(np.sum(count <= margin)):
            where = f" in {several(null, 'group', 'groups')}" if release.planned.release.key_names else ""
            yield f"{output.name} is NULL{where}: noise alone could explain its count"


def diagnosis_notes(releases: Sequence[CalibratedRelease], columns: Sequence[Columns | None]) -> Iterator[str]:
    """The findings from the histograms of `diagnose`; a bin that noise alone could have filled counts as empty."""
    for release, table in zip(releases, columns, strict=True):
        diagnosis = release.planned.release.aggregate.diagnosis
        if diagnosis is None or table is None:
            continue
        (measure,) = release.measures
        counts = dict(zip(table["_k0"].tolist(), table[measure.bounded.column].tolist(), strict=True))
        steps = range(len(diagnosis.bins) + 1)
        noise = measure.noise.half_width(for_all(SURE, len(steps))) << measure.shift
        units = [count if (count := counts.get(step, 0)) > noise else 0 for step in steps]
        yield from _lost(diagnosis, units) if diagnosis.what == "lost" else _fitting(diagnosis, units)


def _lost(diagnosis: Diagnosis, units: Sequence[int]) -> Iterator[str]:
    """Each bin counts with the midpoint of its range."""
    ends = (*diagnosis.bins, 2 * diagnosis.bins[-1])
    rows = sum(count * (low + 1 + high) / 2 for count, low, high in zip(units[1:], ends, ends[1:], strict=False))
    if not any(units[1:]):
        yield f"bounding left out almost nothing (this estimate took {float(DIAGNOSING):.0%} of the cost)"
    else:
        about = f"about {rows:,.0f} rows of {sum(units[1:]):,} people"
        yield f"bounding left out {about} (this estimate took {float(DIAGNOSING):.0%} of the cost)"


def _fitting(diagnosis: Diagnosis, units: Sequence[int]) -> Iterator[str]:
    """The smallest bound that would count nearly everybody in full, if it is larger than the bound in use."""
    within = accumulate(units)
    enough = (step for step, count in zip(diagnosis.bins, within, strict=False) if count >= NEARLY_ALL * sum(units))
    fitting = next(enough, diagnosis.bins[-1])
    if any(units) and fitting > diagnosis.bins[0]:
        option = "max_rows_per_group" if diagnosis.what == "rows" else "max_groups"
        yield f"{option}={fitting} would count all {diagnosis.what} of {NEARLY_ALL:.0%} of the people"


def empty_groups_notes(calibrated: Calibrated, shown: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Public groups that may be empty: hidden, or included in calculations over all groups.

    `shown` says per release how many groups there are, and how many of these are shown.
    """
    for groups, left in shown:
        if left < groups:
            yield f"{groups - left:,} of {groups:,} groups are hidden: their numbers cannot be told from 0"
    if calibrated.request.empty_groups == "hide" or not reads_all_groups(calibrated.tracked.post_processing):
        return
    if any(domain is not None and domain.size > 1 for domain in (part.domain for part in calibrated.tracked.releases)):
        yield (
            "calculations over all groups include groups that may be empty; "
            'empty_groups="hide" leaves out those that look empty'
        )


def lost_note(outputs: Sequence[Output]) -> Iterator[str]:
    names = [f'"{output.name}"' for output in outputs if output.lost]
    if names:
        twice = len({output.name.lower() for output in outputs}) < len(outputs)
        why = " because two columns have the same name; rename one with AS" if twice else ""
        yield f"{', '.join(names)}: the error is unknown{why}"


def data_note(receipt: Receipt, current: str | None) -> Iterator[str]:
    """Says of which data the answer is, where the owner has named other data since."""
    older = [name for name in receipt.data if name != current]
    if older and current is not None:
        part = "this answer is" if receipt.recalled else "a part of this answer is"
        yield f"{part} of the data {older[0]!r}, and now there is {current!r}: fresh=True asks again at full cost"


def age_note(receipt: Receipt, changed: datetime | None) -> Iterator[str]:
    """Warns that files changed after the answer was stored. For servers this is unknown."""
    if receipt.asked is not None and changed is not None and changed > receipt.asked:
        part = "this answer" if receipt.recalled else "a part of this answer"
        yield f"the data is newer ({changed:%Y-%m-%d %H:%M} UTC) than {part}: fresh=True asks again at full cost"
    elif receipt.asked is not None and not receipt.recalled:
        yield f"part of this answer is stored and was free: {asked_on(receipt.asked)}"


def choice_note(columns: Sequence[ResultColumn]) -> Iterator[str]:
    rows = max((column.chosen_from for column in columns), default=1)
    if rows > 1:
        yield f"± holds for all {rows:,} groups at once, because noisy values chose the rows"


@dataclass(frozen=True)
class MostlyNoise:
    """A column whose values are hardly distinguishable from 0, and the epsilon for a tenth of its median."""

    name: str
    epsilon: float | None

    def __str__(self) -> str:
        better = (
            ""
            if self.epsilon is None
            else f"; about epsilon {self.epsilon:.2g} would give ± {GOOD:.0%} for half of its values"
        )
        return f'"{self.name}" is mostly noise at this epsilon{better}'


def mostly_noise(columns: Sequence[ResultColumn], cells: Cells, epsilon: float) -> Iterator[MostlyNoise]:
    for position, column in enumerate(columns):
        width = None if column.chosen_from > 1 else column.half_width
        if not width:
            continue
        values = cells.numbers(position)
        if len(values) and np.mean(np.abs(values) <= width) >= MOSTLY:
            # Many empty groups beside a few large ones are not noise.
            squares = float(np.mean((values / (width / 1.96)) ** 2)) - 1
            if _epsilon_for(math.sqrt(max(squares, 0.0)), epsilon) > epsilon or squares <= 2 * math.sqrt(
                2 / len(values)
            ):
                yield MostlyNoise(column.name, _enough(values, width, epsilon))


def _enough(values: np.ndarray, width: float, epsilon: float) -> float | None:
    """The epsilon for an error of a tenth of the median, which a few large groups do not move. None if the median could
    be noise alone."""
    median = abs(float(np.median(values))) / (width / 1.96)
    return _epsilon_for(median, epsilon) if median > 2 * MEDIAN_ERROR / math.sqrt(len(values)) and epsilon else None


def _epsilon_for(value: float, epsilon: float) -> float:
    """The epsilon for an error of a tenth of a value in standard deviations of the noise; errors fall as 1/epsilon."""
    return epsilon * 1.96 / (GOOD * value) if value else math.inf
