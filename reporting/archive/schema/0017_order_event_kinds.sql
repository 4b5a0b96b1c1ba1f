-- An order has versions between its statuses, too: another courier, another estimate. Rows of the
-- release before are all statuses.
ALTER TABLE {{local "order_events"}} {{onCluster}}
    ADD COLUMN IF NOT EXISTS kind LowCardinality(String) DEFAULT 'status'
        COMMENT 'what has changed: status, courier (another one), firstCourier (named after the status that one would come with), estimate. To count statuses, WHERE kind = ''status''',
    ADD COLUMN IF NOT EXISTS courier_name String
        COMMENT 'of the two kinds of couriers: who carries the order from then on, the surname abbreviated',
    ADD COLUMN IF NOT EXISTS eta_dropoff_at Nullable(DateTime64(3, 'Etc/GMT-3'))
        COMMENT 'of an estimate: when the drop-off is expected from then on',
    COMMENT COLUMN status 'that was reached, or in which the order stays';

-- In a cluster the table that is read and written; the same table otherwise.
ALTER TABLE order_events {{onCluster}}
    ADD COLUMN IF NOT EXISTS kind LowCardinality(String) DEFAULT 'status',
    ADD COLUMN IF NOT EXISTS courier_name String,
    ADD COLUMN IF NOT EXISTS eta_dropoff_at Nullable(DateTime64(3, 'Etc/GMT-3'));
