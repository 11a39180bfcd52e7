"""Names and texts inside SQL that dpsql writes: quoted here, and nowhere else."""

from __future__ import annotations


def quoted(name: str) -> str:
    """
    >>> quoted('odd"name')
    '"odd""name"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """
    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
