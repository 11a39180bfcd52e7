"""What a plan is made of: releases as engine SQL, the answers that they read, and public tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dpsql.aggregates.estimate import Formula, Linear, Ratio, noise_of
from dpsql.aggregates.final import answer_type, final_sql
from dpsql.aggregates.release import LEVEL
from dpsql.aggregates.write_release import release_sql
from dpsql.engine_sql.build import SALT, select
from dpsql.engine_sql.lasting import with_tables
from dpsql.engine_sql.tree import Field, Named
from dpsql.engines.duckdb.render import render, render_term, type_name
from dpsql.engines.public import PostProcessingTable
from dpsql.engines.quoting import quoted
from dpsql.pipeline.counted_reports import estimates_table
from dpsql.pipeline.seeking import NOTHING_FOUND, NOTHING_SOUGHT, Found, Seeking
from dpsql.relation.adaptive_subquery import with_adaptive
from dpsql.relation.whole_tables import as_if_changing
from dpsql.relation.write_scan import scan_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsql.aggregates.release import Release
    from dpsql.engine_sql.tree import Filling, Query, Select
    from dpsql.engines.public import Render
    from dpsql.relation.adaptive_subquery import AdaptiveTable
    from dpsql.relation.relation import Scan
    from dpsql.relation.reports import Reports

WITHOUT_LITERALS = ("query", "_query_if_changing", "_over_lasting", "_has_salt", "post_processing_table")
"""What is found once for a release, whatever fills its blanks."""


@dataclass(frozen=True)
class PlannedAdaptiveSubquery:
    """An answer that a release reads: its rows come from this SQL over releases and public tables."""

    table: AdaptiveTable
    post_processing: str
    releases: tuple[int, ...]
    public: tuple[PublicTable, ...]


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    name: str
    release: Release
    render: Render = field(compare=False)
    """How the engine at hand says it."""
    ends: tuple[Linear | Ratio | None, ...] = ()
    """What DP_INTERVAL_LOW and DP_INTERVAL_HIGH are asked of: its columns _low0, _high0, _low1, ..."""
    adaptive: tuple[PlannedAdaptiveSubquery, ...] = ()
    """The answers that it reads."""
    seeking: Seeking = NOTHING_SOUGHT
    """The bounds that are found before it is asked."""
    found: Found = NOTHING_FOUND
    """And what they turned out to be."""
    answers: tuple[tuple[Any, ...], ...] = ()
    """Where randomised reports are counted: all answers that there can be, and what is asked of each."""
    literals: Mapping[str, Filling] = field(default_factory=dict)
    """The literals of the question that were left open while it was planned: they fill blanks of the SQL."""

    def with_literals(self, literals: Mapping[str, Filling]) -> PlannedRelease:
        """The same release of another question of its shape. What was written without a look at literals is shared."""
        other = replace(self, literals=literals)
        vars(other).update({part: getattr(self, part) for part in WITHOUT_LITERALS})
        return other

    def salted(self, salt: int, reaches: Mapping[str, int]) -> str:
        """The engine SQL; the salt decides which of a unit's groups and values count."""
        if not reaches and not self._has_salt:
            return self._unsalted
        return self.render(self._over_lasting[0], {**self.literals, **reaches, SALT: salt})

    @cached_property
    def _unsalted(self) -> str:
        return self.render(self._over_lasting[0], self.zeros) if self.lasting else self.shown

    @property
    def lasting(self) -> Mapping[str, str]:
        """What lasts from question to question, in engine SQL, by the name of the table that the engine makes of it."""
        return self._over_lasting[1]

    @cached_property
    def _over_lasting(self) -> tuple[Query, dict[str, str]]:
        tables: dict[str, str] = {}

        def name(part: Select) -> str:
            sql = self.render(part)
            name = f"dpsql.lasting.{sha256(sql.encode()).hexdigest()}"  # a declared name has no dots
            tables[name] = sql
            return name

        return with_tables(self.with_adaptive, name), tables

    @cached_property
    def _has_salt(self) -> bool:
        """Whether the SQL depends on it. Where all of a unit counts there is nothing to choose, and it does not."""
        ones = dict.fromkeys(self._left_open, 1)
        return self.render(self.with_adaptive, {**self.literals, **ones}) != self.shown

    @property
    def with_adaptive(self) -> Query:
        return with_adaptive([answer.table for answer in self.adaptive], self.query)

    @cached_property
    def query(self) -> Query:
        """Written once, with blanks for the salt and for what depends on the noise."""
        return release_sql(self.release)

    @cached_property
    def shown(self) -> str:
        """The same for whatever noise: with zeros in the blanks."""
        return self.render(self.with_adaptive, self.zeros)

    @cached_property
    def canonical(self) -> str:
        """The same on whatever engine, whether rows stay there or not: what a stored answer is found by."""
        if not self.lasting:
            return self.shown if self.render is render else render(self.with_adaptive, self.zeros)
        return render(with_adaptive([answer.table for answer in self.adaptive], self._query_if_changing), self.zeros)

    @cached_property
    def _query_if_changing(self) -> Query:
        aggregate = replace(self.release.aggregate, source=as_if_changing(self.release.aggregate.source))
        return release_sql(replace(self.release, aggregate=aggregate))

    @property
    def zeros(self) -> dict[str, Filling]:
        """What fills the blanks where nothing is drawn yet."""
        return {**self.literals, **dict.fromkeys(self._left_open, 0)}

    @property
    def _left_open(self) -> list[str]:
        """The salt, and what depends on the noise."""
        return [SALT, *(drawn.column for drawn in self.release.statistics)]

    @property
    def reports(self) -> Reports | None:
        return self.release.aggregate.reports

    @cached_property
    def post_processing_table(self) -> PostProcessingTable:
        """What the post-processing reads: keys, aggregates made of measures and statistics, and these themselves."""
        if self.reports is not None:
            return estimates_table(self.name, self.reports)
        keys = {name: type_name(kind) for name, kind in self.release.keys}
        stored = keys | dict.fromkeys(self.release.columns, "BIGINT")
        answers = {
            f"_a{position}": (answer_type(answer), render_term(final_sql(answer.estimate, answer.type)))
            for position, answer in enumerate(self.release.answers)
        }
        stored |= dict.fromkeys((f"_{end}{i}" for i in range(len(self.ends)) for end in ("low", "high")), "DOUBLE")
        made = {name: (kind, quoted(name)) for name, kind in stored.items()} | answers
        if self.release.levels:
            stored[LEVEL] = "BIGINT"
            made |= {
                LEVEL: ("BIGINT", LEVEL),
                **{f"_g{key}": ("BIGINT", self._left_out(key)) for key in range(len(keys))},
            }
        stored |= dict.fromkeys(map(noise_of, self.weighed), "DOUBLE")
        return PostProcessingTable(self.name, stored, made)

    @property
    def weighed(self) -> list[str]:
        """The measures whose noise decides what the answer is."""
        formulas = [answer.estimate for answer in self.release.answers if isinstance(answer.estimate, Formula)]
        return sorted(frozenset[str]().union(*(formula.weighed for formula in formulas)))

    def _left_out(self, key: int) -> str:
        """GROUPING: 1 in the levels that leave the key out, 0 elsewhere."""
        kept = [str(number) for number, level in enumerate(self.release.levels) if key in level.kept]
        return f"CASE WHEN {LEVEL} IN ({', '.join(kept)}) THEN 0 ELSE 1 END" if kept else "1"


@dataclass(frozen=True)
class PublicTable:
    """A public table that the post-processing reads, as declared, with the columns that it may read."""

    declared: Scan
    read: tuple[str, ...]
    """The names that these columns are declared by."""
    render: Render = field(compare=False)
    """How the engine at hand says it."""

    @property
    def name(self) -> str:
        return self.declared.table

    @property
    def scan(self) -> Scan:
        columns = tuple(part for part in self.declared.columns if part.declared in self.read)
        return replace(self.declared, columns=columns)

    @property
    def sql(self) -> str:
        columns = [Named(Field(part.name), part.declared) for part in self.scan.columns]
        return self.render(select(columns, scan_sql(self.scan, [part.name for part in self.scan.columns])))

    @property
    def post_processing_table(self) -> PostProcessingTable:
        types = {part.declared: type_name(part.properties.type) for part in self.scan.columns}
        return PostProcessingTable(self.scan.table, types, {name: (kind, quoted(name)) for name, kind in types.items()})
