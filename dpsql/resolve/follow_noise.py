"""Which columns of an answer are noisy, and the same query once more over noise that is drawn again.

The post-processing is all of SQL, so its error is found by replaying it. Every noisy column walks with replicas of
itself, from the releases up to the answer; what chooses and orders rows still reads the released values, so that a row
and its replicas stand side by side:

    SELECT k, n * 2 AS m FROM (SELECT _k0 AS k, _a0 AS n FROM _release_0) WHERE n > 5
    SELECT k, n * 2 AS m, "n~1" * 2 AS "m~1", ...
    FROM (SELECT _k0 AS k, _a0 AS n, "_a0~1" AS "n~1", ... FROM _release_0) WHERE n > 5

What is not followed, such as the largest of many noisy values, is LOST: nothing is claimed of it.
docs/proofs/intervals.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.expressions.parser_tree import copied, nodes_of
from dpsql.resolve.noise_in_columns import LOST, MARK, PLAIN, SIGN, Kind, Made, NotFollowed, Rows, Scope, numbered
from dpsql.resolve.noise_in_expressions import NoiseInExpressions, queries_in
from dpsql.resolve.syntax import written

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

ONE_ROW = "(SELECT 1) AS _one_row"
"""What a SELECT without FROM reads."""


@dataclass(frozen=True)
class Followed:
    """The columns of an answer, and its query with replicas beside them."""

    query: exp.Query = field(repr=False)
    tables: Mapping[str, Rows] = field(repr=False)
    rows: Rows

    def made(self, names: Sequence[str]) -> list[Made]:
        """Of columns by their place, since some have no name in the query; by name where a star gives some of them."""
        if len(names) == len(self.rows.columns):
            return [made for _, made in self.rows.columns]
        return [self.rows.named(name) or LOST for name in names]

    def sql(self, replicas: int) -> str:
        tree = copied(self.query)
        Walk(replicas).query(tree, self.tables)
        return written(tree)


def follow_noise(query: exp.Query, tables: Mapping[str, Rows]) -> Followed | None:
    """None where the query has clauses that are not followed; `tables` are the releases and the public ones."""
    if any(SIGN in node.name for node in nodes_of(query, exp.Identifier, exp.Literal)):
        return None  # it could be taken for the name of a replica
    try:
        return Followed(query, tables, _rows_of(tables, query))
    except NotFollowed:
        return None


def _rows_of(tables: Mapping[str, Rows], query: exp.Query, outer: Scope | None = None) -> Rows:
    """What a query gives. No replicas are written into it."""
    return Walk().query(copied(query), tables, outer)


@dataclass(frozen=True)
class Walk:
    """Adds replicas to the queries that it walks through: so many, or one with MARK still in its name."""

    replicas: int | None = None

    def query(
        self,
        node: exp.Expr,
        tables: Mapping[str, Rows],
        outer: Scope | None = None,
        places: Collection[int] | None = None,
    ) -> Rows:
        """With `places`, the columns there have replicas, and no others."""
        node = node.unnest()
        tables = self._with(node, tables, outer)
        if isinstance(node, exp.Select):
            return self._select(node, tables, outer, places)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, tables, outer, places)
        raise NotFollowed(node.key)

    def _with(self, node: exp.Expr, tables: Mapping[str, Rows], outer: Scope | None) -> Mapping[str, Rows]:
        clause = node.args.get("with_")
        if clause is None:
            return tables
        if clause.args.get("recursive"):
            raise NotFollowed("RECURSIVE")
        for part in clause.expressions:
            found = self.query(part.this, tables, outer).renamed(part.args["alias"])
            tables = {**tables, part.alias.lower(): found}
        return tables

    def _set_operation(
        self,
        node: exp.SetOperation,
        tables: Mapping[str, Rows],
        outer: Scope | None,
        places: Collection[int] | None,
    ) -> Rows:
        if places is None:
            # Both sides need replicas of the same columns: first it is seen which ones are noisy on either.
            rows = Walk().query(copied(node), tables, outer, ())
            places = [place for place, (_, made) in enumerate(rows.columns) if made.kind is Kind.NOISY]
        left, right = (self.query(side, tables, outer, places) for side in (node.left, node.right))
        if len(left.columns) != len(right.columns) or node.args.get("by_name"):
            raise NotFollowed("BY NAME")
        pairs = zip(left.columns, right.columns, strict=True)
        both = [(name, _either(one, other)) for (name, one), (_, other) in pairs]
        kept = isinstance(node, exp.Union) and not node.args.get("distinct")
        if not kept:
            both = [(name, made.lost) for name, made in both]
        chosen = left.chosen or right.chosen or (not kept and any(made.kind for _, made in both))
        return NoiseInExpressions(partial(_rows_of, tables), Scope()).cut(Rows(tuple(both), chosen), node)

    def _select(
        self, select: exp.Select, tables: Mapping[str, Rows], outer: Scope | None, places: Collection[int] | None
    ) -> Rows:
        sources = self._sources(select, tables, outer)
        scope = Scope(sources, {}, outer)
        noise = NoiseInExpressions(partial(_rows_of, tables), scope, joined=len(sources) > 1).over_rows_of(select)
        distinct = select.args.get("distinct")
        is_compared = distinct is not None and distinct.args.get("on") is None
        columns, added = _columns(select, noise, places, is_compared)
        joins = list(self._pulled(added, tables))
        if joins and select.args.get("from_") is None:
            select.from_(ONE_ROW, copy=False)
        for join in joins:
            select.append("joins", join)
        select.set("expressions", [*select.expressions, *self._numbered(added)])
        chosen = noise.chosen or noise.reads(select.args.get("having"), select.args.get("qualify"))
        chosen |= distinct is not None and not is_compared
        is_sorted = any(rows.sorted for rows in sources.values())
        return noise.cut(Rows(tuple(columns), chosen, is_sorted), select)

    def _pulled(self, added: Sequence[exp.Expr], tables: Mapping[str, Rows]) -> Iterator[exp.Join]:
        """Subqueries in replicas, as rows to join: read once, where each replica would have read its own."""
        for number, query in enumerate([query for item in added for query in queries_in(item)]):
            name, select = f"_value{number}", copied(query).unnest()
            select.set("expressions", [_renamed(select.expressions[0].unalias(), name)])
            self.query(select, tables, None, (0,))
            select.set("expressions", select.expressions[1:])
            query.replace(exp.column(exp.to_identifier(f"{name}{MARK}", quoted=True), name))
            rows = exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(name)))
            yield exp.Join(this=rows, side="LEFT", on=exp.true())

    def _numbered(self, added: Sequence[exp.Expr]) -> list[exp.Expr]:
        """All replicas as one piece of text: they differ by their numbers alone."""
        if self.replicas is None or not added:
            return list(added)
        texts = [written(item) for item in added]
        return [exp.Var(this=", ".join(numbered(text, number) for text in texts for number in range(self.replicas)))]

    def _sources(self, select: exp.Select, tables: Mapping[str, Rows], outer: Scope | None) -> dict[str, Rows]:
        if select.args.get("laterals") or select.args.get("pivots"):
            raise NotFollowed("LATERAL")
        clause = select.args.get("from_")
        found = [clause.this] if clause is not None else []
        found += [join.this for join in select.args.get("joins") or []]
        rows: dict[str, Rows] = {}
        for place, source in enumerate(found):
            name = source.alias_or_name or f"_source{place}"
            rows[name.lower()] = self._source(source, tables, outer).renamed(source.args.get("alias"))
        return rows

    def _source(self, source: exp.Expr, tables: Mapping[str, Rows], outer: Scope | None) -> Rows:
        if source.args.get("pivots") or source.args.get("sample"):
            raise NotFollowed("PIVOT")
        if isinstance(source, exp.Subquery):
            return self.query(source.this, tables, outer)
        if isinstance(source, exp.Values) and source.args.get("alias") is not None:
            return Rows(tuple((part.name, PLAIN) for part in source.args["alias"].args.get("columns") or []))
        if isinstance(source, exp.Table) and source.name.lower() in tables:
            return tables[source.name.lower()]
        raise NotFollowed(source.key)


def _either(one: Made, other: Made) -> Made:
    """Of a column whose rows come from both sides; replicas are called as on the left."""
    worst = max(one, other, key=lambda made: made.kind)
    return Made(worst.kind, one.replica or worst.replica, one.by_row or other.by_row, one.stepped or other.stepped)


def _columns(
    select: exp.Select, noise: NoiseInExpressions, places: Collection[int] | None, is_compared: bool
) -> tuple[list[tuple[str, Made]], list[exp.Expr]]:
    """What a SELECT gives, and the replicas that are to stand beside it."""
    columns: list[tuple[str, Made]] = []
    added: list[exp.Expr] = []
    for place, item in enumerate(select.expressions):
        if item.is_star:
            columns += _all_columns(item, noise.scope.sources, is_compared or places is not None)
            continue
        name, made = item.alias_or_name or f"_column{place}", noise.made(item)
        if is_compared:
            made = made.lost
        if made.kind is Kind.NOISY if places is None else place in places:
            made = replace(made, replica=f"{name}{MARK}")
            added.append(_renamed(noise.replica(item), made.replica))
        columns.append((name, made))
    return columns, added


def _all_columns(item: exp.Expr, sources: Mapping[str, Rows], by_place: bool) -> list[tuple[str, Made]]:
    """What a star stands for: replicas come with it."""
    star, table = item.find(exp.Star), item.args.get("table")
    if star is None or any(star.args.values()) or (table is not None and table.name.lower() not in sources):
        raise NotFollowed("*")
    chosen = sources.values() if table is None else [sources[table.name.lower()]]
    columns = [column for rows in chosen for column in rows.columns]
    if by_place and any(made.kind for _, made in columns):
        raise NotFollowed("*")
    return columns


def _renamed(tree: exp.Expr, name: str) -> exp.Expr:
    return exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True))
