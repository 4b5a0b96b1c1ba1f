-- Orders that a courier reported as Delivered after the service had given them
-- up as TimedOut: the report was refused, but cash may have been collected.
CREATE TABLE IF NOT EXISTS {{local "late_deliveries"}} {{onCluster}}
(
    account_id UUID,
    business_day Date COMMENT 'of the order: local day of its creation',
    order_id UUID,
    reported_at DateTime64(3, 'Etc/GMT-3') COMMENT 'when the courier says it was delivered'
)
ENGINE = {{replacing "late_deliveries" ""}}
PARTITION BY toYYYYMM(business_day)
ORDER BY (account_id, business_day, order_id, reported_at)
SETTINGS {{durability}};

{{distributed "late_deliveries"}};
