"""The one stateful object behind every front end: an engine, a schema, a ledger, and what a query costs by default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from dpsql.accounting.events import Composed
from dpsql.accounting.ledger.declaration import Declaration
from dpsql.accounting.ledger.ledger import INTERRUPTS_PER_DAY, Ledger
from dpsql.accounting.ledger.sqlite import MEMORY
from dpsql.accounting.privacy_loss import privacy_loss
from dpsql.engines.post_processor import PostProcessor
from dpsql.engines.registry import kind_of, open_engine
from dpsql.errors import InterfaceError, LedgerError, ProgrammingError, shown_argument
from dpsql.options import QueryRequest, below_one, positive, query_delta, read_options
from dpsql.owner.check import check_copied, check_links, opener_as_written
from dpsql.pipeline import stages
from dpsql.pipeline.choose_mechanism import share_of
from dpsql.pipeline.environment import Environment
from dpsql.schema import load_schema
from dpsql.sql.dialects import dialect_named
from dpsql.sql.parameters import clock_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpsql.accounting.budget import Budget
    from dpsql.accounting.exact import Number
    from dpsql.accounting.ledger.ledger import OnFailure
    from dpsql.batch import Plan
    from dpsql.engines.base import FrameEngine
    from dpsql.engines.registry import Database
    from dpsql.explain import Explanation
    from dpsql.options import EmptyGroups, Parameters, QueryOptions
    from dpsql.pipeline.calibrate_noise import Calibrated
    from dpsql.pipeline.stages import Trace
    from dpsql.result import Result
    from dpsql.schema import Schema

DEFAULT_SHARE = Fraction(1, 10)
"""A query that names no cost takes a tenth of the session, in its own currency."""

EPOCH = datetime(1970, 1, 1)
"""Ticks are counted from here."""


class Session:
    tick: float | None = None
    """Seconds to which times are told: a server's, as what was asked before may have just ended."""

    def __init__(
        self,
        database: Database,
        schema: str | os.PathLike[str] | dict[str, Any] | Schema,
        *,
        budget: Number | None,
        delta: Number | None,
        ledger: str | os.PathLike[str] | None,
        query_epsilon: Number | None,
        composition: str | None,
        analyst: str | None,
        analyst_budget: Number | None,
        on_failure: OnFailure,
        interrupts_per_day: int = INTERRUPTS_PER_DAY,
        timeout: Number | None = None,
        dialect: str = "duckdb",
    ) -> None:
        self.dialect = dialect_named(dialect)
        loaded = load_schema(schema)
        total = positive(budget, "budget") if budget is not None else None
        share = positive(query_epsilon, "query_epsilon") if query_epsilon is not None else None
        limit = float(positive(timeout, "timeout")) if timeout is not None else None
        engine = open_engine(database, loaded)
        try:
            check_links(engine, loaded)
            if engine.copied:
                check_copied(engine, loaded, opener_as_written(database, loaded))
            opened = Ledger.open(
                default_ledger(database) if ledger is None else ledger,
                dataset=loaded.dataset,
                epsilon=total,
                delta=below_one(delta) if delta is not None else None,
                composition=composition,
                analyst=analyst,
                analyst_epsilon=analyst_budget,
                on_failure=on_failure,
                interrupts_per_day=interrupts_per_day,
                declared=declaration_of(loaded),
                data=loaded.snapshot,
            )
        except BaseException:
            engine.close()
            raise
        engine.timeout = limit
        self.declared = loaded
        """The schema with what only some analysts see."""
        self.environment = Environment(loaded.seen_by(analyst), engine, opened, PostProcessor())
        self.query_epsilon = share
        self.empty_groups: EmptyGroups | None = None
        """What a question does that does not say, in place of the schema's default."""

    @staticmethod
    def clock() -> datetime:
        """The time in UTC. It is read here, once for each question, and by no stage."""
        return datetime.now(UTC).replace(tzinfo=None)

    def told(self, time: datetime) -> datetime:
        """The time of the last tick."""
        if self.tick is None:
            return time
        return time - (time.replace(tzinfo=None) - EPOCH) % timedelta(seconds=self.tick)

    def over(self, frames: Mapping[str, object], schema: Schema) -> Session:
        """The same account, over other rows of the same people or another declaration of them."""
        self.environment.check_process()
        engine = cast("FrameEngine", self.environment.engine).over(frames, schema)
        other = copy(self)
        other.declared = schema
        other.environment = replace(self.environment, schema=schema, engine=engine)
        return other

    def declare(self, schema: Schema) -> None:
        """Puts on record what another declaration changes; refuses one by which epsilon would mean something else."""
        self.environment.ledger.declare(declaration_of(schema))

    def for_analyst(self, analyst: str, dialect: str, most: Fraction | None = None) -> Session:
        """The same rows and the same ledger, in another analyst's name. Whoever opened this session closes it.

        A query that names no cost costs at most `most`.
        """
        other = copy(self)
        other.dialect = dialect_named(dialect)
        schema, ledger = self.declared.seen_by(analyst), self.environment.ledger.for_analyst(analyst)
        other.environment = replace(self.environment, schema=schema, ledger=ledger)
        if most is not None:
            other.query_epsilon = min(most, other._default_cost[0])
        return other

    def execute(self, sql: str, parameters: Parameters, options: QueryOptions) -> Result:
        return stages.run(self.request(sql, parameters, **options), self.environment)

    def execute_if(
        self, agreed: Callable[[Explanation], None], sql: str, parameters: Parameters, options: QueryOptions
    ) -> Result:
        """Runs a query unless `agreed`, which sees its explanation before the charge, raises an error."""
        public = self.environment.public()
        compiled = stages.compile_with_histogram(self.request(sql, parameters, **options), public)
        agreed(_explained(*compiled, public.budget))
        return stages.run_calibrated(*compiled, self.environment)

    def explain(self, sql: str, parameters: Parameters, options: QueryOptions) -> Explanation:
        request, public = self.request(sql, parameters, **options), self.environment.public()
        return _explained(*stages.compile_with_histogram(request, public), public.budget)

    def trace(self, sql: str, parameters: Parameters, options: QueryOptions) -> Trace:
        from dpsql.pipeline.stages import trace_question

        return trace_question(self.request(sql, parameters, **options), self.environment.public())

    def plan(
        self,
        queries: Sequence[str | tuple[str, Parameters]],
        weights: Sequence[Number] | None,
        epsilon: Number | None,
        delta: Number | None,
    ) -> Plan:
        from dpsql.batch import Plan, PlannedQuery, plan_batch, weigh

        now = self.told(self.clock())
        questions = [replace(self.request(*query), now=clock_for(query[0], now)) for query in planned_queries(queries)]
        public = self.environment.public()
        budget = public.budget
        batch = plan_batch(
            questions,
            weigh(weights, len(questions)),
            self._default_cost[0] if epsilon is None else positive(epsilon, "epsilon"),
            None if delta is None else query_delta(delta, "delta", budget.filter.delta),
            public,
        )
        after = budget.after(batch.privacy_loss).remaining
        return Plan(
            tuple(
                PlannedQuery(
                    part.request.sql,
                    float(weight),
                    share,
                    _explained(part, None, budget),
                )
                for part, weight, share in zip(batch.parts, batch.weights, batch.shares, strict=True)
            ),
            batch.cost,
            after,
            lambda: stages.run_together(batch.parts, batch.filter.epsilon, self.environment),
        )

    def request(self, sql: str, parameters: Parameters, **options: Unpack[QueryOptions]) -> QueryRequest:
        self.environment.check_process()
        if not isinstance(sql, str):
            raise ProgrammingError(f"a query must be a string, not {type(sql).__name__}")
        # The ledger is read for what depends on it alone: that takes longer than all the rest of this.
        largest_delta = Fraction(0) if options.get("delta") is None else self.environment.ledger.filter.delta
        given = read_options(options, largest_delta)
        named = frozenset(given)
        default, share = (given["epsilon"], None) if "epsilon" in named else self._default_cost
        given["epsilon"] = default
        given.setdefault("empty_groups", self.empty_groups or self.environment.schema.empty_groups)
        values = parameter_values(parameters)
        return QueryRequest(
            sql=sql,
            parameters=tuple(values.values()) if isinstance(values, dict) else values,
            share=None if "accuracy" in named else share,
            named=named,
            parameter_names=tuple(values) if isinstance(values, dict) else (),
            dialect=self.dialect,
            now=clock_for(sql, self.told(self.clock())),
            **given,
        )

    @property
    def _default_cost(self) -> tuple[Fraction, Fraction | None]:
        """The epsilon of a query that names none, and the share of the account that it is, if it is one."""
        if self.query_epsilon:
            return self.query_epsilon, None
        allowed = self.environment.ledger.allowance
        # Who may spend nothing is refused by the ledger, in the end; until then the query is like anybody's.
        account = allowed.filter if allowed.filter.epsilon else allowed.whole
        tenth, most = account.currency.epsilon_of(DEFAULT_SHARE), allowed.question
        return (tenth, DEFAULT_SHARE) if most is None or tenth <= most.epsilon else (most.epsilon, None)

    @property
    def budget(self) -> Budget:
        return self.environment.ledger.budget

    def resume(self) -> None:
        """Lifts the suspension of this session's analyst, on the data owner's authority."""
        self.environment.ledger.resume(self.environment.ledger.analyst)

    def accept_schema(self, schema: str | os.PathLike[str] | dict[str, Any] | Schema) -> None:
        """Puts another declaration on record, on the data owner's authority."""
        loaded = load_schema(schema)
        self.environment.ledger.accept(declaration_of(loaded), loaded.dataset)

    def close(self) -> None:
        self.environment.post_processor.close()
        self.environment.engine.close()
        self.environment.ledger.close()


