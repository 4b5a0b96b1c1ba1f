-- Pieces that the views share. Every view is defined once, in the file of its subject.
--
-- A report has three views. Its live one (name) shows orders as they are now. name_booked shows
-- them as they were booked: closed months from their frozen rows, corrections on the day on which
-- they were booked, and the months since as they are. name_known shows closed months as they were
-- known on a day: corrections in the place of what they correct.
--
-- All have the same parameters: from and to are local days, both included; account, fleet and
-- store narrow the report, '' means all. A name that is no UUID finds nothing. Of name_booked and
-- name_known, as_of is the local day whose entries count; '2149-06-06': all.

{{- define "narrowed" -}}
({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
    AND ({store:String} = '' OR external_store_id = {store:String})
{{- end}}

{{- /* What the log of the books says: the batches that count, each with its day, and the first day that is not closed.
ClickHouse evaluates equal subqueries of a query once, so that a month that is being closed at the same moment is either
still open for all of the query or closed for all of it, and never both. In a cluster one server says so for all. */}}
{{- define "books" -}}
(SELECT (groupUniqArrayIf((batch, toDate(at)), kind IN ('close', 'correction')),
    if(countIf(kind = 'close') = 0, toDate(0), addMonths(maxIf(month, kind = 'close'), 1))) FROM journal)
{{- end}}

{{- define "sealed" -}}
batch GLOBAL IN (SELECT arrayJoin(arrayMap(b -> b.1, arrayFilter(b -> b.2 <= {as_of:Date}, {{template "books"}}.1))))
{{- end}}

{{- define "sealed_by_now" -}}
batch GLOBAL IN (SELECT arrayJoin(arrayMap(b -> b.1, {{template "books"}}.1)))
{{- end}}

{{- define "open_from" -}}
{{template "books"}}.2
{{- end}}

{{- define "open_narrowed" -}}
business_day BETWEEN {from:Date} - 31 AND {to:Date} AND {{template "narrowed"}}
{{- end}}

{{- define "columns" -}}
account_id, business_day, order_id, entry, sign, posted_day, correction_of, cause, version, external_order_id, external_store_id,
    store_name, tax_number, fleet_id, fleet_name, status, failure_reason, cancel_reason, created_at, ordered_at, picked_up_at, delivered_at,
    ended_at, payment_type, order_amount, collection_amount, courier_name, without_courier, reported_at
{{- end}}

{{- define "open_columns" -}}
version, external_order_id, external_store_id, store_name, tax_number, fleet_id, fleet_name, status, failure_reason, cancel_reason,
    created_at, ordered_at, picked_up_at, delivered_at, ended_at, payment_type, order_amount, collection_amount, courier_name, without_courier
{{- end}}

{{- /* The rows of orders in months that are not closed, as closed_orders would have them: all, or those of the parameters. */}}
{{- define "open"}}
SELECT account_id, business_day, order_id, toUInt32(1) AS entry, toInt8(1) AS sign, business_day AS posted_day, toDate(0) AS correction_of, '' AS cause,
    {{template "open_columns"}}, CAST(NULL, 'Nullable(DateTime64(3, ''Etc/GMT-3''))') AS reported_at
FROM orders FINAL
WHERE business_day >= {{template "open_from"}}{{if eq . "narrowed"}} AND {{template "open_narrowed"}}{{end}}
{{- end}}

{{- define "open_late"}}
SELECT account_id, business_day, order_id, toUInt32(0) AS entry, toInt8(0) AS sign, business_day AS posted_day, toDate(0) AS correction_of, '' AS cause,
    {{template "open_columns"}}, late.reported_at AS reported_at
FROM
(
    SELECT * FROM orders FINAL
    WHERE {{if eq . "narrowed"}}{{template "open_narrowed"}} AND {{end}}(account_id, business_day, order_id) GLOBAL IN
        (
            SELECT account_id, business_day, order_id FROM late_deliveries WHERE business_day >= {{template "open_from"}}
        )
) AS ended
GLOBAL INNER JOIN
(
    SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL WHERE business_day >= {{template "open_from"}}
) AS late USING (account_id, business_day, order_id)
{{- end}}

{{- define "rows"}}
SELECT {{template "columns"}} FROM closed_orders
WHERE {{template "sealed"}} AND {{template "narrowed"}}
{{- if ne . "known"}} AND posted_day BETWEEN {from:Date} AND {to:Date}
UNION ALL
SELECT {{template "columns"}} FROM ({{template "open" "narrowed"}}{{if ne . "booked"}} UNION ALL {{template "open_late" "narrowed"}}{{end}})
WHERE posted_day BETWEEN {from:Date} AND {to:Date}
{{- else}} AND sign >= 0 AND business_day BETWEEN {from:Date} AND {to:Date}
    AND (order_id, entry) GLOBAL NOT IN (SELECT order_id, entry FROM closed_orders WHERE sign = -1 AND {{template "sealed"}})
{{- end}}{{end}}

{{- define "corrected"}}
{{- if eq . "booked"}}nullIf(r.correction_of, toDate(0)) AS correction_of,
    if(r.correction_of = toDate(0), NULL, r.posted_day) AS booked_on,
    multiIf(r.correction_of = toDate(0), '', r.sign = -1, 'reversal', 'correction') AS booking
{{- else}}CAST(NULL, 'Nullable(Date)') AS correction_of, CAST(NULL, 'Nullable(Date)') AS booked_on, '' AS booking
{{- end}}{{end}}

{{- /* What each of some rows r adds to closed_days. fact is a day, whether the order was created on it, and whether it
ended on it. A name counts from the youngest order that has one: *_youngest is larger for a younger order, and for a later
entry of the same one. No two rows of an order are equal, so that a name never depends on the sequence in which rows are
read. */}}
{{- define "fact_columns" -}}
    r.account_id AS account_id, if(r.correction_of = toDate(0), fact.1, r.posted_day) AS booked_day, fact.1 AS day, r.correction_of AS correction_of,
    r.fleet_id AS fleet_id, r.external_store_id AS external_store_id,
    if(fact.2, r.sign, 0) AS created,
    if(fact.3 AND r.status = 'Delivered', r.sign, 0) AS delivered,
    if(fact.3 AND r.status = 'Failed', r.sign, 0) AS failed,
    if(fact.3 AND r.status = 'Cancelled', r.sign, 0) AS cancelled,
    if(r.payment_type = 'Cash', delivered, 0) AS cash_count,
    if(r.payment_type = 'Card', delivered, 0) AS card_count,
    if(r.payment_type = 'Prepaid', delivered, 0) AS prepaid_count,
    if(r.payment_type = '', delivered, 0) AS no_payment_type_count,
    if(r.collection_amount IS NULL, cash_count, 0) AS cash_without_amount_count,
    delivered * ifNull(r.order_amount, 0) AS order_amount_delivered,
    cash_count * ifNull(r.collection_amount, 0) AS cash_expected,
    card_count * ifNull(r.collection_amount, 0) AS card_expected,
    prepaid_count * ifNull(r.order_amount, 0) AS prepaid_amount,
    no_payment_type_count * ifNull(r.order_amount, 0) AS no_payment_type_amount,
    r.fleet_name AS fleet_name,
    bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(r.created_at)), 168),
        bitOr(bitShiftLeft(toUInt256(toUInt128(r.order_id)), 40), toUInt256(r.entry) * 2 + if(r.sign > 0, 1, 0))) AS fleet_youngest,
    r.store_name AS store_name, if(r.store_name = '', 0, fleet_youngest) AS store_youngest,
    if(delivered = 0, '', r.fleet_name) AS delivered_fleet_name, if(delivered = 0, 0, fleet_youngest) AS delivered_fleet_youngest,
    if(delivered = 0, '', r.store_name) AS delivered_store_name, if(delivered = 0, 0, store_youngest) AS delivered_store_youngest
{{- end}}

