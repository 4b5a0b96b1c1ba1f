-- Whose database this is. Every server of a cluster has all of it.
CREATE TABLE IF NOT EXISTS identity {{onCluster}}
(
    number UInt32 COMMENT 'from 1; a take-over adds one',
    environment LowCardinality(String) COMMENT 'production or sandbox',
    ledger String COMMENT 'the id of the ledger in Redis, which is drawn at its first start',
    since DateTime64(3, 'Etc/GMT-3')
)
ENGINE = {{shared "identity"}}
ORDER BY number
SETTINGS {{durability}}
COMMENT 'Whose database this is: one row per ledger in Redis that it has belonged to. The row with the highest number counts, of several the oldest. Rows never replace each other: FINAL is not needed.';
