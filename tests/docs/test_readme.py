"""The README and the pages that teach are true: what they show runs, in order, and prints what is shown."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pandas as pd
import pytest
import yaml

import dpsql
from dpsql.cli.app import main
from dpsql.promise import Limits
from dpsql.schema import load_schema

ROOT = Path(__file__).parents[2]
TEACHING = ("tutorial", "owners", "growing", "choosing", "analysts", "frames", "local", "faq", "sqlalchemy")
PAGES = ["README.md", *(f"docs/{name}.md" for name in TEACHING)]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NOISY = doctest.register_optionflag("NOISY")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and text, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)


def shape(text: str) -> str:
    """The text with every number replaced: what noise cannot change."""
    return " ".join(re.sub(r"-?[\d,]*\d(\.\d+)?", "#", text).split())


class Checker(doctest.OutputChecker):
    """Noisy answers are compared by their shape."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        pair = (shape(want), shape(got)) if optionflags & NOISY else (want, got)
        return super().check_output(*pair, optionflags)


@pytest.mark.parametrize("name", PAGES)
def test_what_is_shown_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an empty folder: a page makes what it needs, or lets `dpsql demo --save` write it."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, text in blocks(name):
        match language:
            case "python":
                run_python(text, names)
            case "console":
                run_commands(text, monkeypatch, capsys)
            case "yaml" if Path("visits.yaml").exists():
                fill_in(text, Path("visits.yaml"))
            case "yaml" | "sh" | "text" | "sql":
                continue  # other tests look at these
            case _:
                pytest.fail(f"nothing checks {language}")
    for opened in names.values():
        if isinstance(opened, dpsql.Connection):
            opened.close()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, and shares all other packages with this one."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    EnvBuilder(symlinks=True).create(folder / "env")
    python = folder / "env" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    return python


OTHER_PAGES = (
    "docs/test_mechanisms_page.py",
    "docs/test_differences_page.py",
    "docs/test_docs.py::test_the_sql_can_be_asked",
    "cli/test_cli.py::test_the_help_is_that_of_the_docs",
    "test_notebook.py::test_the_page_can_be_followed",
)
"""Whose snippets have a test of their own."""


def follow(python: Path, tests: list[str], folder: Path) -> str:
    """What pytest says of these tests, run by that Python far from the repository."""
    where = subprocess.run([python, "-c", "import dpsql; print(dpsql.__file__)"], cwd=folder, capture_output=True)
    assert Path(where.stdout.decode().strip()).is_relative_to(python.parents[1])
    alone = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run([python, "-m", "pytest", *alone, *tests], cwd=folder, capture_output=True, text=True).stdout


