PREWHERE business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY version DESC LIMIT 1
