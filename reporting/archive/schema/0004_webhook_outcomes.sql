-- What became of webhook events: one row for every line of the ledger's stream of
-- outcomes, which names it for ever.
CREATE TABLE IF NOT EXISTS {{local "webhook_outcomes"}} {{onCluster}}
(
    account_id UUID,
    day Date COMMENT 'local day of the outcome',
    event_id String,
    event LowCardinality(String) COMMENT 'event type; empty when nothing is known of it any more',
    order_id Nullable(UUID) COMMENT 'NULL for events of stores and fleets',
    at DateTime64(3, 'Etc/GMT-3'),
    state LowCardinality(String) COMMENT 'delivered, undelivered or notSent',
    attempt UInt32,
    http_status UInt16 COMMENT '0 without an answer',
    error String,
    milliseconds UInt32,
    replay Bool,
    probe Bool,
    partition UInt16 COMMENT 'where the stream lies; with entry and line the name of this row',
    entry String,
    line UInt32
)
ENGINE = {{replacing "webhook_outcomes" ""}}
PARTITION BY toYYYYMM(day)
ORDER BY (account_id, day, event_id, partition, entry, line)
SETTINGS {{durability}};

{{distributed "webhook_outcomes"}};
