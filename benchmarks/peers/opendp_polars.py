"""OpenDP with Polars: rows and groups of each person are bounded by truncations, the keys are public.

The first groups of a person are kept: OpenDP 0.16 raises an error when it is to draw them with a single key.
"""

import sys
from time import process_time

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
orders = pl.read_parquet(sys.argv[1])
regions = pl.LazyFrame({"region": [f"r{number}" for number in range(50)]})
started = process_time()
context = dp.Context.compositor(
    data=orders.lazy(),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("customer_id")),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_evenly_over=1,
    margins=[dp.polars.Margin(by=["region"], max_length=2_000_000, max_groups=50)],
)
query = (
    context.query()
    .truncate_per_group(2, by=["region"])
    .truncate_num_groups(5, by=["region"], keep="first")
    .group_by("region")
    .agg(dp.len(), pl.col("amount").fill_null(0.0).fill_nan(0.0).dp.sum((0.0, 500.0)))
    .with_keys(regions)
)
answers = query.release().collect()
print(process_time() - started)
assert len(answers) == 50
assert answers["len"].max() > 10_000
