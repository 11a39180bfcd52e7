SELECT SUM(revenue)
FROM (
    SELECT o_custkey, SUM(l_extendedprice * l_discount) AS revenue
    FROM lineitem, orders
    WHERE l_orderkey = o_orderkey
      AND l_shipdate >= DATE '1994-01-01'
      AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
      AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01
      AND l_quantity < 24
    GROUP BY o_custkey
)
