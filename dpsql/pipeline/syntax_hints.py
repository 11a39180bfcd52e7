"""What is probably meant where a query cannot be read: a misspelt word, a bracket left open, another system's habit."""

from __future__ import annotations

import re
from difflib import get_close_matches

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "JOIN", "LEFT", "RIGHT", "INNER"),
    *("OUTER", "UNION", "DISTINCT", "BETWEEN", "EXPLAIN", "QUALIFY", "USING", "WITH", "CASE", "WHEN", "THEN", "ELSE"),
)
LOOKED_AT = 4
"""So many words up to the mark are compared with keywords: the parser stumbles some words after a misspelt one."""
SIMILAR = 0.7
NEAR = 24
"""So many characters around the mark are searched for habits of other systems."""
WORD = re.compile(r"[A-Za-z_]\w*")
QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
DANGLING = re.compile(r"(?i)\b(WHERE|AND|OR|NOT|BY|FROM|SELECT|HAVING|ON|JOIN|LIMIT|IN|LIKE|BETWEEN|SET)\s*;?\s*$")
HABITS = (
    (r"`", "a name is quoted with double quotes, a text with single quotes"),
    (r"(?i)\bTOP\s+\d+", "write LIMIT 10 at the end of the query"),
    (r"(?i)\bBETWEEN\s+\S+\s+TO\b", "write BETWEEN 10 AND 20"),
    (r"(?i)\b(GROUP|ORDER)\s+(?!BY\b)\w", "write GROUP BY and ORDER BY"),
    (r"\d,\d{3}\b", "write numbers without commas: 1000"),
    (r"%s|%\(\w+\)s", "write ? in place of a value, and give the values in order"),
    (r"(?i)\bCOUNT\s+\*", "write COUNT(*)"),
    (r"(?i)\bEXPLAIN\s+ANALYZE|^\s*ANALYZE\b", "write EXPLAIN alone: it is free, and reads no data"),
    (r"=<", "write <="),
    (r"=!", "write <>"),
    (r"&&", "write AND"),
    (r"(?i)\bELSE\s*IF\b|\bELSEIF\b", "write CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END"),
)
OTHERWISE = "check the words before and at the mark"


def syntax_hint(sql: str, mark: int) -> str:
    """
    >>> syntax_hint("SELEC COUNT(*) FROM visits", 11)
    'did you mean SELECT instead of SELEC?'
    >>> syntax_hint("SELECT COUNT(* FROM visits", 15)
    'a parenthesis is not closed'
    """
    bare = QUOTED.sub(lambda found: " " * len(found[0]), sql)
    return (
        _misspelt(bare, mark)
        or _habit(bare[max(0, mark - NEAR) : mark + NEAR])
        or _bracket(bare)
        or _dangling(bare)
        or OTHERWISE
    )


def _misspelt(sql: str, mark: int) -> str | None:
    """The first of the last words up to the mark that is nearly a keyword; `orders` is a table, not ORDER."""
    words = [found[0] for found in WORD.finditer(sql) if found.start() <= mark][-LOOKED_AT:]
    for word in words:
        close = get_close_matches(word.upper(), KEYWORDS, n=1, cutoff=SIMILAR)
        if close and word.upper().removesuffix("S") not in KEYWORDS:
            return f"did you mean {close[0]} instead of {word}?"
    return None


def _habit(sql: str) -> str | None:
    return next((hint for pattern, hint in HABITS if re.search(pattern, sql)), None)


def _bracket(sql: str) -> str | None:
    missing = sql.count("(") - sql.count(")")
    if missing > 0:
        return "a parenthesis is not closed"
    return "there is a closing parenthesis too many" if missing < 0 else None


def _dangling(sql: str) -> str | None:
    found = DANGLING.search(sql)
    return f"something is missing after {found[1].upper()}" if found else None
