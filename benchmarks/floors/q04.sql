SELECT o_orderpriority, SUM(orders)
FROM (
    SELECT o_custkey, o_orderpriority, COUNT(*) AS orders
    FROM orders
    WHERE o_orderdate >= DATE '1993-07-01'
      AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH
      AND EXISTS (
          SELECT *
          FROM lineitem
          WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate
      )
    GROUP BY o_custkey, o_orderpriority
)
GROUP BY o_orderpriority
ORDER BY o_orderpriority
