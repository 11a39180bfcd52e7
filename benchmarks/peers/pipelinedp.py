"""PipelineDP on its local backend, with Gaussian noise and public partitions."""

import sys
from time import process_time

import pandas as pd
import pipeline_dp

rows = list(pd.read_parquet(sys.argv[1])[["customer_id", "region", "amount"]].itertuples(index=False, name=None))
started = process_time()
accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
extractors = pipeline_dp.DataExtractors(
    privacy_id_extractor=lambda row: row[0],
    partition_extractor=lambda row: row[1],
    value_extractor=lambda row: row[2],
)
params = pipeline_dp.AggregateParams(
    noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
    metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.SUM],
    max_partitions_contributed=5,
    max_contributions_per_partition=2,
    min_value=0,
    max_value=500,
)
found = engine.aggregate(rows, params, extractors, public_partitions=[f"r{number}" for number in range(50)])
accountant.compute_budgets()
answers = list(found)
print(process_time() - started)
assert len(answers) == 50
assert min(answer.count for _, answer in answers) > 5_000
