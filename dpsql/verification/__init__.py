"""Verification: an audit of a schema on synthetic people, and the certification of engines."""

RUNS = 20_000
"""How often an audit answers each question with noise."""
DELTA = 0.01
"""Large enough that an audit of thousands of answers could see it."""
