-- What somebody should look at before the sums are settled, by local day of the order's creation.
-- One row per order and kind, and per report in the case of LateDelivery: a Delivered after any
-- other end.

{{- /* What is to be looked at in orders as they are now: all of it, or that of the parameters. */}}
{{- define "live_exceptions"}}
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
        if(payment_type IN ('Cash', 'Card') AND ifNull(collection_amount != order_amount, collection_amount IS NOT NULL),
            ('CollectionDiffers', 'the amount to collect is not the amount of the order, or the order has none'), ('', '')),
        if(status IN ('Failed', 'Cancelled') AND collection_amount > 0,
            ('CollectionUndelivered', 'an amount was to be collected, but the order was not delivered'), ('', '')),
        if(without_courier,
            ('CourierMissing', 'delivered, but no courier was named: it is not known who has the amount'), ('', '')),
        if(payment_type = '',
            ('PaymentTypeMissing', 'no payment type was given: nothing is expected'), ('', ''))
    ]) AS found
    {{- if eq . "narrowed"}}
    WHERE business_day BETWEEN {from:Date} AND {to:Date}
        AND {{template "narrowed"}}
    {{- end}}
    UNION ALL
    SELECT
        'LateDelivery', 'a delivery was reported after the order had failed or been cancelled: the amount may have been collected',
        account_id, order_id, external_order_id, external_store_id, store_name, fleet_id, fleet_name,
        status, failure_reason, created_at, ended_at, late.reported_at,
        payment_type, order_amount, collection_amount, cancel_reason, courier_name
    FROM
    (
        SELECT * FROM orders FINAL
        WHERE {{if eq . "narrowed"}}business_day BETWEEN {from:Date} AND {to:Date}
            AND {{template "narrowed"}}
            AND {{end}}(account_id, business_day, order_id) GLOBAL IN
            (
                SELECT account_id, business_day, order_id FROM late_deliveries{{if eq . "narrowed"}}
                WHERE business_day BETWEEN {from:Date} AND {to:Date}
                    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String})){{end}}
            )
    ) AS ended
    GLOBAL INNER JOIN
    (
        SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL{{if eq . "narrowed"}}
        WHERE business_day BETWEEN {from:Date} AND {to:Date}
            AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String})){{end}}
    ) AS late USING (account_id, business_day, order_id)
{{- end}}

CREATE OR REPLACE VIEW exceptions {{onCluster}} AS
SELECT * FROM
(
    {{template "live_exceptions" "narrowed"}}
)
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'Orders to look at before the sums are settled, one row per order and kind. SELECT * FROM exceptions(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY created_at, order_id, kind, reported_at';

{{- /* What is to be looked at in rows r that were booked. */}}
{{- define "found_in_rows" -}}
ARRAY JOIN arrayFilter(f -> f.1 != '', [
    if(r.sign = 0,
        ('LateDelivery', 'a delivery was reported after the order had failed or been cancelled: the amount may have been collected'), ('', '')),
    if(r.sign = 1 AND r.payment_type IN ('Cash', 'Card') AND r.collection_amount IS NULL,
        ('CollectionMissing', 'paid at the door, but no amount to collect was given: nothing is expected'), ('', '')),
    if(r.sign = 1 AND r.payment_type = 'Prepaid' AND r.collection_amount IS NOT NULL,
        ('CollectionOnPrepaid', 'prepaid, but an amount to collect was given: it is not expected'), ('', '')),
    if(r.sign = 1 AND r.payment_type IN ('Cash', 'Card') AND ifNull(r.collection_amount != r.order_amount, r.collection_amount IS NOT NULL),
        ('CollectionDiffers', 'the amount to collect is not the amount of the order, or the order has none'), ('', '')),
    if(r.sign = 1 AND r.status IN ('Failed', 'Cancelled') AND r.collection_amount > 0,
        ('CollectionUndelivered', 'an amount was to be collected, but the order was not delivered'), ('', '')),
    if(r.sign = 1 AND r.without_courier,
        ('CourierMissing', 'delivered, but no courier was named: it is not known who has the amount'), ('', '')),
    if(r.sign = 1 AND r.payment_type = '',
        ('PaymentTypeMissing', 'no payment type was given: nothing is expected'), ('', ''))
]) AS found
WHERE r.sign >= 0
{{- end}}

{{- define "exceptions"}}
SELECT
    found.1 AS kind, found.2 AS reason, r.account_id AS account_id, r.order_id AS order_id, r.external_order_id AS external_order_id,
    r.external_store_id AS external_store_id, r.store_name AS store_name, r.fleet_id AS fleet_id, r.fleet_name AS fleet_name,
    r.status AS status, r.failure_reason AS failure_reason, r.created_at AS created_at, r.ended_at AS ended_at, r.reported_at AS reported_at,
    r.payment_type AS payment_type, r.order_amount AS order_amount, r.collection_amount AS collection_amount,
    r.cancel_reason AS cancel_reason, r.courier_name AS courier_name,
    {{template "corrected" .}},
    {{if eq . "booked"}}r.posted_day{{else}}r.business_day{{end}} AS booked_day, r.entry AS entry
FROM ({{if eq . "booked"}}{{template "rows" "booked, late deliveries too"}}{{else}}{{template "rows" .}}{{end}}) AS r
{{template "found_in_rows"}}
{{- end}}

CREATE OR REPLACE VIEW exceptions_booked {{onCluster}} AS
{{template "exceptions" "booked"}}
COMMENT 'Exceptions as they were booked; what is found later stands on the day on which it was booked.';

CREATE OR REPLACE VIEW exceptions_known {{onCluster}} AS
{{template "exceptions" "known"}}
COMMENT 'Exceptions of closed months as they were known at the end of the day as_of.';
