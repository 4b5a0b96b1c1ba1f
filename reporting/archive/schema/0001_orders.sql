-- One row per order and version; FINAL shows the latest. version comes from the
-- order itself, never from a clock, so that a batch that is stored twice, late or
-- out of order changes nothing. The key of an order never changes.
--
-- Etc/GMT-3 is +03:00 all year (the sign is POSIX's), whatever becomes of
-- Turkey's summer time: that is where days are cut.
CREATE TABLE IF NOT EXISTS {{local "orders"}} {{onCluster}}
(
    account_id UUID,
    business_day Date COMMENT 'local day of the creation',
    order_id UUID,
    version UInt64,
    external_order_id String,
    external_store_id LowCardinality(String),
    store_name LowCardinality(String) COMMENT 'as it was when this version was exported',
    tax_number LowCardinality(String) COMMENT 'as it was when this version was exported',
    fleet_id UUID,
    fleet_name LowCardinality(String) COMMENT 'as it was when the order was created',
    status LowCardinality(String),
    failure_reason LowCardinality(String) COMMENT 'empty unless Failed',
    cancel_reason LowCardinality(String) COMMENT 'empty unless Cancelled with a reason',
    created_at DateTime64(3, 'Etc/GMT-3'),
    ordered_at Nullable(DateTime64(3, 'Etc/GMT-3')) COMMENT 'as the vendor said',
    ready_at DateTime64(3, 'Etc/GMT-3'),
    assigned_at Nullable(DateTime64(3, 'Etc/GMT-3')),
    picked_up_at Nullable(DateTime64(3, 'Etc/GMT-3')),
    delivered_at Nullable(DateTime64(3, 'Etc/GMT-3')),
    ended_at Nullable(DateTime64(3, 'Etc/GMT-3')) COMMENT 'Delivered, Failed or Cancelled',
    updated_at DateTime64(3, 'Etc/GMT-3'),
    payment_type LowCardinality(String) COMMENT 'Cash, Card, Prepaid, or empty when the vendor gave none',
    order_amount Nullable(Decimal(18, 2)),
    collection_amount Nullable(Decimal(18, 2)) COMMENT 'what the courier was told to collect',
    expected_collection Decimal(18, 2) ALIAS if(status = 'Delivered' AND payment_type IN ('Cash', 'Card'), ifNull(collection_amount, 0), 0)
        COMMENT 'what a courier should have collected; nobody confirms it'
)
ENGINE = {{replacing "orders" "version"}}
PARTITION BY toYYYYMM(business_day)
ORDER BY (account_id, business_day, order_id)
SETTINGS {{durability}};

{{distributed "orders"}};
