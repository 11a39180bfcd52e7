"""Serves the made-up shop to one analyst on 127.0.0.1, until Ctrl-C: make serve-demo"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dpsql.demo import save_shop
from dpsql.server.serve import serve
from dpsql.server.settings import made, prepare


def main(port: int = 5433) -> None:
    with TemporaryDirectory(prefix="dpsql_demo_") as place:
        folder = Path(place)
        save_shop(folder)
        shop = {
            "database": str(folder / "shop.duckdb"),
            "schema": str(folder / "shop.yaml"),
            "budget": 3,
            "delta": 1e-6,
        }
        settings = made({"datasets": {"shop": shop}, "folder": str(folder / "server"), "postgres_port": port})
        prepare(settings)
        password = settings.users.add("ada", "analyst", (), "up-to 0.1")

        def tell(ready: dict[str, object]) -> None:
            where = f"host=127.0.0.1 port={ready['postgres_port']} dbname=shop user=ada"
            print(f"PGPASSWORD={password} psql '{where}'", flush=True)
            print("try:  SELECT region, count(*) FROM customers GROUP BY region;", flush=True)

        serve(settings, tell)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
