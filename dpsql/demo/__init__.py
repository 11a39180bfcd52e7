"""`dpsql demo`: a small synthetic shop is asked private questions; noise, truth and budget are shown side by side.

An analyst of real data never sees the truth. Here the data is made up, so it can be printed for comparison.
"""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.connection import Connection, Cursor, connect
from dpsql.errors import Error, OperationalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# -- shop data ---------------------------------------------------------------------------------------------------------
# A small synthetic shop that fits shop.yaml: 20,000 customers, their orders, the lines of these, four regions.
#
# The same database every time: every random-looking number is a hash of a row's number. It is skewed as real shops are:
# most customers order once or twice and some order dozens of times, a few products make most of the sales and some sell
# hardly at all, December is busy, some amounts are missing and a few lie above the declared bound.

CUSTOMERS = 20_000

# Best sellers first. The last ones are bought by so few customers that no private answer may name them.
PRODUCTS = (
    *(
        "coffee",
        "bread",
        "milk",
        "tea",
        "apples",
        "cheese",
        "chocolate",
        "rice",
        "pasta",
        "olive oil",
        "honey",
        "yoghurt",
    ),
    *("oats", "lentils", "salt", "soap", "candles", "batteries", "light bulb", "umbrella", "notebook", "chess set"),
    *("telescope", "violin strings", "beekeeping suit", "left-handed scissors", "glass eye", "prosthetic liner"),
)

STATEMENTS = (
    # Hashed twice: a single hash of small numbers is not uniform.
    "CREATE MACRO uniform(number, what) AS (hash(hash(what, number)) >> 11) / 9007199254740992.0",
    "CREATE MACRO normal(number, what) AS "
    "sqrt(-2 * ln(1 - uniform(number, what || ' radius'))) * cos(2 * pi() * uniform(number, what || ' angle'))",
    "CREATE TABLE regions (region VARCHAR PRIMARY KEY, country VARCHAR)",
    "INSERT INTO regions VALUES ('north', 'Norland'), ('south', 'Suland'), ('east', 'Suland'), ('west', 'Norland')",
    "CREATE TABLE customers (id INTEGER PRIMARY KEY, region VARCHAR, age INTEGER)",
    """
    INSERT INTO customers
    SELECT number,
           CASE WHEN place < 0.41 THEN 'north' WHEN place < 0.72 THEN 'south'
                WHEN place < 0.91 THEN 'east' ELSE 'west' END,
           CAST(greatest(16, least(99, CASE WHEN uniform(number, 'young') < 0.35 THEN 27 + 5 * normal(number, 'age')
                                            ELSE 46 + 8 * place + 15 * normal(number, 'age') END)) AS INTEGER)
    FROM (SELECT number, uniform(number, 'place') AS place FROM range(1, $customers + 1) AS numbers(number))
    """,
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, day DATE, amount DOUBLE)",
    # How many: one in seven customers never ordered, and a power law gives the rest one to forty orders.
    """
    INSERT INTO orders
    SELECT number, customer_id, day,
           CASE WHEN uniform(number, 'missing') >= 0.02
                THEN round(exp(3.6 + 0.8 * normal(number, 'amount')) * if(month(day) = 12, 1.4, 1), 2) END
    FROM (
        SELECT *, CASE WHEN uniform(number, 'gift') < 0.12 THEN make_date(year(any_day), 12, 1 + day(any_day) % 24)
                       ELSE any_day END AS day
        FROM (
            SELECT row_number() OVER (ORDER BY id, nth) AS number, id AS customer_id,
                   DATE '2024-01-01' + CAST(1095 * sqrt(uniform(100 * id + nth, 'day')) AS INTEGER) AS any_day
            FROM customers, range(1, 41) AS orders(nth)
            WHERE uniform(id, 'ever') >= 0.14 AND nth <= 0.8 + 0.8 / sqrt(uniform(id, 'often'))
        )
    )
    """,
    "CREATE TABLE order_lines (order_id INTEGER, product VARCHAR, quantity INTEGER)",
    """
    INSERT INTO order_lines
    SELECT id, $products[CAST(floor(1 + len($products) * pow(uniform(4 * id + nth, 'product'), 2.2)) AS INTEGER)],
           CAST(floor(1 + 2 / (0.1 + uniform(4 * id + nth, 'quantity'))) AS INTEGER)
    FROM orders, range(0, 3) AS lines(nth)
    WHERE nth = 0 OR uniform(4 * id + nth, 'more') < 0.3
    """,
    # The last products go mostly unsold: all but a few of their lines are taken away.
    """
    DELETE FROM order_lines
    WHERE list_position($products, product) > len($products) - 6 AND hash(hash(order_id)) % 40 <> 0
    """,
    "DROP MACRO normal",
    "DROP MACRO uniform",
)


