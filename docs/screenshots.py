"""Takes the pictures in docs/images: what a notebook and a console show, in light and dark, by a headless Chromium.

    python docs/screenshots.py

Noise is drawn anew each time, so the numbers differ from picture to picture; the shop is that of examples/shop_data.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from shop_data import make_shop  # noqa: E402 - it lies beside the examples

import dpsql  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SCHEMA = ROOT / "schemas" / "shop.yaml"
BY_REGION = """\
SELECT region, COUNT(*) AS customers, AVG(age) AS avg_age, SUM(age) AS years
FROM customers GROUP BY region ORDER BY customers DESC"""
BY_PRODUCT = "SELECT product, COUNT(*) AS lines FROM order_lines GROUP BY product ORDER BY lines DESC LIMIT 12"
MONTHLY = "SELECT DATE_TRUNC('month', day) AS month, COUNT(*) AS orders FROM orders GROUP BY month"
OTHERS = (
    ("SELECT COUNT(*) FROM customers", 0.1),
    ("SELECT COUNT(*), AVG(amount) FROM orders", 0.3),
    ("SELECT age // 10 AS decade, COUNT(*) FROM customers GROUP BY decade", 0.4),
    ("SELECT region, SUM(amount) FROM orders JOIN customers ON customer_id = customers.id GROUP BY region", 0.6),
)
COMMANDS = (
    'dpsql query "SELECT region, COUNT(*) AS n, AVG(age) AS mean_age FROM customers GROUP BY region" --epsilon 0.3',
    'dpsql query "SELECT region, AVG(agee) FROM customers GROUP BY region"',
    'dpsql query "DESCRIBE customers"',
)
THEMES = {"light": "background:#fff;color:#1f2328", "dark": "background:#111418;color:#dfe3e8"}
PAGE = '<!doctype html><meta charset="utf-8"><body data-theme="{theme}" style="margin:14px;{colours}">{content}'
CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def pictures(conn: dpsql.Connection) -> dict[str, tuple[str, int, int]]:
    """Name -> HTML, width and height."""
    table = conn.execute(BY_REGION, epsilon=0.3)
    products, months = (conn.execute(sql, epsilon=0.5) for sql in (BY_PRODUCT, MONTHLY))
    card = conn.explain("SELECT product, COUNT(*) AS lines FROM order_lines GROUP BY product", epsilon=0.3)
    for sql, epsilon in OTHERS:
        conn.execute(sql, epsilon=epsilon)
    plots = "".join(_svg(cursor) for cursor in (products, months))
    return {
        "table": (table._repr_html_() or "", 760, 180),
        "explain": (card._repr_html_(), 860, 390),
        "budget": (conn.budget._repr_html_(), 760, 330),
        "plot": (f'<div style="display:flex;align-items:end;gap:20px">{plots}</div>', 1080, 450),
    }


def console(shop: Path) -> str:
    """What these commands print, as a terminal shows it."""
    settings = {"DPSQL_DB": str(shop), "DPSQL_SCHEMA": str(SCHEMA), "DPSQL_BUDGET": "1", "DPSQL_DELTA": "1e-6"}
    lines = []
    for command in COMMANDS:
        words = [sys.executable, "-c", "from dpsql.cli.app import main; main()", *shlex.split(command)[1:]]
        ran = subprocess.run(words, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
        lines += [f"<b>$ {escape(command)}</b>", escape(ran.stdout + ran.stderr)]
    return f'<pre style="font:13px/1.5 ui-monospace,Menlo,Consolas,monospace;margin:0">{"<br>".join(lines)}</pre>'


def _svg(cursor: dpsql.Cursor) -> str:
    figure = cursor.plot("matplotlib")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plot.svg"
        figure.savefig(path, bbox_inches="tight")
        return "<svg" + path.read_text(encoding="utf-8").partition("<svg")[2]


def take(chromium: str, html: str, path: Path, width: int, height: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(html, encoding="utf-8")
        size = (f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", f"--screenshot={path}")
        subprocess.run([chromium, *CHROMIUM, *size, page.as_uri()], check=True, capture_output=True)


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        shop = make_shop(Path(folder) / "shop.duckdb")
        terminal = console(make_shop(Path(folder) / "asked.duckdb"))
        with dpsql.connect(shop, schema=SCHEMA, budget=3, delta=1e-6) as conn:
            found = {**pictures(conn), "console": (terminal, 960, 410)}
    for name, (content, width, height) in found.items():
        for theme, colours in THEMES.items():
            path = IMAGES / f"{name}-{theme}.png"
            take(chromium, PAGE.format(theme=theme, colours=colours, content=content), path, width, height)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
