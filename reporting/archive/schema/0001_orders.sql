-- What became of orders. The key of an order never changes.
--
-- version comes from the order itself, never from a clock, so that a batch that is stored twice,
-- late or out of order changes nothing.
--
-- Etc/GMT-3 is +03:00 all year (the sign is POSIX's), whatever becomes of Turkey's summer time:
-- that is where days are cut.

{{$orders := literal "Orders: one row per order and version that was exported. Rows of one order replace each other and the highest version counts, so read it with FINAL: SELECT count(), sum(order_amount) FROM orders FINAL. Without FINAL, sums count an order several times. The view live_orders of the finance database does this already."}}
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
        COMMENT 'what a courier should have collected; nobody confirms it',
    courier_name LowCardinality(String)
        COMMENT 'the last courier when this version was exported, the surname abbreviated; empty: none was reported',
    without_courier Bool DEFAULT false
        COMMENT 'Delivered, and no courier was named by then',
    stored_at DateTime64(3, 'Etc/GMT-3') MATERIALIZED now64(3)
        COMMENT 'when this row was stored here, by the clock of the server',
    INDEX stored_at stored_at TYPE minmax GRANULARITY 1
)
ENGINE = {{replacing "orders" "version"}}
PARTITION BY toYYYYMM(business_day)
ORDER BY (account_id, business_day, order_id)
SETTINGS {{durability}}
COMMENT {{$orders}};

{{distributed "orders" $orders}};

{{$events := literal "Versions of orders: one row per order and sequence. To count statuses, add WHERE kind = 'status'. Rows of one order and sequence replace each other and the highest version counts, so read it with FINAL: SELECT status, count() FROM order_events FINAL WHERE kind = 'status' GROUP BY status."}}
CREATE TABLE IF NOT EXISTS {{local "order_events"}} {{onCluster}}
(
    account_id UUID,
    business_day Date COMMENT 'of the order: local day of its creation',
    order_id UUID,
    sequence UInt32 COMMENT '1 is the creation',
    version UInt64,
    event_id String ALIAS concat('evt_', replaceAll(toString(order_id), '-', ''), lower(lpad(hex(version), 16, '0')))
        COMMENT 'as in webhooks',
    status LowCardinality(String) COMMENT 'that was reached, or in which the order stays',
    at DateTime64(3, 'Etc/GMT-3'),
    failure_reason LowCardinality(String),
    cancel_reason LowCardinality(String),
    kind LowCardinality(String) DEFAULT 'status'
        COMMENT 'what has changed: status, courier (another one), firstCourier (named after the status that one would come with), estimate. To count statuses, WHERE kind = ''status''',
    courier_name String
        COMMENT 'of the two kinds of couriers: who carries the order from then on, the surname abbreviated',
    eta_dropoff_at Nullable(DateTime64(3, 'Etc/GMT-3'))
        COMMENT 'of an estimate: when the drop-off is expected from then on'
)
ENGINE = {{replacing "order_events" "version"}}
PARTITION BY toYYYYMM(business_day)
ORDER BY (account_id, business_day, order_id, sequence)
SETTINGS {{durability}}
COMMENT {{$events}};

{{distributed "order_events" $events}};

{{$late := literal "Late deliveries: one row per report of a courier that an order was delivered after it had failed or been cancelled. The report was refused, but cash may have been collected. The same row can be stored several times, so read it with FINAL: SELECT count() FROM late_deliveries FINAL."}}
CREATE TABLE IF NOT EXISTS {{local "late_deliveries"}} {{onCluster}}
(
    account_id UUID,
    business_day Date COMMENT 'of the order: local day of its creation',
    order_id UUID,
    reported_at DateTime64(3, 'Etc/GMT-3') COMMENT 'when the courier says it was delivered',
    stored_at DateTime64(3, 'Etc/GMT-3') MATERIALIZED now64(3)
        COMMENT 'when this row was stored here, by the clock of the server',
    INDEX stored_at stored_at TYPE minmax GRANULARITY 1
)
ENGINE = {{replacing "late_deliveries" ""}}
PARTITION BY toYYYYMM(business_day)
ORDER BY (account_id, business_day, order_id, reported_at)
SETTINGS {{durability}}
COMMENT {{$late}};

{{distributed "late_deliveries" $late}};
