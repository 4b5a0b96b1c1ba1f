-- The orders of one earlier day: today's that have ended, again, as they could
-- have been {{.DaysAgo}} days ago. {{.Share}} of 100 of them, since no two days are alike.
-- Their ids are of this service's form: another digest, the same partition, the
-- day of the creation in UTC (delivery.OrderID).
INSERT INTO delivery.orders
SELECT * REPLACE (
    toUUID(concat(substring(hex(sipHash128(order_id, {{.DaysAgo}})) AS digest, 1, 12), substring(replaceAll(toString(order_id), '-', '') AS id, 13, 2),
        substring(hex(toUInt16(toRelativeDayNum(toTimeZone(created_at, 'UTC')) - {{.DaysAgo}})) AS day, 1, 2), substring(id, 17, 2), substring(day, 3, 2),
        substring(digest, 13, 12))) AS order_id,
    business_day - {{.DaysAgo}} AS business_day,
    concat(external_order_id, '-', toString({{.DaysAgo}})) AS external_order_id,
    created_at - toIntervalDay({{.DaysAgo}}) AS created_at,
    ordered_at - toIntervalDay({{.DaysAgo}}) AS ordered_at,
    ready_at - toIntervalDay({{.DaysAgo}}) AS ready_at,
    assigned_at - toIntervalDay({{.DaysAgo}}) AS assigned_at,
    picked_up_at - toIntervalDay({{.DaysAgo}}) AS picked_up_at,
    delivered_at - toIntervalDay({{.DaysAgo}}) AS delivered_at,
    ended_at - toIntervalDay({{.DaysAgo}}) AS ended_at,
    updated_at - toIntervalDay({{.DaysAgo}}) AS updated_at)
FROM (
    SELECT * FROM delivery.orders FINAL
    WHERE ended_at IS NOT NULL AND business_day >= toDate(now('Etc/GMT-3')) AND cityHash64(order_id, {{.DaysAgo}}) % 100 < {{.Share}}
)
