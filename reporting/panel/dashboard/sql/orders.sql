-- Finds the orders of a page first and reads the other columns of these only. What never
-- changes is compared in PREWHERE, before the versions are, the rest in the latest version.
-- The business days say which partitions are read. Orders of one millisecond are sorted by
-- their ids as text. folded_store is what delivery.FoldName makes of a store's name; its
-- last step removes the dot of an İ that was lowered the English way.
WHERE (account_id, business_day, order_id) GLOBAL IN (
	WITH replaceAll(lowerUTF8(translateUTF8(store_name, 'İIı', 'iii')), '\xCC\x87', '') AS folded_store
	SELECT account_id, business_day, order_id FROM orders
	PREWHERE business_day BETWEEN {from:Date} AND {to:Date} AND created_at >= fromUnixTimestamp64Milli({since:Int64})
		AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
		AND (created_at < fromUnixTimestamp64Milli({after:Int64})
			OR created_at = fromUnixTimestamp64Milli({after:Int64}) AND toUInt128(order_id) < toUInt128({after_order:UUID}))
	WHERE ({text:String} = '' OR external_order_id = {text:String} OR external_store_id = {text:String}
			OR position(folded_store, {folded:String}) > 0 OR {prefix:String} != '' AND startsWith(toString(order_id), {prefix:String}))
		AND multiIf({status:String} = '', 1, {status:String} = 'open', status NOT IN ('Delivered', 'Failed', 'Cancelled'),
			{status:String} = 'overdue', status NOT IN ('Delivered', 'Failed', 'Cancelled')
				AND greatest(created_at, ready_at) < fromUnixTimestamp64Milli({latest:Int64}),
			status = {status:String})
	ORDER BY created_at DESC, toUInt128(order_id) DESC LIMIT {limit:UInt32})
ORDER BY created_at DESC, toUInt128(order_id) DESC
