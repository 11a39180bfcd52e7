"""What Spark has no words for that mean the same on every engine, and what to write instead."""

from __future__ import annotations

from dpsql.errors import Unsupported

PATTERNS = "use LIKE, STARTS_WITH, ENDS_WITH, CONTAINS or SPLIT_PART"
REFUSED: dict[str, tuple[str, str]] = {
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


def refused(operation: str) -> Unsupported | None:
    if operation not in REFUSED:
        return None
    name, instead = REFUSED[operation]
    return Unsupported(f"on Spark {name} would have another meaning, so it is not used there", hint=instead)
