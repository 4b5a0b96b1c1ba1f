-- The books (reporting/CLOSING.md). Rows of these tables are only ever added, so they are read
-- without FINAL. Rows of a batch count once its seal is there.

-- The log of what was decided (package journal). Every server of a cluster has all of it. Whatever
-- is read beside the text is calculated from it, so that nothing can contradict it.
CREATE TABLE IF NOT EXISTS journal {{onCluster}}
(
    text String COMMENT 'JSON: what was decided, by whom, why, the sums, the digests, the seal of the entry before',
    key_id LowCardinality(String) COMMENT 'the key of the signature, one of BOOKS_KEYS',
    signature String COMMENT 'HMAC-SHA-256 of the text',
    sequence UInt32 ALIAS toUInt32(JSONExtractUInt(text, 'sequence')) COMMENT 'from 1 without a gap; a row can be there twice',
    kind String ALIAS JSONExtractString(text, 'kind') COMMENT 'hold, release, close, correction, dispute or set-aside',
    month Date ALIAS toDateOrZero(concat(JSONExtractString(text, 'month'), '-01')) COMMENT 'the first day of the month that it is about; of a correction: the month in which it is booked',
    batch UUID ALIAS toUUIDOrZero(JSONExtractString(text, 'batch')) COMMENT 'whose rows of closed_orders and closed_days it seals; zero: none',
    at DateTime64(3, 'Etc/GMT-3') ALIAS parseDateTime64BestEffortOrZero(JSONExtractString(text, 'at'), 3, 'Etc/GMT-3') COMMENT 'when it was decided: what as_of goes by',
    seal String ALIAS lower(hex(SHA256(text)))
)
ENGINE = {{shared "journal"}}
ORDER BY tuple()
-- The number of the INSERT that brought a row stays with it, so that rows can be removed without those that came later.
SETTINGS {{durability}}, enable_block_number_column = 1
COMMENT 'The log of the books, signed: one row per entry, which can be there twice. Read it with SELECT DISTINCT sequence, kind, month, at FROM journal ORDER BY sequence. Rows never replace each other: FINAL is not needed.';

{{$closedOrders := literal "What the orders of closed months were, and what was corrected since: one row per order and entry. Rows count only when their batch has a seal, so read the view booked_orders of the finance database, or add WHERE batch IN (SELECT batch FROM journal WHERE kind IN ('close', 'correction')). Multiply amounts by sign before summing them. Rows never replace each other: FINAL is not needed."}}
CREATE TABLE IF NOT EXISTS {{local "closed_orders"}} {{onCluster}}
(
    batch UUID,
    account_id UUID,
    business_day Date COMMENT 'local day of the creation',
    order_id UUID,
    entry UInt32 COMMENT 'counts what was said of the order, from 1; a reversal has that of what it reverses',
    sign Int8 COMMENT '1: the order, -1: reverses an earlier entry, 0: a late delivery was reported',
    posted_day Date COMMENT 'business_day; of a correction: the day on which it was booked',
    correction_of Date COMMENT 'the first day of the closed month; 1970-01-01: it is no correction',
    cause LowCardinality(String) COMMENT 'of a correction',
    version UInt64,
    external_order_id String,
    external_store_id LowCardinality(String),
    store_name LowCardinality(String),
    tax_number LowCardinality(String),
    fleet_id UUID,
    fleet_name LowCardinality(String),
    status LowCardinality(String),
    failure_reason LowCardinality(String),
    cancel_reason LowCardinality(String),
    created_at DateTime64(3, 'Etc/GMT-3'),
    ordered_at Nullable(DateTime64(3, 'Etc/GMT-3')),
    picked_up_at Nullable(DateTime64(3, 'Etc/GMT-3')),
    delivered_at Nullable(DateTime64(3, 'Etc/GMT-3')),
    ended_at Nullable(DateTime64(3, 'Etc/GMT-3')),
    payment_type LowCardinality(String),
    order_amount Nullable(Decimal(18, 2)),
    collection_amount Nullable(Decimal(18, 2)),
    courier_name LowCardinality(String),
    without_courier Bool,
    reported_at Nullable(DateTime64(3, 'Etc/GMT-3')) COMMENT 'of a late delivery'
)
ENGINE = {{appended "closed_orders"}}
PARTITION BY toYYYYMM(posted_day)
ORDER BY (batch, business_day, account_id, order_id, entry, sign)
SETTINGS {{durability}}
COMMENT {{$closedOrders}};

