"""The notebooks of examples/ run, each in a directory of its own, and show what they are about."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SHOWN = {
    "1_first_answers": ("± ", "<table", "What the query would do", "of the intervals hold the truth"),
    "2_a_first_schema": ("wrote visits.yaml", "visits.yaml is valid", "hint: write  bounds: [0, 300]", "intact"),
    "3_medians_modes_joins": ("ranks at 95 %", "commonest_age", 'mechanism="smooth"', "([(None,)], True, "),
    "4_frames_and_plots": ("<svg", "± ", 'did you mean "minutes"?', "spent"),
    "5_promise_and_budget": ("odds change by at most", "more questions like the last one", "is left"),
    "6_local_privacy": ("said yes: ", "both errors", "AVG cannot be estimated", "<svg", "in all"),
}


def test_there_are_six() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_answers(path: Path) -> None:
    """Answers are drawn anew each time: kept, they would only be noise in a diff."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    cells = importlib.import_module("run_notebooks").run(path)
    shown = "\n".join(str(text) for cell in cells for output in cell.outputs for text in output.values())
    assert [words for words in SHOWN[path.stem] if words not in shown] == []
