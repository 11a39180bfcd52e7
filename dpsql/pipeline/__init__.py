"""The stages of a query, one file each, in the order of `stages.py`."""