def make_shop(path: str | Path, customers: int = CUSTOMERS) -> Path:
    """Makes the database; an older one at the same path is replaced."""
    path = Path(path)
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        for statement in STATEMENTS:
            values = {"customers": customers, "products": list(PRODUCTS)}
            connection.execute(statement, {name: value for name, value in values.items() if f"${name}" in statement})
    return path


# -- ask ---------------------------------------------------------------------------------------------------------------

SCHEMA = Path(__file__).with_name("shop.yaml")
EPSILON, DELTA = 3.0, 1e-6
WIDTH = 100
BAR = 50
INTRODUCTION = f"""\
We query a made-up shop with 20,000 customers. The budget for all queries together is epsilon {EPSILON:g},
delta {DELTA:g}. The ± after an answer covers the noise with 95 % probability, so about one answer in
twenty falls outside it by chance. The truth is shown only because the data is made up; an
analyst of real data never sees it."""
COLOURED = sys.stdout.isatty() and "NO_COLOR" not in os.environ


@dataclass(frozen=True)
class Question:
    title: str
    sql: str
    epsilon: float
    keys: int = 0
    """How many of the first columns are keys; the truth is looked up by them."""
    truth: str = ""
    """The same question without what would drop groups by their exact values."""
    remark: str = ""
    """What is worth noticing; {threshold} is the one of the release."""


COUNT_ORDERS = "SELECT COUNT(*) AS orders, AVG(amount) AS avg_amount FROM orders"
BY_REGION = """\
SELECT region, COUNT(*) AS customers, AVG(age) AS avg_age
FROM customers
GROUP BY region ORDER BY customers DESC"""
BY_AGE = """\
SELECT CAST(FLOOR(age / 10) AS BIGINT) * 10 AS decade, COUNT(*) AS customers
FROM customers
GROUP BY decade ORDER BY decade"""
BY_PRODUCT = """\
SELECT product, COUNT(*) AS lines
FROM order_lines
GROUP BY product ORDER BY lines DESC LIMIT 8"""
BUSY_MONTHS = """\
SELECT MONTH(day) AS month, COUNT(*) AS orders
FROM orders
WHERE day >= '2026-01-01'
GROUP BY month HAVING COUNT(*) > 1200 ORDER BY orders DESC"""

QUESTIONS = (
    Question(
        "How many customers are there?",
        "SELECT COUNT(*) AS customers FROM customers",
        0.1,
        remark="One person changes this count by at most 1, so a little noise is enough.",
    ),
    Question(
        "How many orders are there, and how large are they?",
        COUNT_ORDERS,
        0.3,
        remark="The count is below the truth by more than its ±, on purpose: at most 5 orders per customer count "
        "(shop.yaml), and the ± covers only the noise. With max_rows_per_group=20 nearly all orders would "
        "count, at four times the noise.",
    ),
    Question(
        "Customers by region",
        BY_REGION,
        0.3,
        keys=1,
        remark="COUNT and AVG share one noisy count. The regions are declared, so all of them are returned, "
        "whatever the data.",
    ),
    Question(
        "A histogram of ages",
        BY_AGE,
        0.2,
        keys=1,
        remark="Bins of a declared range are public too: empty ones are returned, and noise can make them negative.",
    ),
    Question(
        "Best-selling products",
        BY_PRODUCT,
        0.5,
        keys=1,
        truth=BY_PRODUCT.partition(" ORDER")[0],
        remark="Below the truth again: one customer counts in at most 4 products, with 5 lines each. Products are "
        "not declared, and the name of a rare product could identify its buyers. So a product is shown only "
        "if the noisy number of its customers is at least {threshold}, which hides six of the 28.",
    ),
    Question(
        "Busy months of 2026",
        BUSY_MONTHS,
        0.3,
        keys=1,
        truth=BUSY_MONTHS.partition(" HAVING")[0],
        remark="HAVING, ORDER BY and LIMIT run on the noisy values, so they cost nothing. A customer's orders "
        "beyond 5 in a month, or beyond 4 months, do not count.",
    ),
    Question("The same query again", BY_REGION, 0.3, keys=1, remark="Same query, same answer, free."),
)

REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SELECT * FROM customers WHERE id = 4711", {}),
    ("SELECT regoin, COUNT(*) FROM customers GROUP BY regoin", {}),
    ("SELECT AVG(order_id) FROM order_lines", {}),
    ("SELECT COUNT(*) FROM orders", {"epsilon": 50}),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = make_shop(Path(directory) / "shop.duckdb")
        truths = exact_answers(path)
        with connect(path, schema=SCHEMA, budget=EPSILON, delta=DELTA) as conn:
            print(INTRODUCTION)
            for number, question in enumerate(QUESTIONS, 1):
                show(number, question, conn, truths[question.sql])
            show_refusals(conn)
            show_explain(conn)


