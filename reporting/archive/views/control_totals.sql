-- The sums of the other reports side by side. The order ledger goes by the day of the creation,
-- the other two by that of the end, so the lines between them carry over:
--
--     order-ledger + carried-in - carried-out = ended-in-period
--
-- carried-in was created before the period and ended in it, however long before;
-- carried-out was created in it and had not ended with it. expected-collections
-- must then tie with ended-in-period in what was delivered and its amounts,
-- fleet-statement in all it has, and its created with the ledger's orders. What
-- a line has no figure for is NULL, and so is ties where nothing is compared.

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
            AND {{template "narrowed"}}
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
