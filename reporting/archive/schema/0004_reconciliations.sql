-- Comparisons of Redis with ClickHouse.

{{$reconciliations := literal "Comparisons: one row per comparison of Redis with ClickHouse that came to its end. The same row can be stored several times, so read it with FINAL: SELECT * FROM reconciliations FINAL ORDER BY at."}}
CREATE TABLE IF NOT EXISTS {{local "reconciliations"}} {{onCluster}}
(
    account_id UUID COMMENT 'the account that was compared; zero: all',
    at DateTime64(3, 'Etc/GMT-3') COMMENT 'when it ended',
    from_day Date,
    to_day Date COMMENT 'the last local day that was compared',
    orders UInt64 COMMENT 'that Redis held and were compared',
    differences UInt64 COMMENT 'orders that differed and were not repaired',
    totals UInt64 COMMENT 'sums of reports that did not balance'
)
ENGINE = {{replacing "reconciliations" ""}}
PARTITION BY toYear(at)
ORDER BY (account_id, at)
SETTINGS {{durability}}
COMMENT {{$reconciliations}};

{{distributed "reconciliations" $reconciliations}};
