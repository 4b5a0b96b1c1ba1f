-- Report order-ledger (design section 8): every order that was created in the
-- period, by the local day of its creation.
--
-- All views of reports have the same parameters: from and to are local days,
-- both included; account, fleet and store narrow the report, '' means all. A
-- name that is no UUID finds nothing.
CREATE OR REPLACE VIEW order_ledger {{onCluster}} AS
SELECT
    order_id, external_order_id, external_store_id, store_name, tax_number, fleet_id, fleet_name,
    status, failure_reason, created_at, ordered_at, picked_up_at, delivered_at, ended_at,
    payment_type, order_amount, collection_amount, expected_collection, 'TRY' AS currency
FROM orders FINAL
WHERE business_day BETWEEN {from:Date} AND {to:Date}
    AND ({account:String} = '' OR account_id = toUUIDOrZero({account:String}))
    AND ({fleet:String} = '' OR fleet_id = toUUIDOrZero({fleet:String}))
    AND ({store:String} = '' OR external_store_id = {store:String})
SETTINGS do_not_merge_across_partitions_select_final = 1
COMMENT 'Every order created in the period, as it is now. SELECT * FROM order_ledger(from=''2026-11-01'', to=''2026-11-30'', account='''', fleet='''', store='''') ORDER BY created_at, order_id';
