"""Holds the lines of the architecture, so that a privacy review is a short reading list.

Imports go down only, a stage knows only the stage above it, and what is dangerous (the engine, randomness, analyst
text, state) lives in the few places named here. To move a line, change a table below, and say why in
docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dpsql.aggregates.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]

# From the front ends to the foundations; a module imports from lower layers and from its own package.
LAYERS = (
    {"sqlalchemy"},  # only SQLAlchemy imports it, and is given the whole of dpsql as its DB-API module
    {"__init__"},
    {"cli", "notebook", "pandas", "polars"},
    {"server"},  # only the command line starts it
    {"verification", "demo", "frames"},
    {"connection"},
    {"synthetic"},
    {"plot", "promise"},
    {"session"},
    {"listing", "batch"},
    {"explain"},
    {"owner"},
    {"pipeline"},
    {"result"},
    {"intervals"},
    {"sql"},
    {"options"},
    {"mechanisms"},
    {"aggregates"},
    {"relation"},
    {"expressions"},
    {"engines", "local"},
    {"engine_sql"},
    {"accounting", "sampling", "schema"},
    {"display"},
    {"limits"},
    {"errors"},
)

# In the order in which they run.
STAGES = (
    "parse_sql",
    "resolve_names",
    "track_units",
    "infer_sensitivity",
    "plan_query",
    "calibrate_noise",
    "charge_budget",
    "add_noise",
    "execute",
    "estimate_answers",
    "post_process",
)

# What execute gives was made by add_noise, which it runs.
RUNS = {"estimate_answers": ("add_noise", "execute")}

# Files of pipeline/ that are a part of one stage.
PARTS_OF_STAGES = {
    "target_accuracy": "calibrate_noise",
    "identity": "calibrate_noise",
    "choose_mechanism": "calibrate_noise",
    "allocate": "calibrate_noise",
    "auto_bounds": "infer_sensitivity",
    "notes": "post_process",
}

# Files of pipeline/ that walk through stages; with bounds that were found a release walks the last free ones again.
WALKERS = {"stages", "replan"}

# Outside module (or function of one) -> where it may be used. Imports for type checkers alone do nothing and are free.
NOWHERE: frozenset[str] = frozenset()
FENCES = {
    # theirs are made up, or empty
    "duckdb": {"dpsql.engines", "dpsql.synthetic", "dpsql.verification", "dpsql.demo", "dpsql.server.catalog"},
    "sqlglot": {
        "dpsql.pipeline.parse_sql",
        "dpsql.pipeline.plan_query",
        "dpsql.sql",
        "dpsql.aggregates",
        "dpsql.relation",
        "dpsql.expressions",
        "dpsql.engines",
        "dpsql.server.catalog",  # what tools ask of system tables
        "dpsql.server.statements",
    },
    "psycopg": {"dpsql.engines.postgresql", "dpsql.accounting.ledger.postgres"},
    "pyspark": {"dpsql.engines.spark"},
    # noise, receipts, and a certificate
    "cryptography": {"dpsql.sampling", "dpsql.accounting.ledger.seal", "dpsql.server.settings"},
    "os.urandom": {"dpsql.sampling"},
    "secrets": {"dpsql.sampling", "dpsql.server"},  # noise, and passwords
    "random": {"dpsql.synthetic", "dpsql.verification"},  # rows that nobody is in, the same for the same seed
    "numpy.random": NOWHERE,
    "typer": {"dpsql.cli"},
    "rich": {"dpsql.cli"},
    "prompt_toolkit": {"dpsql.cli"},
    "sqlalchemy": {"dpsql.sqlalchemy"},
    "starlette": {"dpsql.server.http"},
    "uvicorn": {"dpsql.server.http"},
}

# What leads to rows of people or changes the account -> who may name it, be it as a type. The stages before the charge
# are not among them: they are given a PublicEnvironment.
PAID_STAGES = [f"dpsql.pipeline.{stage}" for stage in STAGES[STAGES.index("charge_budget") :]]
PAID = {*PAID_STAGES, "dpsql.pipeline.environment"}
FRONT_ENDS = {
    "dpsql.session",
    "dpsql.synthetic",
    "dpsql.verification",
    "dpsql.demo",
    "dpsql.frames",
    "dpsql.cli",
    "dpsql.sqlalchemy",
}
HANDS = {
    **{stage: {"dpsql.pipeline", "dpsql.verification"} for stage in PAID_STAGES},  # their order is held above
    "dpsql.pipeline.execute": {*PAID, "dpsql.pipeline.stages"},
    "dpsql.pipeline.environment.Environment": {*PAID, "dpsql.pipeline.stages", "dpsql.session"},
    "dpsql.pipeline.environment.EnginePublicRows": {"dpsql.pipeline.environment"},
    "dpsql.engines.base.Engine": {*PAID, *FRONT_ENDS, "dpsql.owner.check", "dpsql.engines"},
    "dpsql.engines.duckdb.engine": {*FRONT_ENDS, "dpsql.engines"},
    "dpsql.engines.post_processor": {*PAID, *FRONT_ENDS, "dpsql.engines"},
    "dpsql.accounting.ledger.ledger": {*PAID, *FRONT_ENDS, "dpsql.connection", "dpsql.accounting"},
    "dpsql.accounting.ledger.sqlite": {*FRONT_ENDS, "dpsql.accounting"},
    "dpsql.accounting.ledger.journal.Book": {"dpsql.accounting"},
    "dpsql.accounting.ledger.journal.Answers": {"dpsql.pipeline.add_noise", "dpsql.accounting"},
}
# Names of these modules that lead nowhere: anybody may use them.
HARMLESS = {"dpsql.pipeline.estimate_answers.levels_noises"}

# Imported when used, so that `import dpsql` stays light -> who may import it at once.
LATE = {
    "pandas": {"dpsql.pandas"},
    "polars": {"dpsql.polars"},
    "pyarrow": NOWHERE,
    "altair": {"dpsql.plot.altair"},
    "matplotlib": {"dpsql.plot.matplotlib"},
    "IPython": {"dpsql.notebook"},
}

STATEFUL = {
    "dpsql.session",
    "dpsql.accounting.ledger.ledger",
    "dpsql.accounting.ledger.sqlite",
    "dpsql.frames.accessor",
}
BUILDERS = {"dpsql.expressions", "dpsql.relation", "dpsql.aggregates", "dpsql.engine_sql"}
ENGINE_WORDS = re.compile(
    r'TRY_?CAST\(|HUGEINT|\bhash\(|\blist_\w+|COLLATE ?("|$)|IS (NOT )?DISTINCT FROM \{|isfinite|SELECT .*FROM \('
)
MUTABLE_LITERALS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {
    "list",
    "dict",
    "set",
    "bytearray",
    "defaultdict",
    "deque",
    "Counter",
    "OrderedDict",
    "WeakValueDictionary",
}


class Use(NamedTuple):
    """One use of an outside name: an import, or an attribute such as os.urandom."""

    name: str
    line: int
    at_once: bool = False  # runs when the module is imported
    typing_only: bool = False


def uses(tree: ast.AST, at_once: bool = True, typing_only: bool = False) -> Iterator[Use]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Use(alias.name, node.lineno, at_once, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (Use(f"{module}.{alias.name}", node.lineno, at_once, typing_only) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield Use(f"{node.value.id}.{node.attr}".replace("np.", "numpy.", 1), node.lineno)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from uses(ast.Module(node.body, []), at_once=False, typing_only=True)
            yield from uses(ast.Module(node.orelse, []), at_once, typing_only)
            continue
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from uses(node, at_once and not inside, typing_only)


def within(name: str, places: set[str] | frozenset[str]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def part_of(name: str) -> str:
    """`dpsql.pipeline.parse_sql.Parsed` belongs to `pipeline`, and `dpsql` itself is its `__init__`."""
    return [*name.split("."), "__init__"][1]


def depth_of(part: str) -> int | None:
    return next((depth for depth, parts in enumerate(LAYERS) if part in parts), None)


def upward_imports(module: str, used: list[Use]) -> Iterator[str]:
    here = part_of(module)
    if depth_of(here) is None:
        yield f"{here} has no place in LAYERS"
        return
    for use in used:
        there = part_of(use.name)
        if use.name.startswith("."):
            yield f"line {use.line}: relative import of {use.name}"
        elif within(use.name, {"dpsql"}) and there != here and (depth_of(there) or 0) <= (depth_of(here) or 0):
            yield f"line {use.line}: {here} imports {there}, which is not below it"


def skipped_stages(module: str, used: list[Use]) -> Iterator[str]:
    stage = module.split(".")[-1]
    if part_of(module) != "pipeline" or stage in WALKERS:
        return
    stage = PARTS_OF_STAGES.get(stage, stage)
    earlier = STAGES[: STAGES.index(stage)] if stage in STAGES else ()
    for use in used:
        there = use.name.removeprefix("dpsql.pipeline.").split(".")[0]
        if not within(use.name, {"dpsql.pipeline"}) or there not in STAGES:
            continue
        # What a stage gives contains what earlier stages gave, so their types may be named, but nothing run.
        run = RUNS.get(stage, earlier[-1:])
        is_type = use.typing_only or use.name.rpartition(".")[2][0].isupper()
        if there not in (earlier if is_type else run):
            yield f"line {use.line}: {stage} imports {there}; it may know only {' and '.join(run) or 'no stage'}"


def broken_fences(module: str, used: list[Use]) -> Iterator[str]:
    for use in used:
        for fenced, allowed in FENCES.items():
            if within(use.name, {fenced}) and not use.typing_only and not within(module, allowed):
                yield f"line {use.line}: {fenced} is for {', '.join(sorted(allowed)) or 'nobody'}"


def long_hands(module: str, used: list[Use]) -> Iterator[str]:
    """Whoever imports the module around a name could reach the name."""
    for use in used:
        for hand, allowed in HANDS.items():
            reaches = within(use.name, {hand}) or use.name == module_of(hand)
            if reaches and use.name not in HARMLESS and module != module_of(hand) and not within(module, allowed):
                yield f"line {use.line}: {hand} is not for {module}, even as a type"


def module_of(hand: str) -> str:
    """`dpsql.engines.base` of `dpsql.engines.base.Engine`."""
    around, _, name = hand.rpartition(".")
    return around if name[0].isupper() else hand


def early_imports(module: str, used: list[Use]) -> Iterator[str]:
    for use in used:
        for heavy, allowed in LATE.items():
            if within(use.name, {heavy}) and use.at_once and not within(module, allowed):
                yield f"line {use.line}: import {heavy} inside the function that needs it"


def shared_state(module: str, tree: ast.Module) -> Iterator[str]:
    if within(module, STATEFUL):
        return
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            variables = [name for name in names if name.islower() and not name.startswith("__")]
            if variables and is_mutable(node.value):
                yield f"line {node.lineno}: {variables[0]} is state that every session would share"
    yield from (f"line {node.lineno}: global state" for node in ast.walk(tree) if isinstance(node, ast.Global))


def is_mutable(value: ast.expr) -> bool:
    called = ast.unparse(value.func).split(".")[-1] if isinstance(value, ast.Call) else None
    return isinstance(value, MUTABLE_LITERALS) or called in MUTABLE_CALLS


def engine_words(module: str, tree: ast.Module) -> Iterator[str]:
    """Engine SQL is built as a tree, which renderers in engines/ spell: no text of an engine's anywhere else."""
    if not within(module, BUILDERS):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ENGINE_WORDS.search(node.value):
            yield f"line {node.lineno}: {node.value[:40]!r} is an engine's word"


