-- Reports order-ledger, expected-collections and exceptions, each as before with
-- columns added at its end: the reason of a cancellation and the courier; and of
-- what was delivered, how many cash orders gave no amount (they count in cash_count
-- and expect nothing) and how many orders gave no payment type, so that
-- delivered_count = cash_count + card_count + prepaid_count + no_payment_type_count.
-- An order that a fleet delivered without naming a courier is an exception, and a
-- Delivered is a late delivery after any other end, not only after TimedOut.
CREATE OR REPLACE VIEW order_ledger {{onCluster}} AS
SELECT
    order_id, external_order_id, external_store_id, store_name, tax_number, fleet_id, fleet_name,
    status, failure_reason, created_at, ordered_at, picked_up_at, delivered_at, ended_at,
    payment_type, order_amount, collection_amount, expected_collection, 'TRY' AS currency,
    cancel_reason, courier_name
FROM orders FINAL
WHERE business_day BETWEEN {from:Date} AND {to:Date}
    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
    AND ({store:String} = '' OR external_store_id = {store:String})
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'Every order created in the period, as it is now. SELECT * FROM order_ledger(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY created_at, order_id';

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
    sumIf(ifNull(order_amount, 0), payment_type = 'Prepaid') AS prepaid_amount,
    countIf(payment_type = 'Cash' AND collection_amount IS NULL) AS cash_without_amount_count,
    countIf(payment_type = '') AS no_payment_type_count
FROM orders FINAL
WHERE business_day BETWEEN {from:Date} - 31 AND {to:Date}
    AND status = 'Delivered' AND toDate(delivered_at) BETWEEN {from:Date} AND {to:Date}
    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
    AND ({store:String} = '' OR external_store_id = {store:String})
GROUP BY day, account_id, fleet_id, external_store_id
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'What couriers should have collected, by local day of delivery, fleet and store; nobody confirms it. prepaid_amount is the sum of the order amounts. SELECT * FROM expected_collections(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY day, account_id, fleet_id, external_store_id';

CREATE OR REPLACE VIEW exceptions {{onCluster}} AS
SELECT * FROM
(
    SELECT
        found.1 AS kind, found.2 AS reason,
        account_id, order_id, external_order_id, external_store_id, store_name, fleet_id, fleet_name,
        status, failure_reason, created_at, ended_at, CAST(NULL, 'Nullable(DateTime64(3, ''Etc/GMT-3''))') AS reported_at,
        payment_type, order_amount, collection_amount, cancel_reason, courier_name
    FROM orders FINAL
    ARRAY JOIN arrayFilter(f -> f.1 != '', [
        if(payment_type IN ('Cash', 'Card') AND collection_amount IS NULL,
            ('CollectionMissing', 'paid at the door, but no amount to collect was given: nothing is expected'), ('', '')),
        if(payment_type = 'Prepaid' AND collection_amount IS NOT NULL,
            ('CollectionOnPrepaid', 'prepaid, but an amount to collect was given: it is not expected'), ('', '')),
        if(payment_type IN ('Cash', 'Card') AND collection_amount != order_amount,
            ('CollectionDiffers', 'the amount to collect is not the amount of the order'), ('', '')),
        if(status IN ('Failed', 'Cancelled') AND collection_amount > 0,
            ('CollectionUndelivered', 'an amount was to be collected, but the order was not delivered'), ('', '')),
        if(without_courier,
            ('CourierMissing', 'delivered, but no courier was named: it is not known who has the amount'), ('', '')),
        if(payment_type = '',
            ('PaymentTypeMissing', 'no payment type was given: nothing is expected'), ('', ''))
    ]) AS found
    WHERE business_day BETWEEN {from:Date} AND {to:Date}
        AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
        AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
        AND ({store:String} = '' OR external_store_id = {store:String})
    UNION ALL
    SELECT
        'LateDelivery', 'a delivery was reported after the order had failed or been cancelled: the amount may have been collected',
        account_id, order_id, external_order_id, external_store_id, store_name, fleet_id, fleet_name,
        status, failure_reason, created_at, ended_at, late.reported_at,
        payment_type, order_amount, collection_amount, cancel_reason, courier_name
    FROM
    (
        SELECT * FROM orders FINAL
        WHERE business_day BETWEEN {from:Date} AND {to:Date}
            AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
            AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
            AND ({store:String} = '' OR external_store_id = {store:String})
            AND (account_id, business_day, order_id) GLOBAL IN
            (
                SELECT account_id, business_day, order_id FROM late_deliveries
                WHERE business_day BETWEEN {from:Date} AND {to:Date}
                    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
            )
    ) AS ended
    GLOBAL INNER JOIN
    (
        SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL
        WHERE business_day BETWEEN {from:Date} AND {to:Date}
            AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    ) AS late USING (account_id, business_day, order_id)
)
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'Orders to look at before the sums are settled, one row per order and kind. SELECT * FROM exceptions(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY created_at, order_id, kind, reported_at';
