"""What engines other than DuckDB have no words for that mean the same, and what to write instead."""

from __future__ import annotations

from dpsql.errors import Unsupported

PATTERNS = "use LIKE, STARTS_WITH, ENDS_WITH, CONTAINS or SPLIT_PART"
REFUSED: dict[str, tuple[str, str]] = {
    "double %": ("% of doubles", "CAST both sides to DECIMAL(18, 6)"),
    "reverse": ("REVERSE", "compare the text as it is, or store it reversed"),
    "levenshtein": ("LEVENSHTEIN", "use LIKE or CONTAINS"),
    "glob": ("GLOB", PATTERNS),
    **{
        operation: (name, PATTERNS)
        for operation, name in (
            ("regexp_matches", "REGEXP_MATCHES"),
            ("regexp_full_match", "SIMILAR TO and REGEXP_FULL_MATCH"),
            ("regexp_replace", "REGEXP_REPLACE"),
            ("regexp_extract", "REGEXP_EXTRACT"),
        )
    },
}
REFUSED_BY: dict[str, dict[str, tuple[str, str]]] = {
    "PostgreSQL": {"log2": ("LOG2", "write LN(x) / LN(2)")},
    "Spark": {},
}


def refused(engine: str, operation: str) -> Unsupported | None:
    found = {**REFUSED, **REFUSED_BY[engine]}.get(operation)
    if found is None:
        return None
    name, instead = found
    return Unsupported(f"on {engine} {name} would have another meaning, so it is not used there", hint=instead)
