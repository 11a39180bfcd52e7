"""A query's way, one file per stage, in the order of `stages.py`."""
