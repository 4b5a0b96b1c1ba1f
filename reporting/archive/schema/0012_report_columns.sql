-- All reports, each as before with columns added at its end: the reason of a
-- cancellation and the courier; and of what was delivered, how many cash orders gave
-- no amount (they count in cash_count and expect nothing), and how many orders gave
-- no payment type and their amounts, so that
-- delivered_count = cash_count + card_count + prepaid_count + no_payment_type_count.
--
-- prepaid_amount and no_payment_type_amount are order amounts as
-- order_amount_delivered is, while cash_expected and card_expected are what was to
-- be collected. So order_amount_delivered is the sum of the four, but for the cash
-- and card orders whose amount to collect is missing or is not their order amount.
--
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
    countIf(payment_type = '') AS no_payment_type_count,
    sumIf(ifNull(order_amount, 0), payment_type = '') AS no_payment_type_amount
FROM orders FINAL
WHERE business_day BETWEEN {from:Date} - 31 AND {to:Date}
    AND status = 'Delivered' AND toDate(delivered_at) BETWEEN {from:Date} AND {to:Date}
    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
    AND ({store:String} = '' OR external_store_id = {store:String})
GROUP BY day, account_id, fleet_id, external_store_id
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'What couriers should have collected, by local day of delivery, fleet and store; nobody confirms it. prepaid_amount is the sum of the order amounts. SELECT * FROM expected_collections(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY day, account_id, fleet_id, external_store_id';

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
    sumIf(card, counted.3) AS card_expected,
    sumIf(prepaid_orders, counted.3) AS prepaid_count,
    sumIf(prepaid, counted.3) AS prepaid_amount,
    sumIf(untyped_orders, counted.3) AS no_payment_type_count,
    sumIf(untyped, counted.3) AS no_payment_type_amount
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
        sumIf(expected_collection, payment_type = 'Card') AS card,
        countIf(status = 'Delivered' AND payment_type = 'Prepaid') AS prepaid_orders,
        sumIf(ifNull(order_amount, 0), status = 'Delivered' AND payment_type = 'Prepaid') AS prepaid,
        countIf(status = 'Delivered' AND payment_type = '') AS untyped_orders,
        sumIf(ifNull(order_amount, 0), status = 'Delivered' AND payment_type = '') AS untyped
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

CREATE OR REPLACE VIEW control_totals {{onCluster}} AS
SELECT
    figures.1 AS line_number, figures.2 AS line, figures.3 AS rows, figures.4 AS created, figures.5 AS orders,
    figures.6 AS delivered, figures.7 AS failed, figures.8 AS cancelled,
    figures.9 AS order_amount_delivered, figures.10 AS cash_expected, figures.11 AS card_expected, figures.12 AS prepaid_amount,
    figures.13 AS ties, figures.14 AS no_payment_type_amount
