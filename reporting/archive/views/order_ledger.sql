-- Every order that was created in the period, by the local day of its creation.

CREATE OR REPLACE VIEW order_ledger {{onCluster}} AS
SELECT
    order_id, external_order_id, external_store_id, store_name, tax_number, fleet_id, fleet_name,
    status, failure_reason, created_at, ordered_at, picked_up_at, delivered_at, ended_at,
    payment_type, order_amount, collection_amount, expected_collection, 'TRY' AS currency,
    cancel_reason, courier_name, account_id
FROM orders FINAL
WHERE business_day BETWEEN {from:Date} AND {to:Date}
    AND {{template "narrowed"}}
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'Every order created in the period, as it is now. SELECT * FROM order_ledger(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY created_at, order_id';

{{- define "ledger"}}
SELECT
    r.order_id AS order_id, r.external_order_id AS external_order_id, r.external_store_id AS external_store_id, r.store_name AS store_name,
    r.tax_number AS tax_number, r.fleet_id AS fleet_id, r.fleet_name AS fleet_name, r.status AS status, r.failure_reason AS failure_reason,
    r.created_at AS created_at, r.ordered_at AS ordered_at, r.picked_up_at AS picked_up_at, r.delivered_at AS delivered_at, r.ended_at AS ended_at,
    r.payment_type AS payment_type,
    {{if eq . "booked"}}r.sign * {{end}}r.order_amount AS order_amount, {{if eq . "booked"}}r.sign * {{end}}r.collection_amount AS collection_amount,
    if(r.status = 'Delivered' AND r.payment_type IN ('Cash', 'Card'), r.sign * ifNull(r.collection_amount, 0), 0) AS expected_collection,
    'TRY' AS currency, r.cancel_reason AS cancel_reason, r.courier_name AS courier_name,
    {{template "corrected" .}},
    {{if eq . "booked"}}r.posted_day{{else}}r.business_day{{end}} AS booked_day, r.entry AS entry, r.sign AS sign, r.cause AS cause, r.account_id AS account_id
FROM ({{template "rows" .}}) AS r
WHERE r.sign != 0
{{- end}}

CREATE OR REPLACE VIEW order_ledger_booked {{onCluster}} AS
{{template "ledger" "booked"}}
COMMENT 'The order ledger as it was booked: closed months do not change, a correction is two rows (reversal, correction) on the day on which it was booked. SELECT * FROM order_ledger_booked(from=''2026-10-01'', to=''2026-10-31'', account='''', fleet='''', store='''', as_of=''2149-06-06'') ORDER BY booked_day, created_at, order_id, entry, sign';

CREATE OR REPLACE VIEW order_ledger_known {{onCluster}} AS
{{template "ledger" "known"}}
COMMENT 'The order ledger of closed months as it was known at the end of the day as_of, corrections in the place of what they correct.';
