-- What the closing of months reads (reporting/closing).

CREATE OR REPLACE VIEW batch_days {{onCluster}} AS
SELECT
    s.account_id AS account_id, s.booked_day AS booked_day, s.day AS day, s.correction_of AS correction_of, s.fleet_id AS fleet_id,
    s.external_store_id AS external_store_id,
    sum(s.created) AS created, sum(s.delivered) AS delivered, sum(s.failed) AS failed, sum(s.cancelled) AS cancelled,
    sum(s.cash_count) AS cash_count, sum(s.card_count) AS card_count, sum(s.prepaid_count) AS prepaid_count,
    sum(s.no_payment_type_count) AS no_payment_type_count, sum(s.cash_without_amount_count) AS cash_without_amount_count,
    sum(s.order_amount_delivered) AS order_amount_delivered, sum(s.cash_expected) AS cash_expected, sum(s.card_expected) AS card_expected,
    sum(s.prepaid_amount) AS prepaid_amount, sum(s.no_payment_type_amount) AS no_payment_type_amount,
    argMax(s.fleet_name, s.fleet_youngest) AS fleet_name, max(s.fleet_youngest) AS fleet_youngest,
    argMax(s.store_name, s.store_youngest) AS store_name, max(s.store_youngest) AS store_youngest,
    argMax(s.delivered_fleet_name, s.delivered_fleet_youngest) AS delivered_fleet_name, max(s.delivered_fleet_youngest) AS delivered_fleet_youngest,
    argMax(s.delivered_store_name, s.delivered_store_youngest) AS delivered_store_name, max(s.delivered_store_youngest) AS delivered_store_youngest
FROM
(
    SELECT {{template "fact_columns"}} FROM closed_orders AS r {{template "facts"}} WHERE r.batch = {batch:UUID} AND r.sign != 0
) AS s
GROUP BY account_id, booked_day, day, correction_of, fleet_id, external_store_id
COMMENT 'What closed_days must have of a batch of closed_orders.';
