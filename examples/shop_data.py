"""Makes the demo's shop in a file of its own, to try things on:  python examples/shop_data.py shop.duckdb"""

import sys

import duckdb

from dpsql.demo import make_shop

if __name__ == "__main__":
    made = make_shop(sys.argv[1] if len(sys.argv) > 1 else "shop.duckdb")
    with duckdb.connect(str(made), read_only=True) as opened:
        for (table,) in opened.execute("SHOW TABLES").fetchall():
            (count,) = opened.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
            print(f"{made}: {count:>7,} {table}")
