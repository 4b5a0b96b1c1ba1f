-- One row per status that an order reached. A version of a higher epoch replaces
-- the same step of a lower one, after a restored backup.
CREATE TABLE IF NOT EXISTS {{local "order_events"}} {{onCluster}}
(
    account_id UUID,
    business_day Date COMMENT 'of the order: local day of its creation',
    order_id UUID,
    sequence UInt32 COMMENT '1 is the creation',
    version UInt64,
    event_id String ALIAS concat('evt_', replaceAll(toString(order_id), '-', ''), lower(lpad(hex(version), 16, '0')))
        COMMENT 'as in webhooks',
    status LowCardinality(String),
    at DateTime64(3, 'Etc/GMT-3'),
    failure_reason LowCardinality(String),
    cancel_reason LowCardinality(String)
)
ENGINE = {{replacing "order_events" "version"}}
PARTITION BY toYYYYMM(business_day)
ORDER BY (account_id, business_day, order_id, sequence)
SETTINGS {{durability}};

{{distributed "order_events"}};
