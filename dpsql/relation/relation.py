"""Relations whose every row belongs to one unit (to two in CrossUnitJoin), and public ones whose rows belong to nobody.

    Scan       a declared table, its declared properties enforced on every row
    ValuesTable     public rows that are known before the release runs: constants, or an earlier answer
    Filter     the rows that satisfy a condition
    Project    the same rows with other columns
    Window     the same rows with columns computed from all rows of the same unit
    Join       rows of the same unit, side by side; or rows of a unit beside public rows
    CrossUnitJoin     rows of different units, side by side: of these only totals can be asked, by special mechanisms
    SemiJoin   the rows whose unit has (or has not) rows in another relation, or whose values are in a public one
    Mark       the same rows with a column that says whether such a match is there
    SetOp      UNION, INTERSECT, EXCEPT, each with or without ALL, of rows with their units
    Distinct   every different row of every unit once
    PerUnit    one row per unit and keys: aggregates within one unit
    LightUnits the rows of units that do not have too many

and on top of them the one thing that may leave: an `Aggregate`, which merges the rows of many units into groups. What
has no node here has no private meaning and is refused. In all of them but CrossUnitJoin the rows of one unit depend on
the rows of that unit alone (docs/proofs/tracking.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from dpsql.errors import Place
    from dpsql.expressions.properties import Limit, Properties
    from dpsql.expressions.tree import Expression
    from dpsql.relation.reports import Reports
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
    """How a row of a table leads to its unit: over no, one or several foreign keys to a column."""

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
    """A declared column: its name in the engine SQL, its name in the table, and what is declared of it."""

    name: str
    declared: str
    properties: Properties
    never_null: bool = False
    """Whether no row that is read can be NULL there, whatever is declared."""
    collected: Collected | None = None
    """How it was randomised, where it stands for answers that the table does not hold: it cannot be read."""
    unique: bool = False
    """Whether the database guarantees that no two rows have the same value, as it is read."""
    auto: bool = False
    """Whether what is summed of it is clipped where each query finds it best."""
    as_stored: AsStored | None = None
    """How its properties are made true, where that is not done to every value by the scan (relation/scan_sql.py)."""


@dataclass(frozen=True)
class StoredTest:
    """A comparison of what is stored in a column with a constant of its type (relation/scan_sql.py)."""

    declared: str
    operator: str
    constant: Limit
    type: ColumnType


@dataclass(frozen=True, kw_only=True)
class Scan:
    table: str
    unit: Unit | None
    """None for a public table."""
    columns: tuple[ScanColumn, ...]
    contribution: Contribution
    one_row_per_unit: bool
    """Whether the engine itself guarantees that no unit has two rows."""
    declared_unique: bool = False
    """Whether the schema says so. Nothing leans on it but the choice of bounds, which are enforced."""
    is_view: bool = False
    """Whether it, or a table on the way to its unit, may be a view: nobody knows whether that reads the same twice."""
    stays: bool = False
    """Whether nobody can change its rows, nor those on the way to its unit, while the database is open."""
    tests: tuple[StoredTest, ...] = ()
    """Which rows are read."""


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
    """Two sides of units are matched within each unit only."""

    left: Relation
    right: Relation
    kind: Literal["INNER", "LEFT", "RIGHT", "FULL"]
    condition: Expression | None
    by_unit_alone: bool = False
    """Whether nothing but the units is compared."""


@dataclass(frozen=True, kw_only=True)
class CrossUnitJoin:
    """Rows of different units side by side, where `pairs` of keys, of the left and the right side, are equal.

    There may be none, where rows are compared otherwise: then any row may match any other.
    A row belongs to two units, so nothing but a filter, a projection and an `Aggregate` may stand above it, and that
    counts or sums with noise for the data at hand (aggregates/cross_unit.py).
    """

    left: Relation
    right: Relation
    pairs: tuple[tuple[Expression, Expression], ...]
    condition: Expression
    same_unit: str
    """What would keep people apart, for people to read."""
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
    """The same rows with a column that says whether there is a match: true, false, or NULL where that is open."""

    test: SemiJoin
    name: str

    @property
    def source(self) -> Relation:
        return self.test.source


SetKind: TypeAlias = Literal["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
OF_THE_LEFT = ("INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
"""Those whose rows are all of the left side."""


@dataclass(frozen=True)
class SetOp:
    """Both sides have the columns of the same names and types."""

    kind: SetKind
    left: Relation
    right: Relation


@dataclass(frozen=True)
class Distinct:
    source: Relation


@dataclass(frozen=True, kw_only=True)
class AggregateCall:
    """COUNT(*), SUM(x), CORR(y, x), ...: a star has no arguments."""

    name: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    at: Place | None = field(default=None, compare=False, repr=False)
    group_bounds: tuple[Fraction, Fraction] | None = None
    """What one unit adds to a group is clamped to these."""
    fraction: Fraction | None = None
    """Which quantile is asked for."""
    wide: bool = False
    """Whether a count is as wide as a sum: COUNT_IF is one to the engine."""

    @property
    def said(self) -> str:
        """As people call it."""
        return "MEDIAN" if self.fraction == Fraction(1, 2) else self.name


@dataclass(frozen=True)
class PerUnit:
    """GROUP BY that includes the unit: the groups of each unit are its own."""

    source: Relation
    keys: tuple[tuple[str, Expression], ...]
    calls: tuple[tuple[str, AggregateCall], ...]
    by_unit_alone: bool
    """Whether there is no other key, and so one row per unit."""


@dataclass(frozen=True)
class WindowOrder:
    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Frame:
    """Which rows around the current one count. The ends are SQL of our own: 2 PRECEDING, CURRENT ROW, ..."""

    kind: Literal["ROWS", "RANGE"]
    start: str
    end: str

    @property
    def may_be_empty(self) -> bool:
        """Whether it may lie beside its own row, where there may be no other."""
        return self.start.endswith("FOLLOWING") or self.end.endswith("PRECEDING")


@dataclass(frozen=True)
class WindowCall:
    """A window function over the rows of one unit; more keys and an order may narrow it down."""

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
    """The rows of units that have no more than `most_rows`: read where rows are about to be multiplied (work.py)."""

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
    """What an aggregate tells about bounding (diagnosis.py): units by the first step that is not below their number."""

    what: Literal["rows", "groups", "lost"]
    steps: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Sought:
    """A ladder on which bounds of another release are found (seek_bounds.py)."""

    release: int
    what: Literal["rows", "groups", "values"]
    steps: tuple[Fraction, ...]
    """The bounds that can be found, from the least on."""
    value: Expression | None = None
    """What is clipped: at so many steps from the origin."""
    limits: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))

    @property
    def origin(self) -> Fraction:
        """0, or the end of the limits that is nearest to it."""
        return min(max(Fraction(0), self.limits[0]), self.limits[1])


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Groups of a relation's rows by keys. A bare aggregate has no keys, and one group whatever the data."""

    source: Relation
    keys: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]
    grouped: bool
    totals: tuple[tuple[int, ...], ...] = ()
    """ROLLUP, CUBE, GROUPING SETS: which keys each row of the answer keeps."""
    listed: Relation | None = None
    """Public rows whose keys are the groups, where an outer join names them."""
    listed_once: bool = False
    """Whether each of them must be a group of its own."""
    reports: Reports | None = None
    """What is asked of the answers behind randomised reports, which are the last keys."""
    diagnosis: Diagnosis | None = None
    """Where it is asked about the bounds of another release."""
    sought: Sought | None = None
    """Where bounds of another release are found by it."""
    clause: int | None = None
    """Which of several options clauses speaks for it."""

    @property
    def is_beside(self) -> bool:
        """Whether it is about another release, and no part of the question itself."""
        return self.diagnosis is not None or self.sought is not None
