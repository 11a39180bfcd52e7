"""The databases that run engine SQL."""