{{distributed "closed_orders" $closedOrders}};

-- *_youngest say which name is the youngest order's: its creation, its id and the entry as one number.
{{$closedDays := literal "Sums of closed_orders by day, account, fleet and store: one row per batch and group. Rows count only when their batch has a seal, so read the view booked_days of the finance database, or add WHERE batch IN (SELECT batch FROM journal WHERE kind IN ('close', 'correction')). Sum rows of the same group. Rows never replace each other: FINAL is not needed."}}
CREATE TABLE IF NOT EXISTS {{local "closed_days"}} {{onCluster}}
(
    batch UUID,
    account_id UUID,
    booked_day Date COMMENT 'day; of a correction: the day on which it was booked',
    day Date COMMENT 'of the creation for created, of the end for all else',
    correction_of Date,
    fleet_id UUID,
    external_store_id LowCardinality(String),
    created Int64,
    delivered Int64,
    failed Int64,
    cancelled Int64,
    cash_count Int64,
    card_count Int64,
    prepaid_count Int64,
    no_payment_type_count Int64,
    cash_without_amount_count Int64,
    order_amount_delivered Decimal(18, 2),
    cash_expected Decimal(18, 2),
    card_expected Decimal(18, 2),
    prepaid_amount Decimal(18, 2),
    no_payment_type_amount Decimal(18, 2),
    fleet_name LowCardinality(String),
    fleet_youngest UInt256,
    store_name LowCardinality(String),
    store_youngest UInt256 COMMENT '0: no order names the store',
    delivered_fleet_name LowCardinality(String),
    delivered_fleet_youngest UInt256,
    delivered_store_name LowCardinality(String),
    delivered_store_youngest UInt256
)
ENGINE = {{appended "closed_days"}}
PARTITION BY toYYYYMM(booked_day)
ORDER BY (batch, booked_day, account_id, fleet_id, external_store_id)
SETTINGS {{durability}}
COMMENT {{$closedDays}};

{{distributed "closed_days" $closedDays}};

CREATE TABLE IF NOT EXISTS delivery_sets {{onCluster}}
(
    target LowCardinality(String) COMMENT 'of deliver.targets; empty while none is configured: then the set is only announced',
    name String COMMENT 'of the set, such as 2026-10-closing-000007 or 2026-12-04-daily',
    version UInt64 COMMENT 'counts the changes of the set at this target',
    changed_at DateTime64(3, 'Etc/GMT-3') COMMENT 'when this row was written',
    due_at DateTime64(3, 'Etc/GMT-3') COMMENT 'since when the target is owed the set',
    folder String COMMENT 'at the target, as it is or will be: the name, of a day perhaps with -2 or more behind it',
    manifest String COMMENT 'SHA-256 of its manifest.json',
    report String COMMENT 'what is announced, with each file and its SHA-256: the body of POST /finance/reports/available',
    delivered_at Nullable(DateTime64(3, 'Etc/GMT-3')) COMMENT 'since when every file is there',
    announced_at Nullable(DateTime64(3, 'Etc/GMT-3')) COMMENT 'when finance\'s own system was notified of it, or had no receiver',
    error String COMMENT 'why it is not delivered or announced; empty: nothing has failed since it last succeeded'
)
ENGINE = {{shared "delivery_sets"}}
ORDER BY (target, name, version)
SETTINGS {{durability}}
COMMENT 'Which sets of files (a closing, a batch of corrections, a day) each target is owed and has: one row per target, set and version, which can be there twice. The highest version counts: read it with argMax(..., version). Rows never replace each other: FINAL is not needed.';
