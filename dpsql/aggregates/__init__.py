"""The aggregates: the measures of each, their sensitivities, their engine SQL, and how answers follow."""
