-- What finance reads with SQL and with BI tools: a database of its own, in which every name says
-- whether its figures are booked (closed months never change) or live (as everything is known now).
--
-- The views have no parameters, so tools can show them, and are narrowed by WHERE. Whoever may read
-- them needs no right to the tables (DEFINER): these hold rows that replace each other, rows that
-- do not count yet, and the audit trail. The user who migrates is the definer, and has to stay.

CREATE DATABASE IF NOT EXISTS {{finance}} {{onCluster}};

CREATE OR REPLACE VIEW {{finance}}.booked_orders {{onCluster}} DEFINER = CURRENT_USER SQL SECURITY DEFINER AS
SELECT
    r.posted_day AS day, r.account_id AS account_id, r.fleet_id AS fleet_id, r.fleet_name AS fleet_name, r.external_store_id AS external_store_id,
    r.store_name AS store_name, r.tax_number AS tax_number, r.order_id AS order_id, r.external_order_id AS external_order_id,
    r.status AS status, r.failure_reason AS failure_reason, r.cancel_reason AS cancel_reason, r.created_at AS created_at,
    r.delivered_at AS delivered_at, r.ended_at AS ended_at, r.payment_type AS payment_type,
    r.sign AS orders, r.sign * r.order_amount AS order_amount, r.sign * r.collection_amount AS collection_amount,
    if(r.status = 'Delivered' AND r.payment_type IN ('Cash', 'Card'), r.sign * ifNull(r.collection_amount, 0), 0) AS expected_collection,
    r.courier_name AS courier_name, nullIf(r.correction_of, toDate(0)) AS correction_of,
    multiIf(r.correction_of = toDate(0), '', r.sign = -1, 'reversal', 'correction') AS booking, r.sealed AS sealed
FROM
(
    SELECT {{template "columns"}}, true AS sealed FROM closed_orders WHERE {{template "sealed_by_now"}}
    UNION ALL
    SELECT {{template "columns"}}, false AS sealed FROM ({{template "open" "all"}})
) AS r
WHERE r.sign != 0
COMMENT 'BOOKED: the order ledger. One row per order, by the day of its creation; a correction of a closed month is two rows (booking: reversal, correction) on the day on which it was booked. Sum orders and the amounts. Rows with sealed = true never change; the others are of the open months, as they are now. SELECT day, sum(orders), sum(expected_collection) FROM booked_orders WHERE day BETWEEN ''2026-10-01'' AND ''2026-10-31'' GROUP BY day ORDER BY day';

CREATE OR REPLACE VIEW {{finance}}.booked_days {{onCluster}} DEFINER = CURRENT_USER SQL SECURITY DEFINER AS
SELECT r.on_day AS day, r.account_id AS account_id, r.fleet_id AS fleet_id, r.fleet_name AS fleet_name, r.external_store_id AS external_store_id,
    r.store_name AS store_name, nullIf(r.of, toDate(0)) AS correction_of,
    r.created AS created, r.delivered AS delivered, r.failed AS failed, r.cancelled AS cancelled,
    r.cash_count AS cash_count, r.card_count AS card_count, r.prepaid_count AS prepaid_count, r.no_payment_type_count AS no_payment_type_count,
    r.cash_without_amount_count AS cash_without_amount_count,
    r.order_amount_delivered AS order_amount_delivered, r.cash_expected AS cash_expected, r.card_expected AS card_expected,
    r.prepaid_amount AS prepaid_amount, r.no_payment_type_amount AS no_payment_type_amount, r.sealed AS sealed
FROM
(
    SELECT booked_day AS on_day, correction_of AS of, {{template "day_columns"}}, true AS sealed
    FROM closed_days WHERE {{template "sealed_by_now"}}
    UNION ALL
    SELECT booked_day, correction_of, {{template "day_columns"}}, false AS sealed
    FROM (SELECT {{template "fact_columns"}} FROM ({{template "open" "all"}}) AS r {{template "facts"}})
) AS r
COMMENT 'BOOKED: expected collections and the fleet statement. Sums by day, account, fleet and store; created goes by the day of the creation, all else by the day of the end. A day can have several rows, a correction has its own: sum them. Rows with sealed = true never change. SELECT fleet_id, sum(cash_expected), sum(card_expected) FROM booked_days WHERE day BETWEEN ''2026-10-01'' AND ''2026-10-31'' GROUP BY fleet_id';

