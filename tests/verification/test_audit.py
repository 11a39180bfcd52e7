"""`dpsql audit`: what holds passes, and every planted bug is found by the same code, in seconds.

The schema is small, and its people are made up; no data is read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.accounting.events import Free
from dpsql.cli.app import main
from dpsql.schema import load_schema
from dpsql.synthetic import made_up_worlds, people_of
from dpsql.verification.audit import Audited, Auditor, certain_epsilon, default_questions, lowest

SCHEMA = """
dataset: clinic
contribution: {max_groups: 2, max_rows_per_group: 2}
tables:
  patients:
    unit: id
    unique: true
    columns:
      id: integer
      age: {type: integer, bounds: [0, 120]}
      town: {type: text, values: [Ulm, Bonn, Kiel, Hof, Jena, Trier, Gera, Celle, Verden, Husum]}
  visits:
    unit: patient
    columns:
      patient: integer
      number: text
      ward: {type: text, values: [A, B, C, D]}
      cost: {type: double, bounds: [0, 500]}
      note: text
  bills:
    unit: {through: visit, to: visits.number}
    columns: {visit: text, amount: {type: "decimal(10, 2)", bounds: [0, 90]}}
  towns: {public: true, columns: {name: {type: text, values: [Ulm, Bonn, Kiel]}}}
