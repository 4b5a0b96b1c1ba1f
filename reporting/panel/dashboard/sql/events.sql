SELECT version, kind, status, at, failure_reason, cancel_reason, courier_name, eta_dropoff_at FROM order_events
PREWHERE account_id = {account:UUID} AND business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY sequence LIMIT 255
