-- For BI tools: without parameters, to be narrowed by WHERE. What is open is one or two months.

CREATE OR REPLACE VIEW booked_orders {{onCluster}} AS
SELECT
    r.posted_day AS day, r.account_id AS account_id, r.fleet_id AS fleet_id, r.fleet_name AS fleet_name, r.external_store_id AS external_store_id,
    r.store_name AS store_name, r.order_id AS order_id, r.external_order_id AS external_order_id, r.status AS status,
    r.failure_reason AS failure_reason, r.cancel_reason AS cancel_reason, r.created_at AS created_at, r.delivered_at AS delivered_at,
    r.ended_at AS ended_at, r.payment_type AS payment_type, r.sign * r.order_amount AS order_amount, r.sign * r.collection_amount AS collection_amount,
    if(r.status = 'Delivered' AND r.payment_type IN ('Cash', 'Card'), r.sign * ifNull(r.collection_amount, 0), 0) AS expected_collection,
    r.sign AS orders, nullIf(r.correction_of, toDate(0)) AS correction_of
FROM
(
    SELECT {{template "columns"}} FROM closed_orders WHERE batch IN (SELECT batch FROM journal WHERE kind IN ('close', 'correction'))
    UNION ALL
    {{template "open" "all"}}
) AS r
WHERE r.sign != 0
COMMENT 'Every order as it was booked, by the day of its creation; a correction by the day on which it was booked, as two rows. Sum orders and the amounts. SELECT day, sum(orders), sum(expected_collection) FROM booked_orders WHERE day >= ''2026-10-01'' GROUP BY day';

CREATE OR REPLACE VIEW booked_days {{onCluster}} AS
SELECT r.on_day AS day, r.account_id AS account_id, r.fleet_id AS fleet_id, r.fleet_name AS fleet_name, r.external_store_id AS external_store_id,
    r.store_name AS store_name, nullIf(r.of, toDate(0)) AS correction_of,
    r.created AS created, r.delivered AS delivered, r.failed AS failed, r.cancelled AS cancelled,
    r.cash_count AS cash_count, r.card_count AS card_count, r.prepaid_count AS prepaid_count, r.no_payment_type_count AS no_payment_type_count,
    r.order_amount_delivered AS order_amount_delivered, r.cash_expected AS cash_expected, r.card_expected AS card_expected,
    r.prepaid_amount AS prepaid_amount, r.no_payment_type_amount AS no_payment_type_amount
FROM
(
    SELECT booked_day AS on_day, correction_of AS of, {{template "day_columns"}}
    FROM closed_days WHERE batch IN (SELECT batch FROM journal WHERE kind IN ('close', 'correction'))
    UNION ALL
    SELECT booked_day, correction_of, {{template "day_columns"}}
    FROM (SELECT {{template "fact_columns"}} FROM ({{template "open" "all"}}) AS r {{template "facts"}})
) AS r
COMMENT 'The sums of a day, account, fleet and store as they were booked, created by the day of the creation, all else by that of the end. A day can have several rows: sum them. SELECT fleet_id, sum(cash_expected) FROM booked_days WHERE day BETWEEN ''2026-01-01'' AND ''2026-12-31'' GROUP BY fleet_id';