{{- define "facts" -}}
ARRAY JOIN multiIf(
    r.ended_at IS NULL, [(r.business_day, true, false)],
    toDate(assumeNotNull(r.ended_at)) = r.business_day, [(r.business_day, true, true)],
    [(r.business_day, true, false), (toDate(assumeNotNull(r.ended_at)), false, true)]) AS fact
{{- end}}

{{- define "day_columns" -}}
account_id, fleet_id, external_store_id, created, delivered, failed, cancelled, cash_count, card_count, prepaid_count, no_payment_type_count,
    cash_without_amount_count, order_amount_delivered, cash_expected, card_expected, prepaid_amount, no_payment_type_amount,
    fleet_name, fleet_youngest, store_name, store_youngest,
    delivered_fleet_name, delivered_fleet_youngest, delivered_store_name, delivered_store_youngest
{{- end}}

{{- define "days"}}
SELECT {{if eq . "booked"}}booked_day AS on_day, correction_of AS of{{else}}day AS on_day, toDate(0) AS of{{end}}, {{template "day_columns"}}
FROM closed_days
WHERE {{template "sealed"}} AND on_day BETWEEN {from:Date} AND {to:Date} AND {{template "narrowed"}}
{{- if eq . "booked"}}
UNION ALL
SELECT booked_day, correction_of, {{template "day_columns"}}
FROM (SELECT {{template "fact_columns"}} FROM ({{template "open" "narrowed"}}) AS r {{template "facts"}})
WHERE booked_day BETWEEN {from:Date} AND {to:Date}
{{- end}}{{end}}
