-- The orders of one earlier day: today's that have ended, again, as they could
-- have been {{.Back}} days ago. {{.Share}} of 100 of them, since no two days are alike.
-- Their ids are of this service's form: another digest, the same partition, the
-- day of the creation in UTC (delivery.OrderID).
INSERT INTO delivery.orders
SELECT * REPLACE (
    toUUID(concat(substring(hex(sipHash128(order_id, {{.Back}})) AS digest, 1, 12), substring(replaceAll(toString(order_id), '-', '') AS id, 13, 2),
        substring(hex(toUInt16(toRelativeDayNum(toTimeZone(created_at, 'UTC')) - {{.Back}})) AS day, 1, 2), substring(id, 17, 2), substring(day, 3, 2),
        substring(digest, 13, 12))) AS order_id,
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
