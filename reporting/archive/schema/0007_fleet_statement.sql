-- Report fleet-statement (design section 8): what a fleet did, by month and
-- store. created counts in the month of the creation; everything else counts in
-- the month in which the order ended. A month at the edge of the period shows
-- only its days within the period.
--
-- An order that ended in a later month than it was created in belongs to two
-- groups, so the orders are first summed up by both months, and these sums are
-- then dealt out. 1970-01-01 stands for "not within the period". Names and the
-- 31 days are as in expected_collections.
CREATE OR REPLACE VIEW fleet_statement {{onCluster}} AS
SELECT
    counted.1 AS month, account_id, fleet_id,
    argMaxMerge(fleet_names) AS fleet_name,
    external_store_id,
    argMaxIfMerge(store_names) AS store_name,
    sumIf(orders, counted.2) AS created,
    sumIf(delivered_orders, counted.3) AS delivered,
    sumIf(failed_orders, counted.3) AS failed,
    sumIf(cancelled_orders, counted.3) AS cancelled,
    sumIf(delivered_amount, counted.3) AS order_amount_delivered,
    sumIf(cash, counted.3) AS cash_expected,
    sumIf(card, counted.3) AS card_expected
FROM
(
    SELECT
        account_id, fleet_id, external_store_id,
        if(business_day BETWEEN {from:Date} AND {to:Date}, toStartOfMonth(business_day), toDate(0)) AS created_month,
        if(toDate(ended_at) BETWEEN {from:Date} AND {to:Date}, toStartOfMonth(toDate(assumeNotNull(ended_at))), toDate(0)) AS ended_month,
        argMaxState(fleet_name, bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(created_at)), 128), toUInt256(toUInt128(order_id)))) AS fleet_names,
        argMaxIfState(store_name, bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(created_at)), 128), toUInt256(toUInt128(order_id))), store_name != '') AS store_names,
        count() AS orders,
        countIf(status = 'Delivered') AS delivered_orders,
        countIf(status = 'Failed') AS failed_orders,
        countIf(status = 'Cancelled') AS cancelled_orders,
        sumIf(ifNull(order_amount, 0), status = 'Delivered') AS delivered_amount,
        sumIf(expected_collection, payment_type = 'Cash') AS cash,
        sumIf(expected_collection, payment_type = 'Card') AS card
    FROM orders FINAL
    WHERE business_day BETWEEN {from:Date} - 31 AND {to:Date}
        AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
        AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
        AND ({store:String} = '' OR external_store_id = {store:String})
    GROUP BY account_id, fleet_id, external_store_id, created_month, ended_month
)
ARRAY JOIN if(created_month = ended_month,
    [(created_month, true, true)],
    [(created_month, true, false), (ended_month, false, true)]) AS counted
WHERE month != toDate(0)
GROUP BY month, account_id, fleet_id, external_store_id
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'What a fleet did, by month and store: created in the month of the creation, all else in the month in which the order ended. month is its first day. SELECT * FROM fleet_statement(from=''2026-01-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY month, account_id, fleet_id, external_store_id';
