-- The orders of one earlier day: today's that have ended, again, as they could
-- have been {{.Back}} days ago. {{.Share}} of 100 of them, since no two days are alike.
INSERT INTO delivery.orders
SELECT * REPLACE (
    reinterpretAsUUID(sipHash128(order_id, {{.Back}})) AS order_id,
    business_day - {{.Back}} AS business_day,
    concat(external_order_id, '-', toString({{.Back}})) AS external_order_id,
    created_at - toIntervalDay({{.Back}}) AS created_at,
    ordered_at - toIntervalDay({{.Back}}) AS ordered_at,
    ready_at - toIntervalDay({{.Back}}) AS ready_at,
    assigned_at - toIntervalDay({{.Back}}) AS assigned_at,
    picked_up_at - toIntervalDay({{.Back}}) AS picked_up_at,
    delivered_at - toIntervalDay({{.Back}}) AS delivered_at,
    ended_at - toIntervalDay({{.Back}}) AS ended_at,
    updated_at - toIntervalDay({{.Back}}) AS updated_at)
FROM (
    SELECT * FROM delivery.orders FINAL
    WHERE ended_at IS NOT NULL AND business_day >= toDate(now('Etc/GMT-3')) AND cityHash64(order_id, {{.Back}}) % 100 < {{.Share}}
)