CREATE OR REPLACE VIEW {{finance}}.booked_exceptions {{onCluster}} DEFINER = CURRENT_USER SQL SECURITY DEFINER AS
SELECT
    r.posted_day AS day, found.1 AS kind, found.2 AS reason, r.account_id AS account_id, r.order_id AS order_id,
    r.external_order_id AS external_order_id, r.external_store_id AS external_store_id, r.store_name AS store_name,
    r.fleet_id AS fleet_id, r.fleet_name AS fleet_name, r.status AS status, r.failure_reason AS failure_reason, r.cancel_reason AS cancel_reason,
    r.created_at AS created_at, r.ended_at AS ended_at, r.reported_at AS reported_at, r.payment_type AS payment_type,
    r.order_amount AS order_amount, r.collection_amount AS collection_amount, r.courier_name AS courier_name,
    nullIf(r.correction_of, toDate(0)) AS correction_of, r.sealed AS sealed
FROM
(
    SELECT {{template "columns"}}, true AS sealed FROM closed_orders WHERE {{template "sealed_by_now"}}
    UNION ALL
    SELECT {{template "columns"}}, false AS sealed FROM ({{template "open" "all"}} UNION ALL {{template "open_late" "all"}})
) AS r
{{template "found_in_rows"}}
COMMENT 'BOOKED: exceptions. One row per order and kind, by the day of the creation; of a correction by the day on which it was booked. An order of several kinds has several rows: do not sum its amounts over kinds. SELECT kind, count() FROM booked_exceptions WHERE day BETWEEN ''2026-10-01'' AND ''2026-10-31'' GROUP BY kind';

CREATE OR REPLACE VIEW {{finance}}.live_orders {{onCluster}} DEFINER = CURRENT_USER SQL SECURITY DEFINER AS
SELECT
    business_day AS day, account_id, fleet_id, fleet_name, external_store_id, store_name, tax_number, order_id, external_order_id,
    status, failure_reason, cancel_reason, created_at, ordered_at, ready_at, assigned_at, picked_up_at, delivered_at, ended_at, updated_at,
    payment_type, order_amount, collection_amount, expected_collection, courier_name
FROM orders FINAL
COMMENT 'LIVE: every order as it is known now, by the day of its creation, also of closed months, whose booked figures are in booked_orders. One row per order: count() and the sums of amounts are right. SELECT day, count(), sum(expected_collection) FROM live_orders WHERE day BETWEEN ''2026-11-01'' AND ''2026-11-30'' GROUP BY day ORDER BY day';

CREATE OR REPLACE VIEW {{finance}}.live_exceptions {{onCluster}} DEFINER = CURRENT_USER SQL SECURITY DEFINER AS
SELECT toDate(created_at) AS day, * FROM
(
    {{template "live_exceptions" "all"}}
)
COMMENT 'LIVE: exceptions, as everything is known now, by the day of the creation. One row per order and kind: do not sum amounts over kinds. SELECT kind, count() FROM live_exceptions WHERE day BETWEEN ''2026-11-01'' AND ''2026-11-30'' GROUP BY kind';

CREATE OR REPLACE VIEW {{finance}}.live_statuses {{onCluster}} DEFINER = CURRENT_USER SQL SECURITY DEFINER AS
SELECT business_day AS day, account_id, order_id, sequence, event_id, status, at, failure_reason, cancel_reason
FROM order_events FINAL
WHERE kind = 'status'
COMMENT 'LIVE: one row per status that an order has reached, by the day of the order''s creation. SELECT status, count() FROM live_statuses WHERE day = ''2026-11-21'' GROUP BY status';
