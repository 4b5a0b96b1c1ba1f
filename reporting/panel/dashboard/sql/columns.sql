SELECT account_id, order_id, version, external_order_id, external_store_id, store_name, fleet_id, fleet_name,
	status, failure_reason, cancel_reason, created_at, ordered_at, ready_at, ifNull(ended_at, updated_at),
	payment_type, toInt64(order_amount * 100), toInt64(collection_amount * 100)
FROM orders
