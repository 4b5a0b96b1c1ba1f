SELECT reported_at FROM late_deliveries FINAL
PREWHERE account_id = {account:UUID} AND business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY reported_at LIMIT 20
