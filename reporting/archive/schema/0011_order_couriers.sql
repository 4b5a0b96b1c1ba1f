-- Who carried an order, and whether it was delivered without anybody: an empty
-- courier_name does not tell, for rows from before it was kept have none. A table of
-- the release before gets the columns empty, and so do rows that a program of that
-- release still writes.
ALTER TABLE {{local "orders"}} {{onCluster}}
    ADD COLUMN IF NOT EXISTS courier_name LowCardinality(String)
        COMMENT 'the last courier when this version was exported, the surname abbreviated; empty: none was reported',
    ADD COLUMN IF NOT EXISTS without_courier Bool DEFAULT false
        COMMENT 'Delivered, and no courier was named by then';

-- In a cluster the table that is read and written; the same table otherwise.
ALTER TABLE orders {{onCluster}}
    ADD COLUMN IF NOT EXISTS courier_name LowCardinality(String),
    ADD COLUMN IF NOT EXISTS without_courier Bool DEFAULT false;
