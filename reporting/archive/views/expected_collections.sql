-- What couriers should have collected, by local day of delivery, fleet and store.
--
-- A store's external id is unique within its account only, so the account is
-- part of the key. The names are those of the group's youngest order, the
-- larger order_id of two that are equally young; an empty store name is passed
-- over. cash_without_amount_count are cash orders that gave no amount: they count in
-- cash_count and expect nothing. So
-- delivered_count = cash_count + card_count + prepaid_count + no_payment_type_count.
--
-- prepaid_amount and no_payment_type_amount are order amounts as
-- order_amount_delivered is, while cash_expected and card_expected are what was to
-- be collected. So order_amount_delivered is the sum of the four, but for the cash
-- and card orders whose amount to collect is missing or is not their order amount.
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
    sumIf(ifNull(order_amount, 0), payment_type = 'Prepaid') AS prepaid_amount,
    countIf(payment_type = 'Cash' AND collection_amount IS NULL) AS cash_without_amount_count,
    countIf(payment_type = '') AS no_payment_type_count,
    sumIf(ifNull(order_amount, 0), payment_type = '') AS no_payment_type_amount
FROM orders FINAL
WHERE business_day BETWEEN {from:Date} - 31 AND {to:Date}
    AND status = 'Delivered' AND toDate(delivered_at) BETWEEN {from:Date} AND {to:Date}
    AND {{template "narrowed"}}
GROUP BY day, account_id, fleet_id, external_store_id
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'What couriers should have collected, by local day of delivery, fleet and store; nobody confirms it. prepaid_amount is the sum of the order amounts. SELECT * FROM expected_collections(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY day, account_id, fleet_id, external_store_id';

{{- define "collections"}}
SELECT
    r.on_day AS day, r.account_id AS account_id, r.fleet_id AS fleet_id,
    argMax(r.delivered_fleet_name, r.delivered_fleet_youngest) AS fleet_name,
    r.external_store_id AS external_store_id,
    argMax(r.delivered_store_name, r.delivered_store_youngest) AS store_name,
    sum(r.delivered) AS delivered_count,
    sum(r.cash_count) AS cash_count, sum(r.cash_expected) AS cash_expected,
    sum(r.card_count) AS card_count, sum(r.card_expected) AS card_expected,
    sum(r.prepaid_count) AS prepaid_count, sum(r.prepaid_amount) AS prepaid_amount,
    sum(r.cash_without_amount_count) AS cash_without_amount_count,
    sum(r.no_payment_type_count) AS no_payment_type_count, sum(r.no_payment_type_amount) AS no_payment_type_amount,
    nullIf(r.of, toDate(0)) AS correction_of
FROM ({{template "days" .}}) AS r
GROUP BY r.on_day, r.account_id, r.fleet_id, r.external_store_id, r.of
HAVING delivered_count != 0 OR cash_count != 0 OR cash_expected != 0 OR card_count != 0 OR card_expected != 0 OR prepaid_count != 0
    OR prepaid_amount != 0 OR cash_without_amount_count != 0 OR no_payment_type_count != 0 OR no_payment_type_amount != 0
{{- end}}

CREATE OR REPLACE VIEW expected_collections_booked {{onCluster}} AS
{{template "collections" "booked"}}
COMMENT 'Expected collections as they were booked; a correction has a row of its own on the day on which it was booked.';

CREATE OR REPLACE VIEW expected_collections_known {{onCluster}} AS
{{template "collections" "known"}}
COMMENT 'Expected collections of closed months as they were known at the end of the day as_of.';
