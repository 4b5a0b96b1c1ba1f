-- Fleets that report no steps may deliver an order that nobody has taken: it is an
-- exception. An empty courier_name does not tell: rows from before it was kept have
-- none. A Delivered is a late delivery after any other end, not only after TimedOut.
ALTER TABLE {{local "orders"}} {{onCluster}} ADD COLUMN IF NOT EXISTS without_courier Bool DEFAULT false
    COMMENT 'Delivered, and no courier was named by then';

-- In a cluster the table that is read and written; the same table otherwise.
ALTER TABLE orders {{onCluster}} ADD COLUMN IF NOT EXISTS without_courier Bool DEFAULT false;

CREATE OR REPLACE VIEW exceptions {{onCluster}} AS
SELECT * FROM
(
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
        if(payment_type IN ('Cash', 'Card') AND collection_amount != order_amount,
            ('CollectionDiffers', 'the amount to collect is not the amount of the order'), ('', '')),
        if(status IN ('Failed', 'Cancelled') AND collection_amount > 0,
            ('CollectionUndelivered', 'an amount was to be collected, but the order was not delivered'), ('', '')),
        if(without_courier,
            ('CourierMissing', 'delivered, but no courier was named: it is not known who has the amount'), ('', '')),
        if(payment_type = '',
            ('PaymentTypeMissing', 'no payment type was given: nothing is expected'), ('', ''))
    ]) AS found
    WHERE business_day BETWEEN {from:Date} AND {to:Date}
        AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
        AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
        AND ({store:String} = '' OR external_store_id = {store:String})
    UNION ALL
    SELECT
        'LateDelivery', 'a delivery was reported after the order had failed or been cancelled: the amount may have been collected',
        account_id, order_id, external_order_id, external_store_id, store_name, fleet_id, fleet_name,
        status, failure_reason, created_at, ended_at, late.reported_at,
        payment_type, order_amount, collection_amount, cancel_reason, courier_name
    FROM
    (
        SELECT * FROM orders FINAL
        WHERE business_day BETWEEN {from:Date} AND {to:Date}
            AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
            AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
            AND ({store:String} = '' OR external_store_id = {store:String})
            AND (account_id, business_day, order_id) GLOBAL IN
            (
                SELECT account_id, business_day, order_id FROM late_deliveries
                WHERE business_day BETWEEN {from:Date} AND {to:Date}
                    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
            )
    ) AS ended
    GLOBAL INNER JOIN
    (
        SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL
        WHERE business_day BETWEEN {from:Date} AND {to:Date}
            AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    ) AS late USING (account_id, business_day, order_id)
)
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'Orders to look at before the sums are settled, one row per order and kind. SELECT * FROM exceptions(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY created_at, order_id, kind, reported_at';
