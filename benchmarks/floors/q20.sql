SELECT l_partkey, l_suppkey, SUM(quantity)
FROM (
    SELECT o_custkey, l_partkey, l_suppkey, SUM(l_quantity) AS quantity
    FROM lineitem, orders
    WHERE l_orderkey = o_orderkey
      AND l_shipdate >= DATE '1994-01-01'
      AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
    GROUP BY o_custkey, l_partkey, l_suppkey
)
GROUP BY l_partkey, l_suppkey
