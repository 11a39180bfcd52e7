SELECT
    l_returnflag, l_linestatus, SUM(quantity), SUM(price), SUM(discounted), SUM(charge), SUM(discount), SUM(lines)
FROM (
    SELECT
        o_custkey,
        l_returnflag,
        l_linestatus,
        SUM(l_quantity) AS quantity,
        SUM(l_extendedprice) AS price,
        SUM(l_extendedprice * (1 - l_discount)) AS discounted,
        SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charge,
        SUM(l_discount) AS discount,
        COUNT(*) AS lines
    FROM lineitem, orders
    WHERE l_orderkey = o_orderkey
      AND l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
    GROUP BY o_custkey, l_returnflag, l_linestatus
)
GROUP BY l_returnflag, l_linestatus
ORDER BY l_returnflag, l_linestatus
