"""What mkdocs needs to make a site of this project: pages from files outside docs/, and links that lead to them.

README.md is the home page. CHANGELOG.md, CONTRIBUTING.md and the schema are pages as they are; the notebooks of
examples/ are run, and shown with their answers. Files keep the links that work in the repository; here they are turned
into those of the site.
"""

from __future__ import annotations

import html
import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from run_notebooks import Cell, run  # noqa: E402 - it lies beside the examples

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
AS_THEY_ARE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
SCHEMA = "schemas/shop.yaml"
PAGES = {
    "README.md": "index.md",
    SCHEMA: f"{SCHEMA}.md",
    **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in NOTEBOOKS},
}
"""Where a file of the repository is found in the site, unless it is in docs/ or keeps its name."""
LIGHT_PICTURE = re.compile(r"!\[([^]]*)\]\(([^)]*)-light\.png\)")
TWINS = r"![\1](\2-light.png#only-light)![\1](\2-dark.png#only-dark)"
"""The theme shows the one that suits."""
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])")
"""Without spaces: Filter[a > 1](Scan orders) is none."""


def on_config(config: MkDocsConfig) -> None:
    for section in config.nav or []:
        if "Proofs" in section:
            section["Proofs"] += [f"proofs/{path.name}" for path in sorted((ROOT / "docs/proofs").glob("*.md"))]
        if "Examples" in section:
            section["Examples"] = [PAGES[f"examples/{path.name}"] for path in NOTEBOOKS]


def on_files(files: Files, config: MkDocsConfig) -> None:
    made = {name: (ROOT / name).read_text(encoding="utf-8") for name in AS_THEY_ARE}
    made[SCHEMA] = f"# A schema\n\n```yaml\n{(ROOT / SCHEMA).read_text(encoding='utf-8')}```\n"
    made |= {f"examples/{path.name}": _written(run(path)) for path in NOTEBOOKS}
    for name, text in made.items():
        files.append(File.generated(config, PAGES.get(name, name), content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    source = {target: name for name, target in PAGES.items()}.get(here, here if here in AS_THEY_ARE else f"docs/{here}")
    return LINK.sub(lambda link: _link(link[1], source, here), LIGHT_PICTURE.sub(TWINS, markdown))


def _link(link: str, source: str, page: str) -> str:
    """docs/sql.md, as README.md links it, is sql.md for index.md."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return posixpath.relpath(PAGES.get(path, path.removeprefix("docs/")), posixpath.dirname(page) or ".")


def _written(cells: list[Cell]) -> str:
    """A notebook as Markdown."""
    return "\n\n".join(part for cell in cells for part in _cell(cell))


def _cell(cell: Cell) -> list[str]:
    if cell.kind == "markdown":
        return [cell.source]
    language = "sql" if cell.source.startswith("%%dpsql") else "python"
    return [f"```{language}\n{cell.source}\n```", *map(_output, cell.outputs)]


def _output(data: dict[str, Any]) -> str:
    """The richest form that needs no script."""
    if "text/html" in data:
        return f'<div class="output">{data["text/html"]}</div>'
    if "image/svg+xml" in data:
        drawn = data["image/svg+xml"]
        return f'<div class="output">{drawn[drawn.index("<svg") :]}</div>'
    return f'<pre class="output">{html.escape(data["text/plain"])}</pre>'
