INSERT INTO delivery.orders
(
    account_id, business_day, order_id, version, external_order_id, external_store_id, store_name, tax_number, fleet_id, fleet_name,
    status, failure_reason, cancel_reason, created_at, ordered_at, ready_at, assigned_at, picked_up_at, delivered_at, ended_at, updated_at,
    payment_type, order_amount, collection_amount, stored_at
)
WITH
    ${orders} AS orders, 365 AS days, 500 AS accounts, 4 AS stores, 20 AS fleets,
    ${earlier} AS earlier,
    cityHash64(number, 1) AS luck,
    luck % accounts AS account,
    intDiv(luck, 1000) % stores AS store,
    cityHash64(account, store) % fleets AS fleet,
    cityHash64(number, 2) % 1000 AS fate,
    multiIf(fate < 920, 'Delivered', fate < 960, 'Failed', 'Cancelled') AS ends_as,
    toDateTime64('${first} 00:00:00', 3, 'Etc/GMT-3') + toIntervalDay(intDiv(number * days, orders))
        + toIntervalMillisecond(36000000 + cityHash64(number, 3) % 25200000 + cityHash64(number, 4) % 25200000) AS created,
    created + toIntervalSecond(60 + cityHash64(number, 5) % 480) AS assigned,
    assigned + toIntervalSecond(300 + cityHash64(number, 6) % 900) AS picked_up,
    picked_up + toIntervalSecond(300 + cityHash64(number, 7) % 1500) AS ended,
    cityHash64(number, 8) % 1000 AS means,
    multiIf(means < 250, 'Cash', means < 600, 'Card', means < 980, 'Prepaid', '') AS paid_by,
    toDecimal64(8000 + cityHash64(number, 9) % 142000, 2) / 100 AS amount,
    cityHash64(number, 10) % 1000 AS slip,
    lower(hex(sipHash128('order', number))) AS random,
    intDiv(toUnixTimestamp64Second(created), 86400) AS day
SELECT
    reinterpretAsUUID(sipHash128('account', account)),
    toDate(created),
    toUUID(concat(substring(random, 1, 8), '-', substring(random, 9, 4), '-80', lower(hex(toUInt8(intDiv(day, 256)))), '-80', lower(hex(toUInt8(day % 256))),
        '-', substring(random, 21, 12))),
    bitShiftLeft(toUInt64(1), 32) + multiIf(earlier, 4, ends_as = 'Cancelled', 2, 6),
    concat('Z-', toString(number)),
    concat('sube-', toString(store + 1)),
    concat('Şube ', toString(account + 1), '/', toString(store + 1)),
    toString(1000000000 + account),
    reinterpretAsUUID(sipHash128('fleet', fleet)),
    concat('Filo ', toString(fleet + 1)),
    if(earlier, 'PickedUp', ends_as),
    if(NOT earlier AND ends_as = 'Failed', ['NoCourierFound', 'CourierIncident', 'RecipientUnreachable', 'TimedOut'][1 + fate % 4], ''),
    if(NOT earlier AND ends_as = 'Cancelled', 'CustomerRequest', ''),
    created,
    if(luck % 2 = 0, created, NULL),
    created,
    if(ends_as = 'Cancelled', NULL, assigned),
    if(ends_as = 'Cancelled', NULL, picked_up),
    if(NOT earlier AND ends_as = 'Delivered', ended, NULL),
    if(earlier, NULL, ended),
    if(earlier, picked_up, ended),
    paid_by,
    if(slip = 1, NULL, amount),
    multiIf(
        paid_by IN ('Cash', 'Card'), multiIf(slip = 2, NULL, slip < 10, amount - 5, amount),
        paid_by = 'Prepaid' AND slip = 2, amount,
        NULL),
    if(earlier, picked_up, ended) -- it was stored when it changed, not when the year is made
FROM numbers(${from}, ${count})
WHERE NOT earlier OR number % 10 = 0 AND ends_as != 'Cancelled'
SETTINGS insert_allow_materialized_columns = 1
