"""The databases that run the rewritten queries."""
