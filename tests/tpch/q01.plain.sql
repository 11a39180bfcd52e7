-- Public groups are answered, empty ones too.
SELECT
    flag AS l_returnflag,
    status AS l_linestatus,
    COALESCE(SUM(l_quantity), 0) AS sum_qty,
    COALESCE(SUM(l_extendedprice), 0) AS sum_base_price,
    COALESCE(SUM(l_extendedprice * (1 - l_discount)), 0) AS sum_disc_price,
    COALESCE(SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)), 0) AS sum_charge,
    AVG(l_quantity) AS avg_qty,
    AVG(l_extendedprice) AS avg_price,
    AVG(l_discount) AS avg_disc,
    COUNT(l_orderkey) AS count_order
FROM (VALUES ('A'), ('N'), ('R')) AS flags (flag)
CROSS JOIN (VALUES ('F'), ('O')) AS statuses (status)
LEFT JOIN lineitem
    ON l_returnflag = flag AND l_linestatus = status AND l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
GROUP BY flag, status
ORDER BY flag, status
