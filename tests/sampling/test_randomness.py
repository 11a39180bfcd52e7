"""The source: never the same twice, not even after a fork."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import pytest

import dpsql.sampling
from dpsql.sampling import CryptographicRandomness
from dpsql.sampling.randomness import MANY_WORDS

PACKAGE = Path(dpsql.sampling.__file__).parents[1]
MADE_UP = {"synthetic.py", "certify.py", "audit.py"}
"""People that nobody is, the same for the same seed."""


@pytest.mark.parametrize("n", [0, 1, MANY_WORDS - 1, MANY_WORDS, 100_000])
def test_as_many_words_as_asked_for(n: int) -> None:
    words = CryptographicRandomness().words(n)
    assert words.dtype == np.uint64
    assert words.shape == (n,)


@pytest.mark.parametrize("n", [8, MANY_WORDS])
def test_words_are_never_repeated(n: int) -> None:
    one, other = CryptographicRandomness(), CryptographicRandomness()
    words = np.concatenate([one.words(n), one.words(n), other.words(n)])
    assert len(np.unique(words)) == 3 * n


def test_every_bit_is_fair() -> None:
    # 6.5 standard deviations: one false alarm in 10^8 runs, over all 64 bits.
    n = 1 << 18
    ones = np.unpackbits(CryptographicRandomness().words(n).view(np.uint8).reshape(n, 8), axis=1).sum(axis=0)
    assert np.all(np.abs(ones - n / 2) < 6.5 * np.sqrt(n) / 2)


@pytest.mark.parametrize("n", [8, MANY_WORDS])
def test_a_forked_process_takes_a_new_key(n: int) -> None:
    source = CryptographicRandomness()
    source.words(MANY_WORDS)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, source.words(n).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.uint64)
    assert len(np.unique(np.concatenate([theirs, source.words(n)]))) == 2 * n


def is_unsafe_randomness(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name in {"random", "numpy.random"} for name in names)
        case ast.ImportFrom(module="numpy", names=names) if any(name.name == "random" for name in names):
            return True
        case ast.ImportFrom(module="random" | "numpy.random"):
            return True
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
            return True
        case ast.Attribute(attr="SystemRandom") | ast.alias(name="SystemRandom"):
            return True
    return False


def unsafe_randomness(source: str) -> list[int]:
    """The lines that name a predictable generator."""
    return [getattr(node, "lineno", 0) for node in ast.walk(ast.parse(source)) if is_unsafe_randomness(node)]


def test_no_file_uses_a_predictable_generator() -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in MADE_UP]
    assert len(files) > 100
    found = [
        f"dpsql/{path.relative_to(PACKAGE)}:{line}" for path in files for line in unsafe_randomness(path.read_text())
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "import random",
        "from random import choice",
        "import numpy.random as r",
        "from numpy import random",
        "import numpy as np\nnp.random.default_rng()",
        "from secrets import SystemRandom",
    ],
)
def test_the_fence_sees_every_way_in(code: str) -> None:
    assert unsafe_randomness(code)
