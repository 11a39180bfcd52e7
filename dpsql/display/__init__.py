"""HTML for notebooks from plain values: no scripts, nothing fetched, everything escaped."""
