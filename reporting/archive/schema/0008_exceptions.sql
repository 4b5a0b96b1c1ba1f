-- Report exceptions (design section 8): what somebody should look at before the
-- sums are settled, by local day of the order's creation. One row per order and
-- kind, and per report in the case of LateDelivery.
CREATE OR REPLACE VIEW exceptions {{onCluster}} AS
SELECT * FROM
(
    SELECT
        found.1 AS kind, found.2 AS reason,
        account_id, order_id, external_order_id, external_store_id, store_name, fleet_id, fleet_name,
        status, failure_reason, created_at, ended_at, CAST(NULL, 'Nullable(DateTime64(3, ''Etc/GMT-3''))') AS reported_at,
        payment_type, order_amount, collection_amount
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
        if(payment_type = '',
            ('PaymentTypeMissing', 'no payment type was given: nothing is expected'), ('', ''))
    ]) AS found
    WHERE business_day BETWEEN {from:Date} AND {to:Date}
        AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
        AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
        AND ({store:String} = '' OR external_store_id = {store:String})
    UNION ALL
    SELECT
        'LateDelivery', 'a delivery was reported after the order had been given up: the amount may have been collected',
        account_id, order_id, external_order_id, external_store_id, store_name, fleet_id, fleet_name,
        status, failure_reason, created_at, ended_at, late.reported_at,
        payment_type, order_amount, collection_amount
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
    ) AS given_up
    GLOBAL INNER JOIN
    (
        SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL
        WHERE business_day BETWEEN {from:Date} AND {to:Date}
            AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    ) AS late USING (account_id, business_day, order_id)
)
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'Orders to look at before the sums are settled, one row per order and kind. SELECT * FROM exceptions(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY created_at, order_id, kind, reported_at';
