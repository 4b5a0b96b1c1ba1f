-- Who carried an order. A table of the release before gets the column empty, and
-- so do rows that a program of that release still writes.
ALTER TABLE {{local "orders"}} {{onCluster}} ADD COLUMN IF NOT EXISTS courier_name LowCardinality(String)
    COMMENT 'the last courier when this version was exported, the surname abbreviated; empty: none was reported';

-- In a cluster the table that is read and written; the same table otherwise.
ALTER TABLE orders {{onCluster}} ADD COLUMN IF NOT EXISTS courier_name LowCardinality(String);
