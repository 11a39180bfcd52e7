"""The closed algebra that every query is lowered to, before anything is decided about it."""
