"""COUNT, SUM, AVG: what each is measured by, how far one unit can move that, and how the answer follows from it."""