def save_shop(folder: Path) -> str:
    """Writes the shop and its schema, to be queried by hand; returns a message about what was written."""
    database, schema = folder / "shop.duckdb", folder / SCHEMA.name
    for path in (database, schema):
        if path.exists():
            raise OperationalError(f"{path} already exists", hint="name another folder, or use the existing shop")
    folder.mkdir(parents=True, exist_ok=True)
    make_shop(database)
    schema.write_bytes(SCHEMA.read_bytes())
    return f"wrote {database} and {schema}: 20,000 made-up customers, their orders, and a schema"


def exact_answers(path: Path) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """The exact answers of plain DuckDB, by query and key: no bounds, no noise, no privacy."""
    with duckdb.connect(str(path), read_only=True) as plain:
        return {
            question.sql: {
                row[: question.keys]: row[question.keys :]
                for row in plain.execute(question.truth or question.sql).fetchall()
            }
            for question in QUESTIONS
        }


def show(number: int, question: Question, conn: Connection, truths: Mapping[tuple[Any, ...], tuple[Any, ...]]) -> None:
    cursor = conn.execute(question.sql, epsilon=question.epsilon)
    heading(f"{number}. {question.title}")
    print(styled(indented(question.sql), "36"))
    print()
    print(indented(drawn(cursor, question.keys, truths)))
    print()
    (release,) = conn.explain(question.sql, epsilon=question.epsilon).releases
    remark = question.remark.format(threshold=release.threshold)
    print(textwrap.fill(remark, WIDTH, initial_indent="   ", subsequent_indent="   "))
    receipt = cursor.receipt
    paid = "free" if receipt.recalled else f"epsilon {receipt.epsilon:g}, {receipt.mechanism} noise"
    print(indented(f"paid: {paid}"))
    print(indented(budget_bar(conn)))


def drawn(cursor: Cursor, keys: int, truths: Mapping[tuple[Any, ...], tuple[Any, ...]]) -> str:
    """The noisy answer as a table: each value with its error, next to the true value."""
    names = [column[0] for column in cursor.description or ()]
    intervals = cursor.intervals(0.95)
    lines = [[*names[:keys], *(cell for name in names[keys:] for cell in (name, "truth"))]]
    for position, row in enumerate(cursor.fetchall()):
        line = [str(key) for key in row[:keys]]
        exact = truths.get(row[:keys], (0,) * (len(row) - keys))
        for name, value, truth in zip(names[keys:], row[keys:], exact, strict=True):
            low, high = (intervals[f"{name}_{end}"][position] for end in ("low", "high"))
            line += [f"{number(value)} ± {number(type(value)((high - low) / 2), 2)}", number(truth)]
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "   ".join(
            cell.ljust(width) if at < keys else styled(cell.rjust(width), "2" if (at - keys) % 2 else "1")
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "NULL"
    return f"{value:,.{digits}f}" if isinstance(value, float) else f"{int(value):,}"


def budget_bar(conn: Connection) -> str:
    spent = conn.budget.spent.epsilon
    full = round(BAR * spent / EPSILON)
    return f"budget [{'#' * full}{'.' * (BAR - full)}] {spent:.3f} of {EPSILON:g} spent"


def show_refusals(conn: Connection) -> None:
    heading(f"{len(QUESTIONS) + 1}. Unsupported queries are refused free of charge, with a hint")
    before = conn.budget.spent
    for sql, options in REFUSED:
        shown = "".join(f"   ({name}={value})" for name, value in options.items())
        print(styled(indented(sql + shown), "36"))
        try:
            conn.execute(sql, **options)
        except Error as error:
            said = f"{type(error).__name__}: {error}".splitlines()
            print(indented("\n".join(line for part in said for line in textwrap.wrap(part, WIDTH - 6)), 6))
        print()
    assert conn.budget.spent == before
    print(indented(budget_bar(conn)))


def show_explain(conn: Connection) -> None:
    heading(f"{len(QUESTIONS) + 2}. EXPLAIN shows a query's cost and accuracy, free")
    sql = "EXPLAIN SELECT region, COUNT(*) AS customers, SUM(age) AS years FROM customers GROUP BY region"
    print(styled(indented(sql), "36"))
    print()
    lines = [line for (line,) in conn.execute(sql, epsilon=0.3)]
    for line in lines:
        print(wrapped(line))
    print()
    print(indented(budget_bar(conn)))


def heading(text: str) -> None:
    print(f"\n{styled(text, '1')}\n{'-' * len(text)}")


def indented(text: str, by: int = 3) -> str:
    return textwrap.indent(text, " " * by)


def wrapped(line: str, most: int = 6) -> str:
    """Long lines (the SQL that would run) in the width of the page, and cut after some lines."""
    lines: Sequence[str] = textwrap.wrap(line, WIDTH, initial_indent="   ", subsequent_indent=" " * 14)
    cut = [*lines[:most], f"{'':14}... ({len(line):,} characters in all)"] if len(lines) > most else lines
    return "\n".join(cut)


def styled(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOURED else text
