"""How statistics are drawn from their profiles: one file for each, with the mechanisms that fit it."""
