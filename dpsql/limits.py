"""Limits on the size of a query. Each is checked before the charge, and far above what people write.

Limits keep the time before the charge, and the engine's own time to read a query, in proportion to the question. They
are public numbers: no row of the data has a part in them.
"""

LONGEST_QUERY = 100_000
"""Characters of SQL."""
LONGEST_PARAMETER = 10_000
"""Characters of one text that is given as a parameter."""
LONGEST_PARAMETERS = 100_000
"""Characters of all of them."""
LONGEST_NUMBER = 400
"""Characters of one number."""
MOST_NODES = 50_000
"""Nodes of the parser's tree."""
DEEPEST = 150
"""Levels of parentheses, operators and subqueries; a chain of AND or OR is one. The engine needs the cube of it."""
DEEPEST_TYPES = 8
"""Brackets within brackets, each after the name of a type, as in ARRAY[ARRAY[1]]: each triples the parser's work."""
MOST_QUERIES = 200
"""SELECTs in the text. Each is copied and compared with others as a text, with all that stands within it."""
MOST_TERMS = 300
"""Conditions of one AND. The engine compares each <> with all others, and is slow beyond."""
LONGEST_LIST = 10_000
"""Values of one IN, and rows of one VALUES."""
LONGEST_PATTERN = 1_000
"""Characters of a constant that is looked for in texts."""
LONGEST_COMPARED = 100
"""Characters of a constant that texts are compared with letter by letter: the work is the product of both lengths."""
MOST_PARTS = 1_000
"""Functions and operators of one value, with the names of subqueries and aliases replaced by what they stand for."""
MOST_TABLES = 100
"""Tables that one aggregate reads. What a WITH query reads counts wherever the WITH query is read."""
MOST_STEPS = 150
"""Steps (joins, filters, projections, ...) on the longest way from a table to an aggregate."""
MOST_RELEASES = 100
"""Different aggregations over people."""
MOST_PUBLIC_GROUPS = 1_000_000
"""Groups that are listed in advance."""
LONGEST_ENGINE_SQL = 10_000_000
"""Characters of what is written for the engine: declared lists of values are a part of it."""
MOST_ROWS_OF_ONE = 2**18
"""Rows, or comparisons of rows, that joins, lists and moving frames make of one person's rows, at any step."""
MOST_COPIES = 8
"""Rows that one row may become, or be compared with, without its person's rows being counted first."""
MOST_PUBLIC_COPIES = 2
"""The same for public rows that are known before the charge. Sorting eight copies of 100,000 rows takes 0.15 s."""
FEWEST_ROWS_OF_ONE = 16
"""Where only people with fewer rows could be kept within that, the question is refused."""
LONGEST_COPIED = 128
"""Bytes of a text whose row is multiplied into more than MOST_COPIES; one that may be longer is not read there."""
WIDEST_COPIED = 1_024
"""Bytes of what is computed for each of these rows: a number is 16, a text as long as it may become."""
MOST_TEXT = 1_000
"""How many times as long as the longest text all texts may be together that are made of one row."""