CHECKS_OF_USES = (upward_imports, skipped_stages, broken_fences, long_hands, early_imports)
CHECKS_OF_CODE = (shared_state, engine_words)


def violations(module: str, source: str) -> list[str]:
    tree = ast.parse(source)
    used = list(uses(tree))
    found = [violation for check in CHECKS_OF_USES for violation in check(module, used)]
    return found + [violation for check in CHECKS_OF_CODE for violation in check(module, tree)]


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_the_architecture_holds() -> None:
    """Every offender at once, as file and line."""
    found = [
        f"{file.relative_to(ROOT)}: {violation}"
        for file in sorted((ROOT / "dpsql").rglob("*.py"))
        for violation in violations(module_name(file), file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_architecture_is_drawn_as_it_is_built() -> None:
    """Every module and package once in docs/ARCHITECTURE.md, from the front ends to the foundations."""
    drawing = (
        (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("dpsql/\n")[2].partition("```")[0]
    )
    drawn = re.findall(r"^  (\w+)(?:\.py|/) ", drawing, re.MULTILINE)
    built = {part_of(module_name(file)) for file in (ROOT / "dpsql").rglob("*.py")}
    assert sorted(drawn) == sorted(built) == sorted(part for layer in LAYERS for part in layer)
    assert drawn == sorted(drawn, key=lambda part: depth_of(part) or 0)


# The largest that the code may be. Whoever adds a module that nothing else can hold may raise a number, in a commit
# of its own that says why; every other change lowers them or leaves them.
MODULES, CLASSES_WITH_ONE_NAME, IMPORT_LINES, FUNCTION_LINES = 212, 6, 0.075, 50
LITERATURE = {"dpsql.mechanisms.permute_and_flip", "dpsql.mechanisms.stable_value"}
"""Mechanisms that the literature names keep a file of that name, whatever its size."""


def test_the_code_does_not_grow() -> None:
    size = runpy.run_path(str(ROOT / "benchmarks" / "code_size.py"))
    assert len(size["modules"]()) <= MODULES
    assert set(size["small_with_one_importer"]()) - LITERATURE == set()
    assert len(size["classes_with_one_name"]()) <= CLASSES_WITH_ONE_NAME
    assert size["import_share"]() <= IMPORT_LINES
    assert size["longest_functions"](FUNCTION_LINES) == []


def test_five_strategies_bound_contributions() -> None:
    assert len(STRATEGIES) <= 5
    assert len({strategy.name for strategy in STRATEGIES}) == len(STRATEGIES)


def test_every_place_that_the_tables_name_is_there() -> None:
    """A line around a place that has moved would hold nothing."""
    built = {module_name(file) for file in (ROOT / "dpsql").rglob("*.py")}
    places = {
        *map(module_of, HANDS),
        *STATEFUL,
        *(place for table in (FENCES, LATE, HANDS) for places in table.values() for place in places),
    }
    assert places <= built
    assert {f"dpsql.pipeline.{name}" for name in (*STAGES, *PARTS_OF_STAGES)} <= built


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("dpsql.schema.load", "from dpsql.session import Session", "schema imports session"),
        ("dpsql.schema.load", "from dpsql import session", "schema imports session"),
        ("dpsql.schema.load", "import dpsql", "schema imports __init__"),
        ("dpsql.schema.load", "def f():\n    import dpsql.pipeline.parse_sql", "line 2: schema imports pipeline"),
        (
            "dpsql.schema.load",
            "if TYPE_CHECKING:\n    from dpsql.engines.render import quoted",
            "schema imports engines",
        ),
        ("dpsql.schema.load", "from dpsql.sampling import uniform", "schema imports sampling"),
        ("dpsql.schema.load", "from .model import Schema", "relative import"),
        ("dpsql.errors", "from dpsql.limits import MOST_NODES", "errors imports limits"),
        ("dpsql.relation.sql", "sql = f'TRY_CAST({x} AS BIGINT)'", "is an engine's word"),
        ("dpsql.helpers", "", "helpers has no place"),
        ("dpsql.schema.load", "from dpsql.helpers import x", "schema imports helpers"),
        (
            "dpsql.pipeline.plan_query",
            "from dpsql.pipeline.parse_sql import parse_sql",
            "it may know only infer_sensitivity",
        ),
        ("dpsql.pipeline.plan_query", "from dpsql.pipeline import add_noise", "it may know only infer_sensitivity"),
        (
            "dpsql.pipeline.plan_query",
            "if TYPE_CHECKING:\n    from dpsql.pipeline.add_noise import Noisy",
            "it may know only infer_sensitivity",
        ),
        ("dpsql.pipeline.parse_sql", "import dpsql.pipeline.post_process", "it may know only no stage"),
        ("dpsql.pipeline.environment", "from dpsql.pipeline.parse_sql import Parsed", "it may know only no stage"),
        (
            "dpsql.pipeline.execute",
            "from dpsql.pipeline.charge_budget import charge_together",
            "it may know only add_noise",
        ),
        (
            "dpsql.pipeline.plan_query",
            "from dpsql.pipeline.environment import Environment",
            "environment.Environment is not for",
        ),
        ("dpsql.batch", "if TYPE_CHECKING:\n    from dpsql.pipeline.environment import Environment", "even as a type"),
        ("dpsql.batch", "from dpsql.pipeline.execute import run_rounds", "dpsql.pipeline.execute is not for"),
        (
            "dpsql.pipeline.track_units",
            "from dpsql.pipeline.environment import EnginePublicRows",
            "EnginePublicRows is not for",
        ),
        ("dpsql.sql.query", "import dpsql.engines.base", "dpsql.engines.base.Engine is not for"),
        ("dpsql.sql.query", "from dpsql.engines import base", "dpsql.engines.base.Engine is not for"),
        ("dpsql.relation.units", "from dpsql.engines.duckdb.engine import DuckDBEngine", "duckdb.engine is not for"),
        (
            "dpsql.sql.query",
            "from dpsql.engines.post_processor import PostProcessor",
            "dpsql.engines.post_processor is not for",
        ),
        ("dpsql.pipeline.calibrate_noise", "from dpsql.accounting.ledger.ledger import Ledger", "ledger is not for"),
        (
            "dpsql.pipeline.target_accuracy",
            "def f():\n    from dpsql.accounting.ledger.journal import Answers",
            "Answers is not for",
        ),
        ("dpsql.pipeline", "from dpsql.pipeline.parse_sql import Parsed", "it may know only no stage"),
        ("dpsql.session", "import duckdb", "duckdb is for"),
        ("dpsql.pipeline.plan_query", "def f():\n    from duckdb import connect", "duckdb is for"),
        ("dpsql.pipeline.add_noise", "from sqlglot import exp", "sqlglot is for"),
        ("dpsql.mechanisms.laplace", "import os\nx = os.urandom(8)", "line 2: os.urandom is for dpsql.sampling"),
        ("dpsql.mechanisms.laplace", "from os import urandom", "os.urandom is for"),
        ("dpsql.mechanisms.laplace", "import secrets", "secrets is for"),
        ("dpsql.mechanisms.laplace", "from cryptography.hazmat.primitives import ciphers", "cryptography is for"),
        ("dpsql.sampling.bernoulli", "import random", "random is for dpsql.synthetic"),
        ("dpsql.sampling.bernoulli", "from random import random", "random is for dpsql.synthetic"),
        ("dpsql.sampling.bernoulli", "import numpy as np\nrng = np.random.default_rng()", "numpy.random is for nobody"),
        ("dpsql.sampling.bernoulli", "from numpy import random", "numpy.random is for nobody"),
        ("dpsql.sampling.bernoulli", "from numpy.random import default_rng", "numpy.random is for nobody"),
        ("dpsql.result", "import pandas as pd", "import pandas inside"),
        ("dpsql.result", "try:\n    import polars\nexcept ImportError:\n    pass", "import polars inside"),
        ("dpsql.result", "class A:\n    from pyarrow import Table", "import pyarrow inside"),
        ("dpsql.result", "cache = {}", "cache is state"),
        ("dpsql.result", "_seen: set[str] = set()", "_seen is state"),
        ("dpsql.result", "found = collections.defaultdict(list)", "found is state"),
        ("dpsql.result", "def f():\n    global total\n    total = 1", "line 2: global state"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str, complaint: str) -> None:
    found = violations(module, source)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dpsql", "from dpsql.connection import connect\n__all__ = ['connect']"),
        ("dpsql.pipeline.stages", "from dpsql.pipeline import parse_sql, post_process"),
        ("dpsql.pipeline.plan_query", "from dpsql.pipeline.infer_sensitivity import Measured\nfrom sqlglot import exp"),
        ("dpsql.pipeline.plan_query", "from dpsql.pipeline.environment import PublicEnvironment"),
        ("dpsql.pipeline.execute", "from dpsql.pipeline.add_noise import add_noise"),
        ("dpsql.pipeline.execute", "from dpsql.pipeline.environment import Environment"),
        ("dpsql.sql.adaptive", "from dpsql.engines.base import PostProcessingTable"),
        ("dpsql.engines.duckdb", "import duckdb\nfrom dpsql.schema.model import Schema"),
        ("dpsql.engines.base", "from dpsql.engines.duckdb import DuckDB"),
        ("dpsql.sampling.randomness", "import os\nimport hashlib\nkey = os.urandom(32)"),
        ("dpsql.accounting.budget", "import hashlib"),
        ("dpsql.connection", "if TYPE_CHECKING:\n    import duckdb\n    import pandas"),
        ("dpsql.result", "def df(self):\n    import pandas\n    return pandas.DataFrame()"),
        ("dpsql.pandas", "import pandas"),
        ("dpsql.result", "NAMES = ['a']\nkinds = ('a', 'b')\nlimit = 5\nPairs = dict[str, int]"),
        ("dpsql.session", "open_sessions = {}"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert violations(module, source) == []