FROM
(
    SELECT
        [
            (1, 'order-ledger', l_rows, l_rows, l.1, l.2, l.3, l.4, l.5, l.6, l.7, l.8, NULL, l.9),
            (2, 'carried-in', NULL, NULL, i.1, i.2, i.3, i.4, i.5, i.6, i.7, i.8, NULL, i.9),
            (3, 'carried-out', NULL, NULL, o.1, o.2, o.3, o.4, o.5, o.6, o.7, o.8, NULL, o.9),
            (4, 'ended-in-period', NULL, NULL, e.1, e.2, e.3, e.4, e.5, e.6, e.7, e.8, NULL, e.9),
            (5, 'expected-collections', c_rows, NULL, NULL, c.1, NULL, NULL, NULL, c.2, c.3, c.4,
                c = (e.2, e.6, e.7, e.8, e.9), c.5),
            (6, 'fleet-statement', s_rows, s_created, s.1, s.2, s.3, s.4, s.5, s.6, s.7, s.8,
                s_created = l_rows AND s = e, s.9),
            (7, 'exceptions', x_rows, NULL, x_orders, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        ] AS lines,
        l + i - o AS e
    FROM
    (
        SELECT
            toInt64(count()) AS l_rows,
            (toInt64(count()), toInt64(countIf(status = 'Delivered')), toInt64(countIf(status = 'Failed')), toInt64(countIf(status = 'Cancelled')),
                sumIf(ifNull(order_amount, 0), status = 'Delivered'),
                sumIf(expected_collection, payment_type = 'Cash'),
                sumIf(expected_collection, payment_type = 'Card'),
                sumIf(ifNull(order_amount, 0), status = 'Delivered' AND payment_type = 'Prepaid'),
                sumIf(ifNull(order_amount, 0), status = 'Delivered' AND payment_type = '')) AS l,
            (toInt64(countIf(later)), toInt64(countIf(later AND status = 'Delivered')), toInt64(countIf(later AND status = 'Failed')), toInt64(countIf(later AND status = 'Cancelled')),
                sumIf(ifNull(order_amount, 0), later AND status = 'Delivered'),
                sumIf(expected_collection, later AND payment_type = 'Cash'),
                sumIf(expected_collection, later AND payment_type = 'Card'),
                sumIf(ifNull(order_amount, 0), later AND status = 'Delivered' AND payment_type = 'Prepaid'),
                sumIf(ifNull(order_amount, 0), later AND status = 'Delivered' AND payment_type = '')) AS o
        FROM
        (
            SELECT *, ifNull(toDate(ended_at) > {to:Date}, true) AS later
            FROM {{database}}.order_ledger(from={from:Date}, to={to:Date}, account={account:String}, fleet={fleet:String}, store={store:String})
        )
    ) AS ledger
    CROSS JOIN
    (
        SELECT
            (toInt64(count()), toInt64(countIf(status = 'Delivered')), toInt64(countIf(status = 'Failed')), toInt64(countIf(status = 'Cancelled')),
                sumIf(ifNull(order_amount, 0), status = 'Delivered'),
                sumIf(expected_collection, payment_type = 'Cash'),
                sumIf(expected_collection, payment_type = 'Card'),
                sumIf(ifNull(order_amount, 0), status = 'Delivered' AND payment_type = 'Prepaid'),
                sumIf(ifNull(order_amount, 0), status = 'Delivered' AND payment_type = '')) AS i
        FROM orders FINAL
        WHERE business_day < {from:Date} AND toDate(ended_at) BETWEEN {from:Date} AND {to:Date}
            AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
            AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
            AND ({store:String} = '' OR external_store_id = {store:String})
    ) AS carried_in
    CROSS JOIN
    (
        SELECT
            toInt64(count()) AS c_rows,
            (toInt64(sum(delivered_count)), sum(cash_expected), sum(card_expected), sum(prepaid_amount), sum(no_payment_type_amount)) AS c
        FROM {{database}}.expected_collections(from={from:Date}, to={to:Date}, account={account:String}, fleet={fleet:String}, store={store:String})
    ) AS collections
    CROSS JOIN
    (
        SELECT
            toInt64(count()) AS s_rows, toInt64(sum(created)) AS s_created,
            (toInt64(sum(delivered) + sum(failed) + sum(cancelled)), toInt64(sum(delivered)), toInt64(sum(failed)), toInt64(sum(cancelled)),
                sum(order_amount_delivered), sum(cash_expected), sum(card_expected), sum(prepaid_amount), sum(no_payment_type_amount)) AS s
        FROM {{database}}.fleet_statement(from={from:Date}, to={to:Date}, account={account:String}, fleet={fleet:String}, store={store:String})
    ) AS statement
    CROSS JOIN
    (
        SELECT toInt64(count()) AS x_rows, toInt64(uniqExact(order_id)) AS x_orders
        FROM {{database}}.exceptions(from={from:Date}, to={to:Date}, account={account:String}, fleet={fleet:String}, store={store:String})
    ) AS found
)
ARRAY JOIN lines AS figures
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'The sums of the other reports side by side, and whether they tie. SELECT * FROM control_totals(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY line_number';
