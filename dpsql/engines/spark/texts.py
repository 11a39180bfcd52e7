"""Texts in the words of Spark: literals, letters, patterns.

LOWER and UPPER take letter for letter here, as the tables of Unicode have it. Spark takes some letters to several, and
sigma to another one at the end of a word; it also knows letters that were added to the tables lately. A text that has
such a letter is taken apart.
"""

from __future__ import annotations

ESCAPE = "!"
"""What stands before a character of a pattern that means itself."""
UPPER_KEPT = (
    *(0x149, 0x19B, 0x1F0, 0x264, 0x390, 0x3B0, 0x587, 0x1C8A, *range(0x1E96, 0x1E9B), 0x1F50, 0x1F52, 0x1F54, 0x1F56),
    *(*range(0x1F88, 0x1F90), *range(0x1F98, 0x1FA0), *range(0x1FA8, 0x1FB0), 0x1FB2, 0x1FB4, 0x1FB6, 0x1FB7, 0x1FBC),
    *(0x1FC2, 0x1FC4, 0x1FC6, 0x1FC7, 0x1FCC, 0x1FD2, 0x1FD3, 0x1FD6, 0x1FD7, 0x1FE2, 0x1FE3, 0x1FE4, 0x1FE6, 0x1FE7),
    *(0x1FF2, 0x1FF4, 0x1FF6, 0x1FF7, 0x1FFC, 0xA7CD, 0xA7CF, 0xA7D3, 0xA7D5, 0xA7DB, *range(0xFB00, 0xFB07)),
    *(*range(0xFB13, 0xFB18), *range(0x10D70, 0x10D86), *range(0x16EBB, 0x16ED4)),
)
"""Letters that Spark has capitals for, where the tables have no one letter, or had none."""
UPPER = {
    **{letter: letter for letter in UPPER_KEPT},
    **{letter: letter + 8 for start in (0x1F80, 0x1F90, 0x1FA0) for letter in range(start, start + 8)},
    0xDF: 0x1E9E,
    0x1FB3: 0x1FBC,
    0x1FC3: 0x1FCC,
    0x1FF3: 0x1FFC,
}
LOWER_KEPT = (
    *(0x1C89, 0xA7CB, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DC, *range(0x10D50, 0x10D66)),
    *range(0x16EA0, 0x16EB9),
)
LOWER = {**{letter: letter for letter in LOWER_KEPT}, 0x130: ord("i"), ord("Σ"): ord("σ")}


def literal(text: str) -> str:
    r"""
    >>> print(literal("it's a \\"))
    'it\'s a \\'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(name: str) -> str:
    """
    >>> quoted("odd`name")
    '`odd``name`'
    """
    return "`" + name.replace("`", "``") + "`"


def upper(text: str) -> str:
    return _by_letters("upper", text, UPPER)


def lower(text: str) -> str:
    return _by_letters("lower", text, LOWER)


def _by_letters(function: str, text: str, letters: dict[int, int]) -> str:
    before, after = ("".join(map(chr, points)) for points in (letters, letters.values()))
    own = f"translate(_c, '{before}', '{after}')"
    apart = f"transform(split({text}, ''), _c -> CASE WHEN contains('{before}', _c) THEN {own} ELSE {function}(_c) END)"
    return f"CASE WHEN {text} RLIKE '[{before}]' THEN array_join({apart}, '') ELSE {function}({text}) END"


def pattern(wanted: str, escape: str | None) -> str:
    """The pattern with our own escape character, which stands before itself, % and _ alone."""
    spelled = []
    characters = iter(wanted)
    for character in characters:
        meant = next(characters) if character == escape else None
        if meant is not None:
            spelled.append(ESCAPE + meant if meant in (ESCAPE, "%", "_") else meant)
        else:
            spelled.append(ESCAPE * 2 if character == ESCAPE else character)
    return "".join(spelled)
