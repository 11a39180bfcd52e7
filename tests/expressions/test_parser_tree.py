"""Our walks and copies of the parser's trees are the parser's own, faster."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot
import yaml
from sqlglot import exp

from dpsql.expressions.parser_tree import copied, nodes, nodes_of

CORPUS = Path(__file__).parents[1] / "corpus"


def trees(name: str) -> list[exp.Expr]:
    topics = yaml.safe_load((CORPUS / f"{name}.yaml").read_text(encoding="utf-8"))
    entries = [entry if isinstance(entry, str) else entry["sql"] for part in topics.values() for entry in part]
    plain = [sql for sql in entries if "OPTIONS(" not in sql and "=>" not in sql][::4]
    found = sqlglot.parse("; ".join(plain), read="duckdb", error_level=sqlglot.ErrorLevel.IGNORE)
    return [tree for tree in found if tree is not None]


@pytest.mark.parametrize("name", ["clinic", "people", "shop"])
def test_as_the_parser_does_it(name: str) -> None:
    for tree in trees(name):
        assert [id(node) for node in nodes(tree)] == [id(node) for node in tree.walk()]
        assert nodes_of(tree, exp.Column, exp.Literal) == list(tree.find_all(exp.Column, exp.Literal))
        copy = copied(tree)
        assert copy == tree
        assert copy.sql("duckdb") == tree.copy().sql("duckdb")
        assert not {id(node) for node in nodes(copy)} & {id(node) for node in nodes(tree)}
        for ours, its in zip(nodes(copy), nodes(tree.copy()), strict=True):
            assert (type(ours), ours.arg_key, ours.index, ours.comments) == (
                type(its),
                its.arg_key,
                its.index,
                its.comments,
            )
            assert ours.meta == its.meta
            assert type(ours.parent) is type(its.parent)


def test_a_copy_is_left_alone_by_changes() -> None:
    tree = sqlglot.parse_one("SELECT a /* first */, b FROM t WHERE a > 1", read="duckdb")
    copy = copied(tree)
    tree.expressions[0].meta["start"] = -1
    tree.find(exp.Table).set("this", exp.to_identifier("u"))  # type: ignore[union-attr]
    tree.expressions.pop()
    assert copy.sql("duckdb") == "SELECT a /* first */, b FROM t WHERE a > 1"
    assert copy.expressions[0].meta.get("start") != -1


def test_a_part_that_is_copied_stands_alone() -> None:
    tree = sqlglot.parse_one("SELECT a + 1 FROM t", read="duckdb")
    part = copied(tree.expressions[0])
    assert part.parent is None
    assert part.left.parent is part
