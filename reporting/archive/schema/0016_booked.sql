-- The reports as they were booked (name_booked): closed months from their frozen rows,
-- corrections on the day on which they were booked, and the months since as they are. And as they
-- were known on a day (name_known), for closed months: corrections in the place of what they
-- correct. as_of is the local day whose seals count; '2149-06-06': all.

{{- define "narrowed" -}}
({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
    AND ({store:String} = '' OR external_store_id = {store:String})
{{- end}}

{{- define "sealed" -}}
batch IN (SELECT batch FROM seals WHERE kind IN ('close', 'correction') AND toDate(recorded_at) <= {as_of:Date})
{{- end}}

{{- define "open_from" -}}
(SELECT if(count() = 0, toDate(0), addMonths(max(month), 1)) FROM seals WHERE kind = 'close')
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
    WHERE {{template "open_narrowed"}} AND (account_id, business_day, order_id) GLOBAL IN
        (
            SELECT account_id, business_day, order_id FROM late_deliveries WHERE business_day >= {{template "open_from"}}
        )
) AS ended
GLOBAL INNER JOIN
(
    SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL WHERE business_day >= {{template "open_from"}}
) AS late USING (account_id, business_day, order_id)
{{- end}}

{{- define "open_narrowed" -}}
business_day BETWEEN {from:Date} - 31 AND {to:Date} AND {{template "narrowed"}}
{{- end}}

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

CREATE OR REPLACE VIEW open_rows {{onCluster}} AS
{{template "open" "narrowed"}}
UNION ALL
{{template "open_late"}}
COMMENT 'The rows of closed_orders that closing the months up to to would add, from 31 days before from on: orders, and late deliveries besides.';

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

{{- define "rows"}}
SELECT {{template "columns"}} FROM closed_orders
WHERE {{template "sealed"}} AND {{template "narrowed"}}
{{- if ne . "known"}} AND posted_day BETWEEN {from:Date} AND {to:Date}
UNION ALL
SELECT {{template "columns"}} FROM ({{template "open" "narrowed"}}{{if ne . "booked"}} UNION ALL {{template "open_late"}}{{end}})
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
ARRAY JOIN arrayFilter(f -> f.1 != '', [
    if(r.sign = 0,
        ('LateDelivery', 'a delivery was reported after the order had failed or been cancelled: the amount may have been collected'), ('', '')),
    if(r.sign = 1 AND r.payment_type IN ('Cash', 'Card') AND r.collection_amount IS NULL,
        ('CollectionMissing', 'paid at the door, but no amount to collect was given: nothing is expected'), ('', '')),
    if(r.sign = 1 AND r.payment_type = 'Prepaid' AND r.collection_amount IS NOT NULL,
        ('CollectionOnPrepaid', 'prepaid, but an amount to collect was given: it is not expected'), ('', '')),
    if(r.sign = 1 AND r.payment_type IN ('Cash', 'Card') AND r.collection_amount != r.order_amount,
        ('CollectionDiffers', 'the amount to collect is not the amount of the order'), ('', '')),
    if(r.sign = 1 AND r.status IN ('Failed', 'Cancelled') AND r.collection_amount > 0,
        ('CollectionUndelivered', 'an amount was to be collected, but the order was not delivered'), ('', '')),
    if(r.sign = 1 AND r.without_courier,
        ('CourierMissing', 'delivered, but no courier was named: it is not known who has the amount'), ('', '')),
    if(r.sign = 1 AND r.payment_type = '',
        ('PaymentTypeMissing', 'no payment type was given: nothing is expected'), ('', ''))
]) AS found
WHERE r.sign >= 0
{{- end}}

CREATE OR REPLACE VIEW exceptions_booked {{onCluster}} AS
{{template "exceptions" "booked"}}
COMMENT 'Exceptions as they were booked; what is found later stands on the day on which it was booked.';

CREATE OR REPLACE VIEW exceptions_known {{onCluster}} AS
{{template "exceptions" "known"}}
COMMENT 'Exceptions of closed months as they were known at the end of the day as_of.';

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

{{- define "sums"}}
{{- /* Of rows s with signed amounts: orders, delivered, failed, cancelled, and the five amounts. */ -}}
toInt64(sumIf(s.sign, {{.}})), toInt64(sumIf(s.sign, {{.}} AND s.status = 'Delivered')),
                toInt64(sumIf(s.sign, {{.}} AND s.status = 'Failed')), toInt64(sumIf(s.sign, {{.}} AND s.status = 'Cancelled')),
                sumIf(ifNull(s.order_amount, 0), {{.}} AND s.status = 'Delivered'),
                sumIf(s.expected_collection, {{.}} AND s.payment_type = 'Cash'),
                sumIf(s.expected_collection, {{.}} AND s.payment_type = 'Card'),
                sumIf(ifNull(s.order_amount, 0), {{.}} AND s.status = 'Delivered' AND s.payment_type = 'Prepaid'),
                sumIf(ifNull(s.order_amount, 0), {{.}} AND s.status = 'Delivered' AND s.payment_type = '')
{{- end}}

{{- define "carried_columns" -}}
toInt64(sign) AS sign, status, payment_type, sign * order_amount AS order_amount,
            if(status = 'Delivered' AND payment_type IN ('Cash', 'Card'), sign * ifNull(collection_amount, 0), 0) AS expected_collection
{{- end}}

{{- define "control"}}
SELECT
    figures.1 AS line_number, figures.2 AS line, figures.3 AS rows, figures.4 AS created, figures.5 AS orders,
    figures.6 AS delivered, figures.7 AS failed, figures.8 AS cancelled,
    figures.9 AS order_amount_delivered, figures.10 AS cash_expected, figures.11 AS card_expected, figures.12 AS prepaid_amount,
    figures.13 AS ties, figures.14 AS no_payment_type_amount
FROM
(
    SELECT
        [
            (1, 'order-ledger', l_rows, l.1, l.1, l.2, l.3, l.4, l.5, l.6, l.7, l.8, NULL, l.9),
            (2, 'carried-in', NULL, NULL, i.1, i.2, i.3, i.4, i.5, i.6, i.7, i.8, NULL, i.9),
            (3, 'carried-out', NULL, NULL, o.1, o.2, o.3, o.4, o.5, o.6, o.7, o.8, NULL, o.9),
            (4, 'ended-in-period', NULL, NULL, e.1, e.2, e.3, e.4, e.5, e.6, e.7, e.8, NULL, e.9),
            (5, 'expected-collections', c_rows, NULL, NULL, c.1, NULL, NULL, NULL, c.2, c.3, c.4,
                c = (e.2, e.6, e.7, e.8, e.9), c.5),
            (6, 'fleet-statement', s_rows, s_created, s.1, s.2, s.3, s.4, s.5, s.6, s.7, s.8,
                s_created = l.1 AND s = e, s.9),
            (7, 'exceptions', x_rows, NULL, x_orders, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        ] AS lines,
        l + i - o AS e
    FROM
    (
        SELECT
            toInt64(count()) AS l_rows,
            ({{template "sums" "true"}}) AS l,
            ({{template "sums" "s.later"}}) AS o
        FROM
        (
            SELECT *, if(correction_of IS NULL, ifNull(toDate(ended_at) > {to:Date}, true), ended_at IS NULL) AS later
            FROM ({{template "ledger" .}})
        ) AS s
    ) AS ledger
    CROSS JOIN
    (
        SELECT ({{template "sums" "true"}}) AS i
        FROM
        (
            SELECT {{template "carried_columns"}}
            FROM closed_orders
            WHERE {{template "sealed"}} AND {{template "narrowed"}} AND sign != 0
                {{- if eq . "booked"}} AND correction_of = toDate(0) AND posted_day >= {from:Date} - 366{{end}}
                AND business_day < {from:Date} AND toDate(ended_at) BETWEEN {from:Date} AND {to:Date}
            {{- if eq . "booked"}}
            UNION ALL
            SELECT {{template "carried_columns"}}
            FROM ({{template "open" "narrowed"}})
            WHERE business_day < {from:Date} AND toDate(ended_at) BETWEEN {from:Date} AND {to:Date}
            {{- end}}
        ) AS s
    ) AS carried_in
    CROSS JOIN
    (
        SELECT
            toInt64(count()) AS c_rows,
            (toInt64(sum(delivered_count)), sum(cash_expected), sum(card_expected), sum(prepaid_amount), sum(no_payment_type_amount)) AS c
        FROM ({{template "collections" .}})
    ) AS collections
    CROSS JOIN
    (
        SELECT
            toInt64(count()) AS s_rows, toInt64(sum(created)) AS s_created,
            (toInt64(sum(delivered) + sum(failed) + sum(cancelled)), toInt64(sum(delivered)), toInt64(sum(failed)), toInt64(sum(cancelled)),
                sum(order_amount_delivered), sum(cash_expected), sum(card_expected), sum(prepaid_amount), sum(no_payment_type_amount)) AS s
        FROM ({{template "statement" .}})
    ) AS statement
    CROSS JOIN
    (
        SELECT toInt64(count()) AS x_rows, toInt64(uniqExact(order_id)) AS x_orders
        FROM ({{template "exceptions" .}})
    ) AS found
)
ARRAY JOIN lines AS figures
{{- end}}

CREATE OR REPLACE VIEW control_totals_booked {{onCluster}} AS
{{template "control" "booked"}}
COMMENT 'The sums of the booked reports side by side, and whether they tie.';

CREATE OR REPLACE VIEW control_totals_known {{onCluster}} AS
{{template "control" "known"}}
COMMENT 'The same of closed months as they were known at the end of the day as_of.';

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
    SELECT {{template "columns"}} FROM closed_orders WHERE batch IN (SELECT batch FROM seals WHERE kind IN ('close', 'correction'))
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
    FROM closed_days WHERE batch IN (SELECT batch FROM seals WHERE kind IN ('close', 'correction'))
    UNION ALL
    SELECT booked_day, correction_of, {{template "day_columns"}}
    FROM (SELECT {{template "fact_columns"}} FROM ({{template "open" "all"}}) AS r {{template "facts"}})
) AS r
COMMENT 'The sums of a day, account, fleet and store as they were booked, created by the day of the creation, all else by that of the end. A day can have several rows: sum them. SELECT fleet_id, sum(cash_expected) FROM booked_days WHERE day BETWEEN ''2026-01-01'' AND ''2026-12-31'' GROUP BY fleet_id';