def _explained(calibrated: Calibrated, histogram: Calibrated | None, budget: Budget) -> Explanation:
    """The explanation of a query that would be asked now, alone or with a histogram of rows per person."""
    from dpsql.explain import explain_calibrated  # late: a question that is asked needs none of it

    parts = [part for part in (calibrated, histogram) if part is not None and not part.recalled]
    share = sum(share_of(part.noise_plan.loss, budget).part for part in parts)
    after = budget.after(privacy_loss(Composed(tuple(part.event for part in parts)))).remaining
    found = explain_calibrated(calibrated, share, budget.remaining, after, histogram)
    cost, most = found.cost, budget.question
    if calibrated.recalled or most is None or (cost.epsilon <= most.epsilon and cost.delta <= most.delta):
        return found
    refused = f"this would be refused: the data owner lets a single query cost at most {most}"
    return replace(found, notes=(*found.notes, refused))


def declaration_of(schema: Schema) -> Declaration:
    """What the schema declares, as it goes on record."""
    return Declaration.of(schema.on_record(), schema.fingerprint)


def default_ledger(database: object) -> str:
    """A file database has its ledger next to it, so that reopening a notebook does not reset the budget.

    The path is resolved first, so every path to a file leads to the same ledger.
    """
    if not kind_of(database).has_own_ledger:
        raise InterfaceError(
            "a server needs an explicit ledger",
            hint='name a file or a schema: ledger="shop.ledger", ledger="postgresql://...?schema=shop_ledger"',
        )
    if isinstance(database, list | tuple) or (isinstance(database, str) and has_magic(database)):
        raise InterfaceError("several files need an explicit ledger", hint='name one: ledger="orders.ledger"')
    if not isinstance(database, str | os.PathLike) or str(database) == MEMORY:
        return MEMORY
    by_this_name, ledger = f"{Path(database)}.ledger", f"{os.path.realpath(database)}.ledger"
    if os.path.realpath(by_this_name) == os.path.realpath(ledger):
        return by_this_name
    if Path(by_this_name).exists():
        raise LedgerError(
            f"{database} is a link; spending through it is recorded in {by_this_name}, not in {ledger}",
            hint="name the right ledger with ledger=, or move the file if the other does not exist yet",
        )
    return ledger


