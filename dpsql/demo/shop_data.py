"""A small synthetic shop that fits shop.yaml: 20,000 customers, their orders, the lines of these, four regions.

The same database every time: every random-looking number is a hash of a row's number. It is skewed as real shops are:
most customers order once or twice and some order dozens of times, a few products make most of the sales and some sell
hardly at all, December is busy, some amounts are missing and a few lie above the declared bound.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

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
