"""The README is true: its Python runs, its answer is the demo's, its figures are explain()'s, its links lead on."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.cli.app import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NOISY = doctest.register_optionflag("NOISY")


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    assert {name for name, _ in BLOCKS} == {"sh", "text", "python", "console", "yaml"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the README's Python expects: shop.duckdb and schemas/."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "schemas", folder / "schemas")
    subprocess.run([sys.executable, ROOT / "examples" / "shop_data.py"], cwd=folder, check=True, capture_output=True)
    return folder


def shape(text: str) -> str:
    """The text with every number replaced: what noise cannot change."""
    return " ".join(re.sub(r"-?[\d,]*\d(\.\d+)?", "#", text).split())


class Checker(doctest.OutputChecker):
    """Noisy answers are compared by their shape."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        pair = (shape(want), shape(got)) if optionflags & NOISY else (want, got)
        return super().check_output(*pair, optionflags)


def test_the_python_runs_as_shown(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks("python")), {}, "README.md", "README.md", 0)
    for example in test.examples:
        example.options[NOISY] = example.source.startswith("cur.")
    shown: list[str] = []
    doctest.DocTestRunner(Checker(), optionflags=OPTIONS).run(test, out=shown.append)
    assert not shown, "".join(shown)
    assert (shop / "shop.duckdb.ledger").exists()


def test_the_demo_runs_and_prints_the_answer_that_is_shown() -> None:
    ran = subprocess.run([sys.executable, ROOT / "examples" / "demo.py"], capture_output=True, text=True, check=True)
    assert "\x1b" not in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 100
    printed = {shape(line) for line in ran.stdout.splitlines()}
    (answer,) = blocks("text")
    assert {shape(line) for line in answer.splitlines()} <= printed


def test_the_commands_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a CSV file to a private answer: commands are run, and what is to be filled in is filled in between."""
    monkeypatch.chdir(tmp_path)
    people = "".join(f"p{i},{('Oslo', 'Rome')[i % 2]},{i % 101}\n" for i in range(2000))
    Path("visits.csv").write_text(f"person,town,spent\n{people}")
    for language, text in BLOCKS:
        if language == "yaml":
            fill_in(text, Path("visits.yaml"))
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
    for line in lines.splitlines():
        name = line.partition(":")[0]
        schema.write_text(re.sub(rf"^{name}:.*$", line, schema.read_text(), flags=re.MULTILINE))


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
    database = duckdb.connect()
    database.execute("CREATE TABLE orders (person INTEGER, region VARCHAR, amount DOUBLE)")
    with dpsql.connect(database, schema=schema, epsilon=1.0, delta=1e-6) as conn:
        explained = conn.explain("SELECT region, COUNT(*), SUM(amount) FROM orders GROUP BY region", epsilon=1.0)
    count, centred = (measure.std * measure.quantum for measure in explained.releases[0].measures)
    total = (centred**2 + (250 * count) ** 2) ** 0.5
    per_count, per_sum = re.findall(r"deviation of ([\d.]+) per count and ([\d ]+) per sum", README.replace("\n", " "))[
        0
    ]
    assert float(per_count) == pytest.approx(count, rel=0.002)
    assert float(per_sum.replace(" ", "")) == pytest.approx(total, rel=0.002)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert links
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not missing


def test_the_two_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", "".join(blocks("sh")))) <= targets
