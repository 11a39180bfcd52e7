SELECT SUM(promo), SUM(revenue)
FROM (
    SELECT
        o_custkey,
        SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END) AS promo,
        SUM(l_extendedprice * (1 - l_discount)) AS revenue
    FROM lineitem, orders, part
    WHERE l_orderkey = o_orderkey
      AND l_partkey = p_partkey
      AND l_shipdate >= DATE '1995-09-01'
      AND l_shipdate < DATE '1995-09-01' + INTERVAL '1' MONTH
    GROUP BY o_custkey
)
