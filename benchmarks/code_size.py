"""How large the code is, and how far a question walks through it: python benchmarks/code_size.py

The figures that tests/whole/test_architecture.py keeps from growing, and the files that the reference query visits.
"""

from __future__ import annotations

import ast
import inspect
import statistics
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
QUERY = "SELECT region, COUNT(*), SUM(amount) FROM orders GROUP BY region"
SMALL = 60
"""Lines."""


def modules() -> dict[str, Path]:
    """All but `__init__`, by name."""
    return {name_of(path): path for path in sorted((ROOT / "dpsql").rglob("*.py")) if path.stem != "__init__"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def lines_of(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def nodes(kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[tuple[str, Any]]:
    """Each such node of the code, with the name of its module."""
    for path in sorted((ROOT / "dpsql").rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, kinds):
                yield name_of(path), node


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))


def importers() -> dict[str, set[str]]:
    """Which modules import each."""
    found: dict[str, set[str]] = {name: set() for name in modules()}
    for module, node in nodes(ast.ImportFrom):
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
            if name in found:
                found[name].add(module)
    return found


def small_with_one_importer() -> list[str]:
    return [name for name, by in importers().items() if lines_of(modules()[name]) < SMALL and len(by) == 1]


def classes_with_one_name() -> dict[str, list[str]]:
    """Names of several classes, and where these are."""
    found = defaultdict(list)
    for module, node in nodes(ast.ClassDef):
        found[node.name].append(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def import_share() -> float:
    """Of all lines, those that import."""
    imports = sum(node.end_lineno - node.lineno + 1 for _, node in nodes((ast.Import, ast.ImportFrom)))
    return imports / sum(lines_of(path) for path in (ROOT / "dpsql").rglob("*.py"))


def longest_functions(limit: int) -> list[str]:
    """Functions whose code is longer than so many lines; docstrings do not count."""
    found = []
    for module, node in nodes((ast.FunctionDef, ast.AsyncFunctionDef)):
        docstring = node.body[0] if ast.get_docstring(node) is not None else None
        spoken = 0 if docstring is None else docstring.end_lineno - docstring.lineno + 1
        if node.end_lineno - node.lineno + 1 - spoken > limit:
            found.append(f"{module}.{node.name}")
    return found


def undocumented() -> list[str]:
    """Public methods of public classes, and public functions, without a docstring; those of pydantic are not ours."""
    import dpsql

    found = []
    for name in dpsql.__all__:
        thing = getattr(dpsql, name)
        methods = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else ()
        own = [(name, thing)] if callable(thing) else []
        for spoken, part in (*own, *((f"{name}.{method}", part) for method, part in methods if method[0] != "_")):
            is_ours = part.__module__.startswith("dpsql") and part.__qualname__.split(".")[-1] == spoken.split(".")[-1]
            if is_ours and not inspect.getdoc(part):
                found.append(spoken)
    return found


def visited() -> dict[str, int]:
    """How many files of dpsql run for the reference query: in all, and in two stages by themselves."""
    import duckdb

    import dpsql
    from dpsql.pipeline import stages

    with duckdb.connect() as raw:
        raw.execute("CREATE TABLE orders (customer_id BIGINT, region VARCHAR, amount DOUBLE)")
        raw.execute("INSERT INTO orders SELECT range % 100, 'north', 5 FROM range(1000)")
        columns = {
            "customer_id": "integer",
            "region": {"type": "text", "values": ["north", "south"]},
            "amount": {"type": "double", "bounds": [0, 500]},
        }
        schema = {"tables": {"orders": {"unit": "customer_id", "columns": columns}}}
        with dpsql.connect(raw, schema=schema, budget=10, delta=1e-6, ledger=":memory:") as conn:
            conn.execute(QUERY, epsilon=0.5)  # what is imported first runs here
            request = conn.session.request(QUERY, None, epsilon=1)
            files: dict[str, set[str]] = defaultdict(set)
            value: Any = request
            public = conn.session.environment.public()
            for stage in stages.FREE:
                with _files_that_run(files[stage.__name__]):
                    value = stage(value, public)
            with _files_that_run(files["all"]):
                conn.execute(QUERY, epsilon=1.5)
    return {name: len(files[name]) for name in ("all", "resolve_names", "calibrate_noise")}


class _files_that_run:  # noqa: N801 - a context manager
    def __init__(self, files: set[str]) -> None:
        self.files = files

    def __enter__(self) -> None:
        folder = str(ROOT / "dpsql")

        def seen(frame: Any, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(folder):
                self.files.add(frame.f_code.co_filename)

        sys.setprofile(seen)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def main() -> None:
    from dpsql.aggregates.strategies import STRATEGIES

    sizes = [lines_of(path) for path in modules().values()]
    run = visited()
    print(f"modules                                 {len(sizes)}")
    print(f"lines                                   {sum(sizes)}")
    print(f"median module, lines                    {statistics.median(sizes):.0f}")
    print(f"modules with one importer               {sum(len(by) == 1 for by in importers().values())}")
    print(f"modules below {SMALL} lines                  {sum(size < SMALL for size in sizes)}")
    print(f"import lines                            {import_share():.1%}")
    print(f"files that the reference query visits   {run['all']}")
    print(f"  in resolve_names, in calibrate_noise  {run['resolve_names']}, {run['calibrate_noise']}")
    print(f"strategies of additive releases         {len(STRATEGIES)}")
    print(f"class names with several meanings       {len(classes_with_one_name())}")
    print(f"public names without a docstring        {len(undocumented())}")


if __name__ == "__main__":
    main()
