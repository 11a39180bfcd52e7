"""Writes benchmarks/RESULTS.md: what the benchmarks printed when they last ran, and on what.

python benchmarks/write_results.py
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
    parts = [HEAD.format(os.cpu_count(), platform.system(), platform.python_version(), duckdb.__version__)]
    for path in sorted(PRINTED.glob("*.txt")):
        source = next((ROOT / "benchmarks").glob(f"{path.stem}.py")).read_text(encoding="utf-8")
        title = source.removeprefix('"""').partition("\n\n")[0].replace("\n", " ")
        parts.append(f"## {path.stem}\n\n{title}\n\n```text\n{path.read_text(encoding='utf-8').rstrip()}\n```\n")
    RESULTS.write_text("\n".join(parts), encoding="utf-8")
    print(RESULTS.relative_to(ROOT))


if __name__ == "__main__":
    main()
