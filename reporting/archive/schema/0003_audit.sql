-- Who did what. How long it is kept is a setting of the exporter (Archive.KeepAudit).

{{$audit := literal "Audit trail: one row per action of a person or a key, as in the ledger's audit stream. Rows of one id replace each other and the highest version counts, so read it with FINAL: SELECT * FROM audit FINAL WHERE day = today() ORDER BY at."}}
CREATE TABLE IF NOT EXISTS {{local "audit"}} {{onCluster}}
(
    account_id UUID COMMENT 'this and the next three: what it is about; all zeros or empty: none',
    fleet_id UUID,
    order_id UUID,
    external_store_id String,
    day Date COMMENT 'local day of the action',
    at DateTime64(3, 'Etc/GMT-3'),
    id String,
    version UInt32,
    actor LowCardinality(String) COMMENT 'a user of the panel, the name of a key, an account''s or a client''s id',
    credential LowCardinality(String) COMMENT 'what showed that',
    address String,
    request_id String,
    action LowCardinality(String),
    old_values String COMMENT 'JSON of what was changed',
    new_values String,
    outcome LowCardinality(String) COMMENT 'the error code if it was refused or failed'
)
ENGINE = {{replacing "audit" "version"}}
PARTITION BY toYYYYMM(day)
ORDER BY (account_id, day, at, id)
SETTINGS {{durability}}
COMMENT {{$audit}};

{{distributed "audit" $audit}};
