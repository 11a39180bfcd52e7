"""SmartNoise SQL over a pandas frame. Its own bound is 10 rows of each person, whatever their groups."""

import sys
from time import process_time

import pandas as pd
from snsql import Privacy, from_df

orders = pd.read_parquet(sys.argv[1])[["customer_id", "region", "amount"]]
metadata = {
    "": {
        "shop": {
            "orders": {
                "max_ids": 10,
                "row_privacy": False,
                "censor_dims": False,
                "customer_id": {"name": "customer_id", "type": "int", "private_id": True},
                "region": {"name": "region", "type": "string"},
                "amount": {"name": "amount", "type": "float", "lower": 0.0, "upper": 500.0},
            }
        }
    }
}
reader = from_df(orders, privacy=Privacy(epsilon=1.0, delta=1e-6), metadata=metadata)
started = process_time()
found = reader.execute("SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM shop.orders GROUP BY region")
print(process_time() - started)
assert len(found) == 51
assert min(count for _, count, _ in found[1:]) > 10_000
