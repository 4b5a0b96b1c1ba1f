-- Report expected-collections (design section 8): what couriers should have
-- collected, by local day of delivery, fleet and store.
--
-- A store's external id is unique within its account only, so the account is
-- part of the key. The names are those of the group's youngest order, the
-- larger order_id of two that are equally young; an empty store name is passed
-- over. Orders without a payment type count in delivered_count alone.
--
-- An order lives for hours at most; 31 days is where the search for its creation
-- ends. control_totals has no such end and tells when it was too early.
CREATE OR REPLACE VIEW expected_collections {{onCluster}} AS
SELECT
    toDate(assumeNotNull(delivered_at)) AS day, account_id, fleet_id,
    argMax(fleet_name, bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(created_at)), 128), toUInt256(toUInt128(order_id)))) AS fleet_name,
    external_store_id,
    argMaxIf(store_name, bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(created_at)), 128), toUInt256(toUInt128(order_id))), store_name != '') AS store_name,
    count() AS delivered_count,
    countIf(payment_type = 'Cash') AS cash_count,
    sumIf(expected_collection, payment_type = 'Cash') AS cash_expected,
    countIf(payment_type = 'Card') AS card_count,
    sumIf(expected_collection, payment_type = 'Card') AS card_expected,
    countIf(payment_type = 'Prepaid') AS prepaid_count,
    sumIf(ifNull(order_amount, 0), payment_type = 'Prepaid') AS prepaid_amount
FROM orders FINAL
WHERE business_day BETWEEN {from:Date} - 31 AND {to:Date}
    AND status = 'Delivered' AND toDate(delivered_at) BETWEEN {from:Date} AND {to:Date}
    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
    AND ({store:String} = '' OR external_store_id = {store:String})
GROUP BY day, account_id, fleet_id, external_store_id
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'What couriers should have collected, by local day of delivery, fleet and store; nobody confirms it. prepaid_amount is the sum of the order amounts. SELECT * FROM expected_collections(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY day, account_id, fleet_id, external_store_id';
