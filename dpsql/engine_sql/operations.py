"""The closed list of operations that engines implement, and the rule that each follows on every engine.

For all of them: no row can raise an error, in any order of evaluation; undefined results are NULL; where an
argument is NULL, so is the result, unless the rule says otherwise. `kind` of an Apply is its result, and for arithmetic
also the kind of the computation. tests/engines/test_render.py runs every rule on extreme values.
"""

OPERATIONS: dict[str, str] = {
    # Comparisons and logic.
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), "two values of one kind; texts by their code points"),
    **dict.fromkeys(("same", "different"), "= and <> where NULL is a value like any other: never NULL"),
    **dict.fromkeys(("and", "or"), "of any number of conditions, in three-valued logic"),
    "not": "of NULL it is NULL",
    **dict.fromkeys(("is null", "is not null"), "never NULL"),
    "is not false": "true and NULL; never NULL",
    "in": "the first among the others, all of one kind; NULL where that is open",
    "between": "low <= value <= high",
    "is finite": "of a double: neither an infinity nor NaN",
    "is nan": "of a double",
    # Choices.
    **dict.fromkeys(("least", "greatest"), "of values of one kind; passes over NULL"),
    "coalesce": "the first that is not NULL",
    # Arithmetic, in its kind.
    **dict.fromkeys(
        ("+", "-", "*"),
        "doubles: nearest even, infinite where too large, zero where too small; whole numbers and decimals: exact, of"
        " operands whose result fits into the kind, which of 64 bits is to be proven",
    ),
    **dict.fromkeys(("try +", "try -", "try *"), "decimals: exact, NULL where the result does not fit into its kind"),
    "/": "doubles: nearest even; the divisor is not zero",
    "//": "whole numbers, cut off towards zero; the divisor is not zero, and of 64 bits not -1",
    "%": "the remainder of //, with the sign of the dividend; also of decimals",
    "double %": "the remainder of a division of doubles, exact, with the sign of the dividend; the divisor is not zero",
    "negate": "doubles and decimals",
    **dict.fromkeys(("&", "|", "xor"), "bits of whole numbers"),
    ">>": "a wide number divided by a power of two, rounded down",
    "abs": "doubles, decimals, wide numbers",
    "sign": "-1, 0 or 1 as a double or a whole number",
    # Rounding: doubles stay doubles, decimals have the digits that are left.
    **dict.fromkeys(("floor", "ceil", "trunc"), "down, up, towards zero; trunc with digits after the point or before"),
    "round": "half away from zero, with digits after the point or before",
    # Functions of doubles; the arguments are where they have a value. One unit in the last place off at most.
    **dict.fromkeys(("sqrt",), "nearest even"),
    **dict.fromkeys(("cbrt", "ln", "log10", "log2", "exp", "pow"), "infinite where too large, zero where too small"),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "degrees", "radians"), "angles in radians"),
    # Texts: lengths and positions in code points, from 1. Those after the first are constants.
    "by code points": "the text itself, compared by code points from here on, whatever collation its column has",
    "bytes": "the length of a text in bytes of UTF-8",
    **dict.fromkeys(("lower", "upper", "reverse"), "by the tables of Unicode"),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), "spaces, or the characters that are named"),
    **dict.fromkeys(("replace", "substring", "left", "right", "lpad", "rpad", "split_part"), "as in PostgreSQL"),
    **dict.fromkeys(("length", "strpos", "levenshtein", "ascii", "unicode", "md5"), "as in DuckDB"),
    **dict.fromkeys(("starts_with", "ends_with", "contains"), "by code points"),
    "||": "NULL as soon as one part is",
    **dict.fromkeys(("concat", "concat_ws"), "pass over NULL"),
    **dict.fromkeys(("like", "ilike"), "no escape character but the one that is the third argument"),
    "glob": "as in DuckDB",
    **dict.fromkeys(("regexp_matches", "regexp_full_match", "regexp_replace", "regexp_extract"), "RE2"),
    # Dates and timestamps between the years 1 and 9999, without time zones.
    "date part": "the constant part of a moment, as a whole number; weeks by ISO 8601, Sunday is day 0",
    "date trunc": "the start of the constant unit that a timestamp lies in",
    "date diff": "how many starts of the constant unit lie between two moments",
    "date sub": "how many whole units lie between two moments",
    "date + days": "the date that is so many days later, up to 10000 years; NULL will do for one before the year 1",
    "date - date": "the days between",
    "shift": "a timestamp plus a constant number of constant units; months are cut to their last day",
    "last day": "of the month, as a date",
    "make date": "of a year, a month and a day in their ranges; NULL where there is no such day",
    "epoch": "seconds since 1970, as a double",
    "epoch days": "days since 1970, of a date",
    "epoch microseconds": "since 1970, of a timestamp",
    "from epoch days": "the date",
    "from epoch microseconds": "the timestamp",
    **dict.fromkeys(("dayname", "monthname"), "in English"),
    "strftime": "by a constant format of %Y %m %d %H %M %S and plain text",
    # What bounds a unit's contribution.
    "keyed hash": "of a salt, the unit and other values, NULL too: for a random salt each order of them is as likely",
    "one in 32": "whether a keyed hash is one of a 32nd of all",
    # Groups as lists.
    "position": "of the first among the others, from 0; NULL where it is none of them",
}
FOLDS: dict[str, str] = {
    "count": "rows, or values that are not NULL",
    "sum": "of whole numbers in 128 bits, of decimals exactly; NULL over nothing. Where its kind is a 64-bit integer:"
    " of 32-bit ones that surely are too few to leave it",
    "sum of quanta": "of decimals of up to 18 digits, 8 of them after the point, as a whole number of units of the last"
    " digit; NULL over nothing",
    **dict.fromkeys(("min", "max"), "texts by code points"),
    **dict.fromkeys(("bool_or", "bool_and"), "of conditions that are not NULL"),
    "collect": "values as a list, in the order that is given",
    **dict.fromkeys(("row_number", "rank", "dense_rank", "ntile", "percent_rank", "cume_dist"), "places in an order"),
    **dict.fromkeys(("lag", "lead", "first_value", "last_value", "nth_value"), "values of other rows in an order"),
}
