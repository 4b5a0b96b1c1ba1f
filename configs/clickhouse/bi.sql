-- A user for SQL and BI tools (reporting/REPORTS.md): run this as an administrator of ClickHouse,
-- after `reporting migrate`, with a password in place of CHANGE-ME. With another database than
-- delivery, change delivery_finance below: the name is that of the database and _finance.
--
-- The user sees the views of delivery_finance and nothing else: not the tables, whose rows replace
-- each other or do not count yet, and not the audit trail. Each view's name says whether its figures
-- are booked or live, and its comment how to sum them.
--
-- Nothing can be written. Every query is bounded: 2 minutes, 2 GB, 1,048,576 rows of a result (as
-- many as a worksheet has), a billion rows read, two threads; all queries together have 6 GB, and 20
-- may run at once. Tools send settings of their own with each query (readonly = 2 allows it), such as
-- a smaller limit or the time zone; none can raise a bound. A query that meets one fails; it is never
-- answered in part, unless the tool itself asks for no more rows than it shows (result_overflow_mode).
CREATE SETTINGS PROFILE IF NOT EXISTS vendorapi_bi SETTINGS
    readonly = 2 CONST,
    final = 1 CONST,
    do_not_merge_across_partitions_select_final = 1 CONST,
    max_execution_time = 120 MIN 1 MAX 120,
    max_memory_usage = 2000000000 MIN 1 MAX 2000000000,
    max_memory_usage_for_user = 6000000000 MIN 1 MAX 6000000000,
    max_bytes_before_external_group_by = 1000000000 CONST,
    max_bytes_before_external_sort = 1000000000 CONST,
    max_result_rows = 1048576 MIN 1 MAX 1048576,
    max_rows_to_read = 1000000000 MIN 1 MAX 1000000000,
    max_threads = 2 MIN 1 MAX 2,
    max_concurrent_queries_for_user = 20 CONST,
    timeout_overflow_mode = 'throw' CONST,
    read_overflow_mode = 'throw' CONST,
    group_by_overflow_mode = 'throw' CONST,
    sort_overflow_mode = 'throw' CONST,
    distinct_overflow_mode = 'throw' CONST,
    set_overflow_mode = 'throw' CONST,
    join_overflow_mode = 'throw' CONST;

CREATE ROLE IF NOT EXISTS vendorapi_bi SETTINGS PROFILE 'vendorapi_bi';
GRANT SELECT ON delivery_finance.* TO vendorapi_bi;

CREATE USER IF NOT EXISTS bi IDENTIFIED WITH sha256_password BY 'CHANGE-ME' DEFAULT ROLE vendorapi_bi;
GRANT vendorapi_bi TO bi;
