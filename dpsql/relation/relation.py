"""The nodes of the relational algebra. Every row belongs to one unit (two in CrossUnitJoin), or to a public relation.

    Scan           a declared table, its declared properties enforced on every row
    ValuesTable    public rows that are known before the release runs: constants, or an earlier answer
    Filter         the rows that satisfy a condition
    Project        the same rows with other columns
    Window         the same rows with columns computed from all rows of the same unit
    Join           rows of the same unit combined; or rows of a unit combined with public rows
    CrossUnitJoin  rows of different units combined: only totals can be computed from it, by special mechanisms
    SemiJoin       the rows whose unit has (or has not) rows in another relation, or whose values are in a public one
    Mark           the same rows with a column that says whether there is such a match
    SetOp          UNION, INTERSECT, EXCEPT, with or without ALL, of rows with their units
    Distinct       the distinct rows of each unit
    PerUnit        one row per unit and keys: aggregates within one unit
    LightUnits     the rows of units that do not have too many

On top stands an `Aggregate`, which merges the rows of many units into groups. A clause without a node is refused. In
every node but CrossUnitJoin the rows of one unit depend on that unit's rows alone (docs/proofs/tracking.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from dpsql.errors import Place
    from dpsql.expressions.properties import Limit, Properties
    from dpsql.expressions.tree import Expression
    from dpsql.relation.reports import RandomizedResponses
    from dpsql.schema.model import Collected, Contribution
    from dpsql.schema.types import ColumnType


@dataclass(frozen=True)
class UnitHop:
    """A foreign key towards the unit: `column` equals `to_table.to_column`, both read as `type`.

    The engine guarantees that no two rows have the same `to_column`, else the table is refused (sql/rows.py).
    """

    column: str
    to_table: str
    to_column: str
    type: ColumnType


@dataclass(frozen=True)
class Unit:
    """The path from a row to its privacy unit: zero or more foreign keys, then a column."""

    path: tuple[UnitHop, ...]
    table: str
    column: str
    type: ColumnType

    def __str__(self) -> str:
        hops = [f"{hop.column} = {hop.to_table}.{hop.to_column}" for hop in self.path]
        return " -> ".join([*hops, f"{self.table}.{self.column}"])


AsStored: TypeAlias = Literal["clamped later", "looked up later", "others left out"]


@dataclass(frozen=True)
class ScanColumn:
    """A declared column: its name in the engine SQL, its name in the table, and its declared properties."""

    name: str
    declared: str
    properties: Properties
    never_null: bool = False
    """Whether a constraint or a check at opening guarantees that the column is never NULL."""
    collected: Collected | None = None
    """How answers were randomised, for a column of answers, which the table does not hold: it cannot be read."""
    unique: bool = False
    """Whether the database guarantees that values are unique, as they are read."""
    auto: bool = False
    """Whether each query finds its own clipping bounds."""
    as_stored: AsStored | None = None
    """Where its declared properties are enforced, if not by the scan (relation/scan_sql.py)."""


@dataclass(frozen=True)
class StoredTest:
    """A comparison of a stored value with a constant of its type (relation/scan_sql.py)."""

    declared: str
    operator: str
    constant: Limit
    type: ColumnType


@dataclass(frozen=True, kw_only=True)
class Scan:
    table: str
    unit: Unit | None
    """The privacy unit of its rows; None for a public table."""
    columns: tuple[ScanColumn, ...]
    contribution: Contribution
    one_row_per_unit: bool
    """Whether the database guarantees that no unit has two rows."""
    declared_unique: bool = False
    """Whether the schema declares it. It only helps to choose bounds, which are enforced."""
    is_view: bool = False
    """Whether the table, or one on the path to its unit, may be a view, which need not read the same twice."""
    immutable: bool = False
    """Whether its rows, and those on the path to its unit, cannot change while the database is open."""
    tests: tuple[StoredTest, ...] = ()
    """Conditions on stored values, which the scan itself evaluates."""


@dataclass(frozen=True)
class ValuesTable:
    name: str
    columns: tuple[tuple[str, Properties], ...]


@dataclass(frozen=True)
class Filter:
    source: Relation
    condition: Expression


@dataclass(frozen=True)
class Project:
    source: Relation
    columns: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Join:
    """A join. If both sides are private, rows are joined within each unit only."""

    left: Relation
    right: Relation
    kind: Literal["INNER", "LEFT", "RIGHT", "FULL"]
    condition: Expression | None
    by_unit_alone: bool = False
    """Whether only the units are compared."""


@dataclass(frozen=True, kw_only=True)
class CrossUnitJoin:
    """Joins rows of different units on equal keys; `pairs` has the keys of the left and the right side.

    Without pairs, for other comparisons, any row may match any other.
    A row belongs to two units, so nothing but a filter, a projection and an `Aggregate` may stand above it, and that
    counts or sums with noise for the data at hand (aggregates/cross_unit.py).
    """

    left: Relation
    right: Relation
    pairs: tuple[tuple[Expression, Expression], ...]
    condition: Expression
    same_unit: str
    """The equality of units that the join lacks, for messages."""
    at: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class SemiJoin:
    """The rows of `source` that have a match in `other`, or with `negated` those that have none.

    The condition reads columns of both, which have different names. Where both are of units, these must be equal too.
    """

    source: Relation
    other: Relation
    condition: Expression | None
    negated: bool
    compared: tuple[Expression, ...] = ()
    """The equalities that IN asks for: a NULL in one may leave open whether there is a match. EXISTS is never open."""


@dataclass(frozen=True)
class Mark:
    """The same rows, with a column that says whether there is a match: true, false, or NULL if NULLs leave it open."""

    test: SemiJoin
    name: str

    @property
    def source(self) -> Relation:
        return self.test.source


SetKind: TypeAlias = Literal["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
OF_THE_LEFT = ("INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
"""The set operations whose rows all come from the left side."""


@dataclass(frozen=True)
class SetOp:
    """UNION, INTERSECT or EXCEPT of two sides whose columns have the same names and types."""

    kind: SetKind
    left: Relation
    right: Relation


@dataclass(frozen=True)
class Distinct:
    source: Relation


@dataclass(frozen=True, kw_only=True)
class AggregateCall:
    """A call of an aggregate: COUNT(*) has no arguments, SUM(x) one, CORR(y, x) two."""

    name: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    at: Place | None = field(default=None, compare=False, repr=False)
    group_bounds: tuple[Fraction, Fraction] | None = None
    """Bounds to which the contribution of a unit to a group is clamped."""
    fraction: Fraction | None = None
    """The fraction of a quantile."""
    wide: bool = False
    """Whether a count is as wide as a sum, as COUNT_IF is for the engine."""

    @property
    def said(self) -> str:
        """The name for messages."""
        return "MEDIAN" if self.fraction == Fraction(1, 2) else self.name


@dataclass(frozen=True)
class PerUnit:
    """GROUP BY that includes the unit, so that each group belongs to one unit."""

    source: Relation
    keys: tuple[tuple[str, Expression], ...]
    calls: tuple[tuple[str, AggregateCall], ...]
    by_unit_alone: bool
    """Whether the unit is the only key, so that each unit has one row."""


@dataclass(frozen=True)
class WindowOrder:
    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Frame:
    """The frame of a window: which rows around the current one are read. Its ends are SQL that dpsql writes."""

    kind: Literal["ROWS", "RANGE"]
    start: str
    end: str

    @property
    def may_be_empty(self) -> bool:
        """Whether the frame can be empty, because it need not contain its own row."""
        return self.start.endswith("FOLLOWING") or self.end.endswith("PRECEDING")


@dataclass(frozen=True)
class WindowCall:
    """A window function over the rows of one unit, with further partition keys and an order."""

    call: AggregateCall
    keys: tuple[Expression, ...]
    order: tuple[WindowOrder, ...]
    frame: Frame | None = None


@dataclass(frozen=True)
class Window:
    source: Relation
    columns: tuple[tuple[str, WindowCall], ...]


@dataclass(frozen=True)
class LightUnits:
    """The rows of units with at most `most_rows` rows, for steps that multiply rows (work.py)."""

    source: Relation
    most_rows: int


Relation: TypeAlias = (
    Scan
    | ValuesTable
    | Filter
    | Project
    | Join
    | CrossUnitJoin
    | SemiJoin
    | Mark
    | SetOp
    | Distinct
    | PerUnit
    | Window
    | LightUnits
)


@dataclass(frozen=True)
class Diagnosis:
    """A histogram of units for `diagnose`: each unit counts in the first bin that its number does not exceed."""

    what: Literal["rows", "groups", "lost"]
    bins: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BinnedBound:
    """A log-spaced histogram from which the bounds of another release are found (pipeline/auto_bounds.py)."""

    release: int
    what: Literal["rows", "groups", "values"]
    bins: tuple[Fraction, ...]
    """The candidate bounds, in rising order."""
    value: Expression | None = None
    """The value to be clipped, at a number of bins from the origin."""
    limits: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))

    @property
    def origin(self) -> Fraction:
        """0, clamped to the limits."""
        return min(max(Fraction(0), self.limits[0]), self.limits[1])


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Aggregates over a relation, grouped by keys. Without GROUP BY there is one group, whatever the data."""

    source: Relation
    keys: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]
    grouped: bool
    totals: tuple[tuple[int, ...], ...] = ()
    """ROLLUP, CUBE, GROUPING SETS: the keys of each level."""
    listed: Relation | None = None
    """Public rows that list the groups, if an outer join names them."""
    listed_once: bool = False
    """Whether each of these rows must be a group of its own."""
    reports: RandomizedResponses | None = None
    """The query over randomised answers, whose reports are the last keys."""
    diagnosis: Diagnosis | None = None
    """Set if this is a histogram for `diagnose`."""
    binned: BinnedBound | None = None
    """Set if this is a histogram for `"auto"` bounds."""
    clause: int | None = None
    """The number of its options clause, if the query has several."""

    @property
    def is_auxiliary(self) -> bool:
        """Whether it is an auxiliary release, about the bounds of another one."""
        return self.diagnosis is not None or self.binned is not None