def planned_queries(queries: object) -> list[tuple[Any, Any]]:
    """A query is a text, or a pair of a text and its parameters."""
    if not isinstance(queries, list | tuple) or not queries:
        raise ProgrammingError(
            "a plan needs at least one query", hint='write conn.plan(["SELECT ...", "SELECT ..."], epsilon=0.5)'
        )
    pairs = [query if isinstance(query, list | tuple) else (query, None) for query in queries]
    for query in pairs:
        if len(query) != 2:
            raise ProgrammingError(
                f"each query of a plan must be a string, or a string and its parameters, not {shown_argument(query)}",
                hint='write ("SELECT ... ?", [10])',
            )
    if any(query in pairs[:number] for number, query in enumerate(pairs)):
        raise ProgrammingError("the plan has the same query twice", hint="list it once, with a larger weight")
    return [(sql, parameters) for sql, parameters in pairs]


def parameter_values(parameters: object) -> dict[str, object] | tuple[object, ...]:
    """Values in order, or by name; a list of values is a tuple here."""
    if parameters is None:
        return ()
    if isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters):
        return {name: _listed(value) for name, value in parameters.items()}
    if isinstance(parameters, str | bytes | dict) or not hasattr(parameters, "__iter__"):
        raise InterfaceError(
            f"parameters must be a list, a tuple or a dict, not {type(parameters).__name__}",
            hint='write execute("... ?", [10]), or execute("... $low", {"low": 10}); pass a cost by name: epsilon=0.1',
        )
    return tuple(map(_listed, parameters))


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
