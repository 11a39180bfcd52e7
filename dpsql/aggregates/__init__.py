"""COUNT, SUM, MEDIAN, ...: what each is made of, how far one unit can move that, and how the answer follows from it."""
