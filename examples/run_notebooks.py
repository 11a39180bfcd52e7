"""Runs notebooks without a browser, and gives what its cells show.

    python examples/run_notebooks.py examples/1_first_answers.ipynb

A notebook is run by IPython in a directory of its own, with the shop's schema where the notebook looks for it. An error
in a cell ends the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.displayhook import CapturingDisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from IPython.utils.capture import capture_output
from traitlets.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Cell:
    kind: str
    source: str
    outputs: tuple[dict[str, Any], ...] = ()
    """What is shown, by media type, in order."""


def run(path: Path) -> list[Cell]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    with _fresh_shell() as shell, _fresh_folder():
        return [_ran(cell["cell_type"], "".join(cell["source"]), shell) for cell in cells]


def _ran(kind: str, source: str, shell: InteractiveShell) -> Cell:
    if kind != "code":
        return Cell(kind, source)
    results: list[dict[str, Any]] = []
    shell.display_trap.hook = CapturingDisplayHook(shell, results)
    with capture_output() as shown:
        done = shell.run_cell(source)
    done.raise_error()
    printed = [{"text/plain": shown.stdout}] if shown.stdout else []
    return Cell(kind, source, (*printed, *(output["data"] for output in results)))


@contextlib.contextmanager
def _fresh_shell() -> Iterator[InteractiveShell]:
    # Else what was typed is written down by a thread that nobody ends, and that keeps all that a notebook has made.
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}), colors="nocolor")
    select_figure_formats(shell, {"svg"}, bbox_inches="tight")
    try:
        yield shell
    finally:
        shell.restore_sys_module_state()
        InteractiveShell.clear_instance()


@contextlib.contextmanager
def _fresh_folder() -> Iterator[None]:
    """An examples/ beside a schemas/; commands are those of this Python, and print plain text."""
    before = dict(os.environ)
    commands = os.pathsep.join((str(Path(sys.executable).parent), before["PATH"]))
    os.environ.update(PATH=commands, TTY_COMPATIBLE="0", COLUMNS="100")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "schemas", Path(folder) / "schemas")
        examples = Path(folder) / "examples"
        examples.mkdir()
        try:
            with contextlib.chdir(examples):
                yield
        finally:
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for cell in run(Path(name).absolute()):
            print(cell.source, *(output.get("text/plain", "") for output in cell.outputs), sep="\n", end="\n\n")
