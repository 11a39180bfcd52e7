WITH averages AS MATERIALIZED (
    SELECT l_partkey, SUM(quantity) / SUM(lines) AS average
    FROM (
        SELECT o_custkey, l_partkey, SUM(l_quantity) AS quantity, COUNT(*) AS lines
        FROM lineitem, orders, part
        WHERE l_orderkey = o_orderkey
          AND p_partkey = l_partkey
          AND p_brand = 'Brand#23'
          AND p_container = 'MED BOX'
        GROUP BY o_custkey, l_partkey
    )
    GROUP BY l_partkey
)
SELECT SUM(price)
FROM (
    SELECT o_custkey, SUM(l_extendedprice) AS price
    FROM lineitem, orders, averages
    WHERE l_orderkey = o_orderkey
      AND lineitem.l_partkey = averages.l_partkey
      AND l_quantity < 0.2 * average
    GROUP BY o_custkey
)
