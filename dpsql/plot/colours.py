"""Colours that can be read on white and on black: blue for values, orange for uncertainty, grey for the rest."""

VALUE = "#6f9fec"
ERROR = "#e07b2e"
INK = "#80868f"
FAINT = 0.25
"""How much of the ink is left in a grid line."""
SHADES = ("#dbe7fb", "#2b5db5")
ON_LIGHT, ON_DARK = "#1c2b45", "#ffffff"

MOST_WRITTEN = 12
"""A heat map with more columns than this has no room for numbers."""
