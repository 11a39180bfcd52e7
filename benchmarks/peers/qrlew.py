"""Qrlew: it rewrites the query, and DuckDB runs what it wrote. It scales down whoever counts more than 10 rows."""

import sys
from time import process_time

import duckdb
import pyqrlew as qrl
import sqlalchemy as sa

shape = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
with shape.begin() as connection:
    connection.execute(sa.text("CREATE TABLE orders (customer_id INTEGER, region TEXT, amount REAL)"))
    # It takes what it counts here for the size of the table: of an empty one every answer would be 0, without noise.
    numbers = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000000)"
    connection.execute(sa.text(f"INSERT INTO orders {numbers} SELECT n, 'r0', 0 FROM numbers"))
dataset = qrl.Dataset.from_database("shop", shape)
dataset = dataset.with_range(None, "orders", "amount", 0.0, 500.0)
dataset = dataset.with_possible_values(None, "orders", "region", [f"r{number}" for number in range(50)])
database = duckdb.connect()
database.execute(f"CREATE TABLE orders AS FROM '{sys.argv[1]}'")
started = process_time()
relation = dataset.relation("SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY region")
private = relation.rewrite_with_differential_privacy(
    dataset,
    [("orders", [], "customer_id")],
    {"epsilon": 1.0, "delta": 1e-6},
    max_multiplicity=10.0,
    max_multiplicity_share=1.0,
)
found = database.execute(private.relation().to_query(qrl.Dialect.PostgreSql)).fetchall()
print(process_time() - started)
assert len(found) == 50
assert min(count for _, count, _ in found) > 10_000
