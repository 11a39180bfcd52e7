"""A query's way, one file per stage, in the order of `dpsql.pipeline.STAGES`."""
