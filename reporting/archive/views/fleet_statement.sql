-- What a fleet did, by month and store. created counts in the month of the creation; everything
-- else counts in the month in which the order ended. A month at the edge of the period shows only
-- its days within the period.
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
        AND {{template "narrowed"}}
    GROUP BY account_id, fleet_id, external_store_id, created_month, ended_month
)
ARRAY JOIN if(created_month = ended_month,
    [(created_month, true, true)],
    [(created_month, true, false), (ended_month, false, true)]) AS counted
WHERE month != toDate(0)
GROUP BY month, account_id, fleet_id, external_store_id
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'What a fleet did, by month and store: created in the month of the creation, all else in the month in which the order ended. month is its first day. SELECT * FROM fleet_statement(from=''2026-01-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY month, account_id, fleet_id, external_store_id';

{{- define "statement"}}
SELECT
    toStartOfMonth(r.on_day) AS month, r.account_id AS account_id, r.fleet_id AS fleet_id,
    argMax(r.fleet_name, r.fleet_youngest) AS fleet_name,
    r.external_store_id AS external_store_id,
    argMax(r.store_name, r.store_youngest) AS store_name,
    sum(r.created) AS created, sum(r.delivered) AS delivered, sum(r.failed) AS failed, sum(r.cancelled) AS cancelled,
    sum(r.order_amount_delivered) AS order_amount_delivered,
    sum(r.cash_expected) AS cash_expected, sum(r.card_expected) AS card_expected,
    sum(r.prepaid_count) AS prepaid_count, sum(r.prepaid_amount) AS prepaid_amount,
    sum(r.no_payment_type_count) AS no_payment_type_count, sum(r.no_payment_type_amount) AS no_payment_type_amount,
    nullIf(r.of, toDate(0)) AS correction_of
FROM ({{template "days" .}}) AS r
GROUP BY month, r.account_id, r.fleet_id, r.external_store_id, r.of
HAVING created != 0 OR delivered != 0 OR failed != 0 OR cancelled != 0 OR order_amount_delivered != 0 OR cash_expected != 0 OR card_expected != 0
    OR prepaid_count != 0 OR prepaid_amount != 0 OR no_payment_type_count != 0 OR no_payment_type_amount != 0
{{- end}}

CREATE OR REPLACE VIEW fleet_statement_booked {{onCluster}} AS
{{template "statement" "booked"}}
COMMENT 'The fleet statement as it was booked; corrections have rows of their own in the month in which they were booked.';

CREATE OR REPLACE VIEW fleet_statement_known {{onCluster}} AS
{{template "statement" "known"}}
COMMENT 'The fleet statement of closed months as it was known at the end of the day as_of.';
