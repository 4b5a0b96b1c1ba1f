-- What became of webhook events.

{{$outcomes := literal "Webhook attempts: one row per attempt that was made, and one per event that was given up without any; the ledger's stream of outcomes names each by partition, entry and line. To count how events ended, add WHERE state != 'retrying'. The same row can be stored several times, so read it with FINAL: SELECT state, count() FROM webhook_outcomes FINAL GROUP BY state."}}
CREATE TABLE IF NOT EXISTS {{local "webhook_outcomes"}} {{onCluster}}
(
    account_id UUID,
    day Date COMMENT 'local day of the outcome',
    event_id String,
    event LowCardinality(String) COMMENT 'event type; empty when nothing is known of it any more',
    order_id Nullable(UUID) COMMENT 'NULL for events of stores and fleets',
    at DateTime64(3, 'Etc/GMT-3'),
    state LowCardinality(String)
        COMMENT 'how the event ended: delivered, undelivered or notSent; or retrying: an attempt that failed and was not the last',
    attempt UInt32 COMMENT 'its number; 0 without any; of a probe that failed, which is no attempt of the event''s own, that of the next one',
    http_status UInt16 COMMENT '0 without an answer',
    error String,
    milliseconds UInt32,
    replay Bool,
    probe Bool COMMENT 'sent ahead of the schedule to see whether the receiver is back',
    partition UInt16 COMMENT 'where the stream lies; with entry and line the name of this row',
    entry String,
    line UInt32
)
ENGINE = {{replacing "webhook_outcomes" ""}}
PARTITION BY toYYYYMM(day)
ORDER BY (account_id, day, event_id, partition, entry, line)
SETTINGS {{durability}}
COMMENT {{$outcomes}};

{{distributed "webhook_outcomes" $outcomes}};
