"""`dpsql randomize`: files of any size, all or nothing, and an entry of the schema that fits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

import dpsql
from dpsql.cli import output
from dpsql.cli.app import main
from dpsql.local import column

PEOPLE = 3_000
ANSWERS = ["never", "some", "daily"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = np.random.default_rng(4)
    survey = pd.DataFrame(
        {
            "id": np.arange(PEOPLE),
            "smoker": generator.random(PEOPLE) < 0.3,
            "drink": generator.choice(ANSWERS, PEOPLE),
            "sons": generator.integers(0, 3, PEOPLE).astype("int8"),
            "pay": generator.random(PEOPLE),
        }
    )
    survey.to_parquet(tmp_path / "survey.parquet", row_group_size=700)
    survey.assign(note='said "a, b"', smoker=survey.smoker.map({True: "yes", False: "no"})).to_csv(
        tmp_path / "survey.csv", index=False
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(column, "ROWS", 500)
    return tmp_path


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["randomize", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_a_file_becomes_reports_and_a_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("survey.parquet", "--column", "smoker", "--epsilon", 1, "--out", "reports.parquet") == 0
    said = capsys.readouterr().out
    assert said.startswith("3,000 answers randomised: reports.parquet\n")
    entry = yaml.safe_load(said.splitlines()[-1])
    before, after = pd.read_parquet("survey.parquet"), pd.read_parquet("reports.parquet")
    pd.testing.assert_frame_equal(before.drop(columns="smoker"), after.drop(columns="smoker"))
    assert (before.smoker == after.smoker).mean() == pytest.approx(0.731, abs=0.04)
    conn = dpsql.connect(
        "reports.parquet",
        schema={"tables": {"reports": {"unit": "id", "columns": {"id": "integer", **entry}}}},
        budget=1.0,
        ledger=":memory:",
    )
    frame = conn.execute("SELECT COUNT(*) AS n FROM reports WHERE smoker").intervals()
    assert abs(frame.n[0] - before.smoker.sum()) < 2.5 * (frame.n_high - frame.n_low)[0]


@pytest.mark.parametrize(
    ("file", "out", "column", "options", "stored"),
    [
        ("survey.parquet", "r.parquet", "drink", ["--values", "never,some, daily"], pa.large_string()),
        ("survey.parquet", "r.parquet", "drink", ["--values", "never,some,daily", "--mechanism", "oue"], pa.int64()),
        ("survey.parquet", "r.parquet", "sons", ["--values", "0,1,2"], pa.int8()),
        ("survey.csv", "r.csv", "smoker", ["--values", "no,yes"], None),
        ("survey.csv", "r.parquet", "smoker", ["--values", "no,yes"], pa.string()),
    ],
)
def test_columns_and_files_of_many_kinds(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    out: str,
    column: str,
    options: list[str],
    stored: pa.DataType | None,
) -> None:
    assert run(file, "--column", column, "--epsilon", 2, "--out", out, *options, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == PEOPLE
    dpsql.Schema.model_validate(
        {"tables": {"t": {"unit": "id", "columns": {"id": "integer", column: document["schema"]}}}}
    )
    if stored is not None:
        assert parquet.read_schema(out).field(column).type in (stored, pa.string())
    else:
        after = pd.read_csv(out)
        assert after.note.unique().tolist() == ['said "a, b"']
        assert set(after.smoker) == {"yes", "no"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["survey.parquet", "--column", "smokes", "--epsilon", 1], 'no column "smokes"'),
        (["survey.parquet", "--column", "drink", "--epsilon", 1], "must not be taken from the data"),
        (["survey.parquet", "--column", "drink", "--epsilon", 1, "--values", "never,some"], "outside the domain"),
        (["survey.parquet", "--column", "sons", "--epsilon", 1, "--values", "one,two"], "holds integers"),
        (["survey.parquet", "--column", "pay", "--epsilon", 1, "--values", "1,2"], "cannot be randomised"),
        (["survey.parquet", "--column", "smoker", "--epsilon", 0], "above 0"),
        (["survey.parquet", "--column", "smoker", "--epsilon", "nan"], "epsilon must be a number"),
        (["survey.parquet", "--column", "smoker", "--epsilon", 1, "--mechanism", "coins"], "unknown mechanism"),
        (["nowhere.parquet", "--column", "smoker", "--epsilon", 1], "there is no file"),
        (["survey.xlsx", "--column", "smoker", "--epsilon", 1], "neither .parquet nor .csv"),
    ],
)
def test_what_fails_leaves_nothing_behind(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[object], problem: str
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(*arguments, "--out", "r.parquet") == 1
    said = capsys.readouterr().err
    assert problem in said
    assert "daily" not in said.replace("--values never,sometimes,daily", "")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_that_is_there_is_not_lost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("survey.parquet", "--column", "smoker", "--epsilon", 1, "--out", "survey.parquet") == 1
    assert "would be overwritten" in capsys.readouterr().err


def test_the_bar_counts_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part by part: no more than 500 rows at once."""
    parts: list[int] = []
    monkeypatch.setattr(column, "count_rows", lambda path: PEOPLE)
    with output.counting_rows("randomising", PEOPLE) as done:
        column.randomize_file(
            folder / "survey.parquet",
            folder / "r.parquet",
            "smoker",
            1,
            "kary",
            None,
            lambda rows: (parts.append(rows), done(rows))[1],
        )
    assert sum(parts) == PEOPLE
    assert max(parts) <= 500