"""
COUNT = "SELECT COUNT(*) FROM visits"
SUM = "SELECT SUM(cost) FROM visits"
BY_WARD = "SELECT ward, COUNT(*) FROM visits GROUP BY ward"
BY_NOTE = "SELECT note, COUNT(*) FROM visits GROUP BY note"
LAPLACE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(mechanism = 'laplace')"
MODE = "SELECT MODE(town) FROM patients"


@pytest.fixture(scope="module")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Auditor:
    file = tmp_path_factory.mktemp("audit") / "clinic.yaml"
    file.write_text(SCHEMA, encoding="utf-8")
    schema = load_schema(file)
    return Auditor(schema, made_up_worlds(schema, seed=0), runs=2000)


def one(auditor: Auditor, sql: str, **changed: Any) -> Audited:
    (found,) = replace(auditor, **changed).audit([sql])
    return found


# -- what holds passes -----------------------------------------------------------------------------------------------


def check(found: list[Audited]) -> None:
    assert [part for part in found if part.broken or part.refused] == []
    assert all(part.compared > 5 for part in found)


def test_questions_pass(auditor: Auditor) -> None:
    check(auditor.audit([COUNT, SUM, BY_WARD, BY_NOTE, MODE, "SELECT COUNT(*), SUM(amount) FROM bills"]))


@pytest.mark.long
def test_every_question_of_a_schema_passes(auditor: Auditor) -> None:
    check(replace(auditor, runs=20_000).audit(default_questions(auditor.schema)))


def test_every_private_table_is_asked_about(auditor: Auditor) -> None:
    asked = {sql.split("FROM ")[1].split()[0].strip('"') for sql in default_questions(auditor.schema)}
    assert asked == {"patients", "visits", "bills"}


def test_a_count_loses_nearly_all_that_it_claims(auditor: Auditor) -> None:
    """So the audit can see: it is not silent because it is blind."""
    found = one(auditor, COUNT, runs=20_000)
    assert found.claimed is not None
    assert 0.7 * found.claimed.epsilon < found.certain <= found.claimed.epsilon


def test_a_question_that_is_refused_releases_nothing(auditor: Auditor) -> None:
    found = one(auditor, "SELECT * FROM visits")
    assert found.refused
    assert not found.broken


def test_worlds_hold_what_is_declared_and_what_is_not(auditor: Auditor) -> None:
    _, adversarial, conforming = (world.whole.raw for world in auditor.worlds)
    outside = "SELECT COUNT(*) FROM visits WHERE NOT cost BETWEEN 0 AND 500"
    assert adversarial.execute(outside).fetchall() > [(0,)]
    assert conforming.execute(outside).fetchall() == [(0,)]
    reached = "SELECT COUNT(*) FROM bills JOIN visits ON visit = number"
    assert conforming.execute(reached).fetchall() == [(24,)]
    (first, *_) = auditor.worlds[2].neighbours
    assert first.raw.execute(reached).fetchall() < [(24,)]


def test_a_person_is_somebody_with_rows() -> None:
    schema = load_schema({"tables": {"t": {"unit": "u", "columns": {"u": "text"}}}})
    assert people_of(schema, {"t": [{"u": "a"}, {"u": None}, {"u": "a"}, {"u": "b"}]}) == ["a", "b"]


@pytest.mark.parametrize(("found", "runs", "tail"), [(90, 100, 0.025), (0, 10, 0.1), (1, 7, 1e-6), (5000, 5000, 1e-6)])
def test_clopper_pearson(found: int, runs: int, tail: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert lowest(found, runs, tail) == pytest.approx(stats.beta.ppf(tail, found, runs - found + 1) if found else 0)


def test_equal_inputs_lose_nothing() -> None:
    answers = np.arange(4000) % 7
    assert certain_epsilon(answers, answers, 0.0) <= 0


# -- planted bugs ----------------------------------------------------------------------------------------------------


def halve_the_noise(patch: pytest.MonkeyPatch) -> None:
    from dpsql.mechanisms.laplace import LaplaceNoise

    sample = LaplaceNoise.sample
    patch.setattr(LaplaceNoise, "sample", lambda self, n: sample(LaplaceNoise(self.scale / 2), n))


def leave_out_the_clamps(patch: pytest.MonkeyPatch) -> None:
    """Values are clamped where they are read and where they are summed: both have to go."""
    from dpsql.aggregates import measure
    from dpsql.engine_sql.tree import Field
    from dpsql.expressions.casts import in_fixed_point
    from dpsql.relation import scan_sql

    def unclamped(value: Any, kind: Any, quantum: Fraction, low: int, high: int, into: Any) -> Any:
        return in_fixed_point(value, kind, quantum, -(2**62), 2**62)

    patch.setattr(measure, "in_fixed_point", unclamped)
    patch.setattr(scan_sql, "_declared", lambda column, facts: Field(column, scan_sql.ROWS))


def skip_the_group_bound(patch: pytest.MonkeyPatch) -> None:
    from dpsql.aggregates.release import Release

    patch.setattr(Release, "ranked", False)


def show_every_group(patch: pytest.MonkeyPatch) -> None:
    from dpsql.mechanisms.additive import Noise

    patch.setattr(Noise, "threshold", lambda self, groups, delta: 1)


def do_not_select(patch: pytest.MonkeyPatch) -> None:
    from dpsql.pipeline.calibrate_noise import CalibratedRelease

    patch.setattr(
        CalibratedRelease, "thresholds", property(lambda release: {}, lambda release, thresholds: None), raising=False
    )


def halve_the_score(patch: pytest.MonkeyPatch) -> None:
    from dpsql.mechanisms.permute_and_flip import MostFrequent

    patch.setattr(MostFrequent, "rate", property(lambda self: 2 * self.epsilon / self.per_value))


def do_not_charge_delta(patch: pytest.MonkeyPatch) -> None:
    from dpsql.pipeline import calibrate_noise

    patch.setattr(calibrate_noise, "ApproximateRelease", lambda epsilon, delta: Free())


def count_every_row(patch: pytest.MonkeyPatch) -> None:
    from dpsql.aggregates.measure import CountRows
    from dpsql.engine_sql.tree import Field

    patch.setattr(CountRows, "bounded", lambda self, name, rows: Field(name))


PLANTED = [
    (halve_the_noise, COUNT, {"runs": 20_000}),
    (leave_out_the_clamps, SUM, {}),
    (skip_the_group_bound, BY_WARD, {}),
    (count_every_row, COUNT, {}),
    (show_every_group, BY_NOTE, {"delta": 0.001}),
    (do_not_select, BY_NOTE, {}),
    pytest.param(halve_the_score, MODE, {"runs": 100_000}, marks=pytest.mark.long),
    (do_not_charge_delta, BY_NOTE.replace("SELECT", LAPLACE), {"delta": 0.2, "runs": 10_000}),
]


@pytest.mark.parametrize(("plant", "sql", "options"), PLANTED, ids=lambda part: getattr(part, "__name__", ""))
def test_a_planted_bug_is_found(
    plant: Any, sql: str, options: dict[str, Any], auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert one(auditor, sql, **options).broken


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    (tmp_path / "clinic.yaml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path / "clinic.yaml"


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["audit", *arguments])
    return int(ended.value.code or 0)


def test_the_report_for_people(schema_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(str(schema_file), COUNT, "SELECT * FROM visits", "--runs", "2000") == 0
    shown = capsys.readouterr().out
    assert "as claimed" in shown
    assert "refused: " in shown


def test_the_report_for_programs(
    schema_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A violation: the report stands on stdout all the same, and the exit code says it."""
    count_every_row(monkeypatch)
    assert command(str(schema_file), COUNT, "--json", "--runs", "2000") == 1
    shown = capsys.readouterr()
    (part,) = json.loads(shown.out)["audited"]
    assert part["broken"]
    assert "is claimed" in part["violations"][0]
    assert "break a claim" in json.loads(shown.err)["problem"]
