SELECT l_suppkey, SUM(revenue)
FROM (
    SELECT o_custkey, l_suppkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue
    FROM lineitem, orders
    WHERE l_orderkey = o_orderkey
      AND l_shipdate >= DATE '1996-01-01'
      AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
    GROUP BY o_custkey, l_suppkey
)
GROUP BY l_suppkey
