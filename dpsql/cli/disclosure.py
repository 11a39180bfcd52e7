"""`dpsql disclose`: what an owner has to say in public, as a page or as JSON. Nothing in it is private.

The page answers the questions of NIST SP 800-226. The JSON has the names of the public registry of deployments
(opendp/deployments-registry-data) where that has one, under "deployment", and the rest under "dpsql".
Every number is computed from the ledger, which is verified first.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.accounting.events import BASIC_KINDS, Event
from dpsql.accounting.exact import rounded_up
from dpsql.accounting.filters import filter_named
from dpsql.accounting.ledger.declaration import Declaration
from dpsql.display.html import bullets, card, grid, paragraph
from dpsql.display.numbers import several
from dpsql.errors import OperationalError
from dpsql.listing import counts, person_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpsql.accounting.ledger.journal import Entry
    from dpsql.accounting.ledger.ledger import Ledger
    from dpsql.schema import Schema

NEIGHBOURS = "two databases that differ in all rows of one person, which are in one of them and not in the other"
LEVEL = "One person, for life: all rows of a person, of all times, are protected together"
OUTCOMES = ("charged", "released", "refused", "failed", "suspended", "retried", "interrupted", "timed out")
EVENTS = {
    "Gaussian": "Gaussian noise, exact on integers",
    "Laplace": "Laplace noise, exact on integers",
    "PureRelease": "other pure releases: K-norm noise, permute-and-flip, and what stopped queries pay",
    "ApproximateRelease": "selection of groups by a threshold, and private tests",
    "Exponential": "exponential mechanism",
}
TRUSTED = (
    "the data owner, who declares units, bounds and public tables, and sets the budget",
    "the process that runs dpsql, and whoever can run code in it",
    "whoever can write the ledger; seals and a noted head show changes afterwards",
    "the service that says who asks: limits of analysts go by name",
)
NOISE = "the operating system's randomness, expanded by AES; samplers are exact, on integers"
UNPROTECTED = (
    "the schema: names, types, bounds, declared values, contribution bounds",
    "how long a query takes, and how much memory, beyond the public limits on what one person can cause",
    "that a query failed after its charge: once per analyst until the owner has looked",
    "facts about people in general, and what is known from elsewhere or through another ledger",
)


class Section(NamedTuple):
    question: str
    words: Sequence[str] = ()
    names: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    items: Sequence[str] = ()


def disclosed(ledger: Ledger, schema: Schema) -> dict[str, Any]:
    """Everything that is disclosed, as a document."""
    report, history = ledger.verify(), ledger.history()
    _check_schema(history, Declaration.of(schema.on_record(), schema.fingerprint))
    budget, terms = ledger.dataset_budget, list(_terms(history))
    promised = {
        name: rounded_up(sum((Fraction(term["budget"][name]) for term in terms), Fraction(0)))
        for name in ("epsilon", "delta")
    }
    facts = {
        "dataset": schema.dataset,
        "unit": {name: person_of(schema, name) for name in _private(schema)},
        "level": LEVEL,
        "neighbours": NEIGHBOURS,
        "promised": promised,
        "lifetime": None if budget.lifetime is None else _spent_of(budget.lifetime),
        "renewal": None if budget.over_time is None else budget.over_time.schedule,
        "composition": budget.filter.name,
        "terms": terms,
        "analysts": [_analyst(one) for one in ledger.analysts()],
        "one_query": None if budget.question is None else _pair(*budget.question),
        "asked": {state: number for state in OUTCOMES if (number := _number(history, state))},
        "mechanisms": _mechanisms(history),
        "data": list(dict.fromkeys(entry.sql for entry in history if entry.state == "data")),
        "contribution": {name: counts(schema.tables[name]) for name in _private(schema)},
        "public_tables": [name for name, table in schema.tables.items() if table.is_public],
        "trusted_views": [name for name, table in schema.tables.items() if table.view is not None],
        "collected": [
            f"{name}.{column.name}: {column.collected.mechanism}, epsilon {column.collected.epsilon:g} a report"
            for name, table in schema.tables.items()
            for column in table.columns.values()
            if column.collected is not None
        ],
        "rules": {"minimum_people": schema.minimum_people, "accuracy": schema.accuracy},
        "trusted": TRUSTED,
        "noise": NOISE,
        "unprotected": UNPROTECTED,
        "schema": schema.fingerprint,
        "ledger": {"entries": report.entries, "charges": report.charges, "head": report.head},
        "version": version("dpsql"),
    }
    return {"deployment": _registered(facts, schema), "dpsql": facts}


def _check_schema(history: Sequence[Entry], declared: Declaration) -> None:
    known = [entry.declared for entry in history if entry.declared is not None]
    redefined = declared.redefines(known[-1]) if known else ()
    if redefined:
        raise OperationalError(
            f"the epsilon on record is about another schema: {'; '.join(redefined)}",
            hint="disclose the schema that sessions use",
        )


def _private(schema: Schema) -> list[str]:
    return [name for name, table in schema.tables.items() if not table.is_public]


def _terms(history: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """What each term promised and spent; a budget that is never renewed has one."""
    term: list[Entry] = []
    for entry in history:
        if entry.state == "renewed" and term:
            yield _term(term)
            term = []
        term.append(entry)
    yield _term(term)


def _term(term: Sequence[Entry]) -> dict[str, Any]:
    budgets = [entry for entry in term if entry.state in ("budget", "renewed") and entry.analyst is None]
    # The largest budget on record within the term is what it promises, whatever it was lowered to later.
    epsilon, delta = max(one.epsilon for one in budgets), max(one.delta for one in budgets)
    spent = filter_named(str(budgets[-1].composition), epsilon, delta).spent(term[-1].tally.totals)
    begun = term[0].sql if term[0].state == "renewed" else term[0].time[:10]
    return {
        "begun": begun,
        "budget": _pair(epsilon, delta),
        "spent": _pair(spent.epsilon, spent.delta),
        "queries": term[-1].tally.queries,
    }


def _pair(epsilon: float | Fraction, delta: float | Fraction) -> dict[str, float]:
    return {"epsilon": _up(epsilon), "delta": _up(delta)}


def _up(amount: float | Fraction) -> float:
    return rounded_up(amount) if isinstance(amount, Fraction) else amount


def _spent_of(budget: Any) -> dict[str, Any]:
    return {**_pair(budget.epsilon, budget.delta), "spent": budget.spent._asdict()}


def _analyst(one: Any) -> dict[str, Any]:
    limit = one.allowed.own
    return {
        "analyst": one.analyst,
        "limit": None if limit is None else _pair(limit.epsilon, limit.delta),
        "spent": one.budget.spent._asdict(),
        "queries": one.budget.queries,
        "revoked": one.allowed.revoked is not None,
        "suspended": one.suspended,
    }


def _number(history: Sequence[Entry], state: str) -> int:
    return sum(entry.state == state for entry in history)


def _mechanisms(history: Sequence[Entry]) -> dict[str, int]:
    """In how many charges each kind of event is."""
    charged = [entry.event for entry in history if entry.state == "charged" and entry.event is not None]
    found = Counter(kind for event in charged for kind in _kinds(event))
    return {kind: found[kind] for kind in EVENTS if found[kind]}


def _kinds(event: Event) -> set[str]:
    if isinstance(event, BASIC_KINDS):
        return {type(event).__name__}
    parts = getattr(event, "events", ())
    return {kind for part in parts for kind in _kinds(part)}


def _registered(facts: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """By the names of the public registry. What only the owner knows is null."""
    promised = facts["promised"]
    most = facts["lifetime"] or promised
    return {
        "basic": {
            "name": facts["dataset"],
            "data_curators": None,
            "description": None,
            "intended_use": None,
            "data_product_type": "Summary statistics",
            "data_product_region": None,
            "data_product_sector": None,
            "publication_date": None,
        },
        "dp_variant": {
            "variant_name": "Approximate DP" if most["delta"] else "Pure DP",
            "data_domain": "; ".join(f"{name}: {', '.join(table.columns)}" for name, table in schema.tables.items()),
            "unprotected_quantities": "; ".join((*UNPROTECTED, *facts["collected"])),
        },
        "privacy_loss": {
            "privacy_unit": "Person-level",
            "privacy_unit_details": f"{LEVEL}. Neighbours are {NEIGHBOURS}.",
            "privacy_parameters": {"epsilon": most["epsilon"], "delta": most["delta"]},
            "privacy_parameters_details": f"for all answers together, chosen adaptively, by the privacy filter "
            f'"{facts["composition"]}"; {several(len(facts["terms"]), "term", "terms")}',
        },
        "deployment_model": {
            "model_name": "Local and central" if facts["collected"] else "Central",
            "release_type": None,
            "data_source_type": None,
            "access_type": "Interactive",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": "; ".join(f"{n}: {c}" for n, c in facts["contribution"].items()),
            "mechanisms": "; ".join(EVENTS[kind] for kind in facts["mechanisms"]) or None,
            "justification": None,
        },
    }


# -- page --------------------------------------------------------------------------------------------------------------


def sections(document: dict[str, Any]) -> list[Section]:
    facts = document["dpsql"]
    return [*_guarantee(facts), *_use(facts), *_conditions(facts)]


def _guarantee(facts: dict[str, Any]) -> Iterator[Section]:
    yield Section(
        "Who is protected?",
        [f"{facts['level']}.", f"Neighbouring databases are {facts['neighbours']}."],
        ("table", "person"),
        list(facts["unit"].items()),
    )
    yield Section(
        "How much is promised?",
        list(_promise(facts)),
        ("term from", "epsilon", "delta", "epsilon spent", "delta spent", "queries"),
        [
            (term["begun"], *map(_shown, (*term["budget"].values(), *term["spent"].values())), str(term["queries"]))
            for term in facts["terms"]
        ],
    )


def _use(facts: dict[str, Any]) -> Iterator[Section]:
    most = facts["one_query"]
    yield Section(
        "Who may ask, and what has each spent in this term?",
        [] if most is None else [f"A single query may cost at most epsilon {_shown(most['epsilon'])}."],
        ("analyst", "limit", "epsilon spent", "delta spent", "queries", ""),
        [
            (
                "(no name)" if one["analyst"] is None else one["analyst"],
                "" if one["limit"] is None else _shown(one["limit"]["epsilon"]),
                *map(_shown, one["spent"].values()),
                str(one["queries"]),
                "revoked" if one["revoked"] else "suspended" * one["suspended"],
            )
            for one in facts["analysts"]
        ],
    )
    yield Section(
        "What was asked, and how was it answered?",
        [
            ", ".join(f"{name} {number}" for name, number in facts["asked"].items()) or "Nothing yet.",
            *_listed("Of the data", facts["data"]),
        ],
        ("mechanism", "queries"),
        [(EVENTS[kind], str(number)) for kind, number in facts["mechanisms"].items()],
    )


def _conditions(facts: dict[str, Any]) -> Iterator[Section]:
    yield Section(
        "How is one person's contribution bounded?",
        list(_rules(facts["rules"])),
        ("table", "what counts"),
        list(facts["contribution"].items()),
    )
    reports = _listed("Reports that people randomised themselves", facts["collected"])
    yield Section(
        "What is not protected?",
        [*_listed("Public tables", facts["public_tables"]), *reports],
        items=facts["unprotected"],
    )
    views = _listed("Views that the owner vouches for", facts["trusted_views"])
    yield Section("Who is trusted?", views, items=facts["trusted"])
    yield Section("Where does the noise come from?", [f"From {facts['noise']}."])
    entries, head = facts["ledger"]["entries"], facts["ledger"]["head"]
    yield Section(
        "How can this be checked?",
        [
            f"dpsql {facts['version']}; schema {facts['schema']}; ledger of {entries} entries, verified, head {head}.",
            "dpsql ledger verify --head finds this head in the ledger; dpsql ledger export is for auditors.",
        ],
    )


def _promise(facts: dict[str, Any]) -> Iterator[str]:
    total = facts["promised"]
    until = " until the end of the last term" if facts["renewal"] or len(facts["terms"]) > 1 else ""
    yield (
        f"All answers{until} together are (epsilon, delta)-differentially private with epsilon "
        f"{_shown(total['epsilon'])} and delta {_shown(total['delta'])}, however they were chosen."
    )
    if facts["renewal"]:
        yield f"The budget is renewed: {facts['renewal']}. All terms add up."
    if facts["lifetime"]:
        most = facts["lifetime"]
        yield (
            f"Over all time epsilon is at most {_shown(most['epsilon'])} and delta {_shown(most['delta'])}; epsilon "
            f"{_shown(most['spent']['epsilon'])} and delta {_shown(most['spent']['delta'])} are spent."
        )
    yield f'Composition: the privacy filter "{facts["composition"]}" (docs/proofs/composition.md).'


def _rules(rules: dict[str, Any]) -> Iterator[str]:
    if rules["minimum_people"]:
        yield f"An answer about fewer than {rules['minimum_people']} people is hidden, with 95 % certainty."
    if rules["accuracy"] == "required":
        yield "Each query states its accuracy."


def _listed(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what}: {', '.join(names)}."] if names else []


def _shown(amount: float) -> str:
    return f"{amount:.12g}"


def as_markdown(document: dict[str, Any]) -> str:
    lines = [f"# Differential privacy of {document['dpsql']['dataset']}"]
    for section in sections(document):
        lines += ["", f"## {section.question}", "", *(f"{words}\n" for words in section.words)]
        if section.rows:
            lines += [_row(section.names), _row(["---"] * len(section.names)), *map(_row, section.rows)]
        lines += [f"- {item}" for item in section.items]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def as_html(document: dict[str, Any]) -> str:
    name = document["dpsql"]["dataset"]
    cards = [
        card(
            section.question,
            *map(paragraph, section.words),
            *([grid(section.names, section.rows)] if section.rows else []),
            *([bullets(section.items)] if section.items else []),
        )
        for section in sections(document)
    ]
    title = paragraph(f"Differential privacy of {name}")
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><body>{title}{"".join(cards)}</body></html>\n'