def test_the_first_pages_can_be_followed_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    said = subprocess.run([installed.with_name("dpsql"), "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert said.stdout.startswith("dpsql ")
    ran = follow(installed, shown(PAGES[:2]), tmp_path)
    assert "2 passed" in ran, ran


@pytest.mark.long
def test_every_page_can_be_followed_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    ran = follow(installed, [*shown(PAGES), *(f"{ROOT}/tests/{name}" for name in OTHER_PAGES)], tmp_path)
    assert " passed in " in ran, ran
    assert "failed" not in ran, ran
    assert "error" not in ran, ran


def shown(pages: list[str]) -> list[str]:
    return [f"{__file__}::test_what_is_shown_runs[{name}]" for name in pages]


def run_python(text: str, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, "page", None, 0)
    for example in test.examples:
        example.options[NOISY] = example.source.startswith(("cur.", "df.dp.groupby")) or ".execute(" in example.source
    shown: list[str] = []
    doctest.DocTestRunner(Checker(), optionflags=OPTIONS).run(test, out=shown.append, clear_globs=False)
    names.update(test.globs)
    assert not shown, "".join(shown)


def run_commands(text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        program, *words = shlex.split(command)
        if program == "export":
            for word in words:
                monkeypatch.setenv(*word.split("="))
        else:
            with pytest.raises(SystemExit):
                main(words)
        assert shape("".join(capsys.readouterr())) == shape(shown), command


def fill_in(lines: str, schema: Path) -> None:
    """Each line replaces that of the same key, or stands behind the one before it if there is none."""
    written = schema.read_text().splitlines()
    place = 0
    for line in lines.splitlines():
        name = line.partition(":")[0]
        known = [number for number, old in enumerate(written) if old.startswith(f"{name}:")]
        place = known[0] if known else place + 1
        written[place : place + len(known)] = [line]
    schema.write_text("\n".join(written) + "\n")


def test_the_schema_that_owners_are_shown_is_one() -> None:
    *parts, rules = (text for language, text in blocks("docs/owners.md") if language == "yaml")
    assert list(load_schema(yaml.safe_load("".join(parts))).tables) == ["customers", "orders", "order_lines", "regions"]
    assert load_schema(yaml.safe_load(rules)).minimum_people


def test_what_owners_are_told_of_epsilon_is_what_is_promised() -> None:
    rows = re.findall(
        r"^\| ([\d.]+) \| × ([\d.,]+) \| ([\d.]+) % \| ([\d.]+) % \|$", page("docs/owners.md"), re.MULTILINE
    )
    assert len(rows) == 4
    for epsilon, *told in rows:
        limits = Limits(float(epsilon), 0.0)
        meant = (limits.factor, 100 * limits.most(0.01), 100 * limits.most(0.5))
        assert [float(number.replace(",", "")) for number in told] == pytest.approx(meant, rel=0.01)


def test_the_demo_runs_and_prints_the_answer_that_is_shown() -> None:
    ran = subprocess.run([sys.executable, ROOT / "examples" / "demo.py"], capture_output=True, text=True, check=True)
    assert "\x1b" not in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 100
    printed = {shape(line) for line in ran.stdout.splitlines()}
    answer, _benchmark = (text for language, text in blocks("README.md") if language == "text")
    assert {shape(line) for line in answer.splitlines()} <= printed


def test_the_figures_are_those_of_explain() -> None:
    schema = {
        "dataset": "figures",
        "contribution": {"max_groups": 5, "max_rows_per_group": 2},
        "tables": {
            "orders": {
                "unit": "person",
                "columns": {
                    "person": "integer",
                    "region": {"type": "text", "values": list("abcdefgh")},
                    "amount": {"type": "double", "bounds": [0, 500]},
                },
            }
        },
    }
    orders = pd.DataFrame({"person": [1], "region": ["a"], "amount": [1.0]})
    with dpsql.connect(orders, schema=schema, budget=1.0, delta=1e-6) as conn:
        sql = "SELECT region, COUNT(*), SUM(amount) FROM orders GROUP BY region"
        explained = conn.explain(sql, epsilon=1.0, diagnose=False)
    count, centred = (measure.std * measure.quantum for measure in explained.releases[0].measures)
    total = (centred**2 + (250 * count) ** 2) ** 0.5
    per_count, per_sum = re.findall(
        r"deviation of ([\d.]+) per count and ([\d,]+) per sum", page("README.md").replace("\n", " ")
    )[0]
    assert float(per_count) == pytest.approx(count, rel=0.002)
    assert float(per_sum.replace(",", "")) == pytest.approx(total, rel=0.002)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page("README.md"))
    assert links
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not missing


def test_what_make_is_said_to_do_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", page("README.md"))) <= targets


def test_times_are_those_of_the_last_benchmark() -> None:
    """The README quotes benchmarks/RESULTS.md, which the benchmarks write."""
    quoted = page("README.md").partition("**How fast.**")[2].partition("## Where to go next")[0]
    results = page("benchmarks/RESULTS.md")
    lines = re.findall(r"^.* x .* (?:met|MISSED)$", quoted, re.MULTILINE)
    assert len(lines) == 4
    assert not set(lines) - set(results.splitlines())
    with_delta = re.search(r"it takes ([\d.]+ s)", quoted)
    assert with_delta is not None
    assert re.search(rf"^dpsql with a delta +{re.escape(with_delta[1])}$", results, re.MULTILINE)


def test_every_benchmark_on_duckdb_has_its_results() -> None:
    """A run of some of them alone leaves no gap."""
    on_servers = re.search(r"^ON_SERVERS := (.*)$", page("Makefile"), re.MULTILINE)
    assert on_servers is not None
    benches = {path.stem for path in (ROOT / "benchmarks").glob("bench_*.py")} - {
        Path(name).stem for name in on_servers[1].split()
    }
    assert benches <= set(re.findall(r"^## (\w+)$", page("benchmarks/RESULTS.md"), re.MULTILINE))
