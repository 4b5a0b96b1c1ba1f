-- A user for BI tools (reporting/CLOSING.md): run this as an administrator of ClickHouse, after
-- `reporting migrate`, with a password in place of CHANGE-ME.
--
-- It reads the views of what was booked, and the reports' views. Every query is bounded: 30 s,
-- 2 GB, a million rows of a result, a billion rows read. Settings cannot be changed.
CREATE SETTINGS PROFILE IF NOT EXISTS vendorapi_bi SETTINGS
    readonly = 1,
    max_execution_time = 30,
    max_memory_usage = 2000000000,
    max_bytes_before_external_group_by = 1000000000,
    max_bytes_before_external_sort = 1000000000,
    max_result_rows = 1000000,
    result_overflow_mode = 'throw',
    max_rows_to_read = 1000000000,
    max_concurrent_queries_for_user = 4,
    max_threads = 2,
    do_not_merge_across_partitions_select_final = 1;

CREATE ROLE IF NOT EXISTS vendorapi_bi SETTINGS PROFILE 'vendorapi_bi';
GRANT SELECT ON delivery.* TO vendorapi_bi;

CREATE USER IF NOT EXISTS bi IDENTIFIED WITH sha256_password BY 'CHANGE-ME' DEFAULT ROLE vendorapi_bi;
GRANT vendorapi_bi TO bi;
