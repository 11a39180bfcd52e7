"""Writes benchmarks/RESULTS.md: what the benchmarks printed when they last ran, and on what.

    python benchmarks/write_results.py

What was not run again stays as it is.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import duckdb

ROOT = Path(__file__).parents[1]
PRINTED = ROOT / "build" / "bench"
RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = """# Results of the benchmarks

Written by `make bench` and `make bench-peers`: what each benchmark printed when it last ran. Ratios compare times of
one run, taken in turn; the times themselves depend on the machine.

{} processors, {}, Python {}, DuckDB {}.
"""


def main() -> None:
    before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    sections = {part.partition("\n")[0]: part for part in before.split("\n## ")[1:]}
    for path in PRINTED.glob("*.txt"):
        source = (ROOT / "benchmarks" / f"{path.stem}.py").read_text(encoding="utf-8")
        title = source.removeprefix('"""').partition("\n\n")[0].replace("\n", " ")
        printed = path.read_text(encoding="utf-8").rstrip()
        sections[path.stem] = f"{path.stem}\n\n{title}\n\n```text\n{printed}\n```\n"
    head = HEAD.format(os.cpu_count(), platform.system(), platform.python_version(), duckdb.__version__)
    RESULTS.write_text("\n## ".join([head, *map(sections.__getitem__, sorted(sections))]), encoding="utf-8")
    print(RESULTS.relative_to(ROOT))


if __name__ == "__main__":
    main()
