-- Three users of ClickHouse for reporting, so that no process can do more than it has to: run this as
-- an administrator of ClickHouse, with passwords in place of CHANGE-ME (docs/configuration.md says
-- which process gets which). With another database than delivery, change delivery and
-- delivery_finance below. In a cluster, add ON CLUSTER to each statement.

-- reporting_migrate makes and changes tables and views: `reporting migrate` and `restore`, which people
-- run. It is the definer of finance's views, so it has to stay:
-- without it they cannot be read.
CREATE ROLE IF NOT EXISTS vendorapi_migrate;
GRANT ALL ON delivery.* TO vendorapi_migrate;
GRANT ALL ON delivery_finance.* TO vendorapi_migrate;
GRANT CLUSTER, REMOTE ON *.* TO vendorapi_migrate;
CREATE USER IF NOT EXISTS reporting_migrate IDENTIFIED WITH sha256_password BY 'CHANGE-ME' DEFAULT ROLE vendorapi_migrate;
GRANT vendorapi_migrate TO reporting_migrate;

-- reporting_write adds rows, and removes those that are replaced, were never sealed, or were set aside
-- from the books' log: the roles export and reconcile, the panel's decisions about months, and the
-- commands `reconcile`, `rebuild`, `month status`, `month verify`, `month recover` and `month correct`.
-- It cannot say when a row was stored: by that, what has changed in closed months is found the next night.
CREATE SETTINGS PROFILE IF NOT EXISTS vendorapi_write SETTINGS
    insert_allow_materialized_columns = 0 CONST;
CREATE ROLE IF NOT EXISTS vendorapi_write SETTINGS PROFILE 'vendorapi_write';
GRANT SELECT, INSERT ON delivery.* TO vendorapi_write;
REVOKE INSERT ON delivery.schema_migrations FROM vendorapi_write;
REVOKE INSERT ON delivery.identity FROM vendorapi_write;
GRANT ALTER DELETE ON delivery.orders TO vendorapi_write;
GRANT ALTER DELETE ON delivery.order_events TO vendorapi_write;
GRANT ALTER DELETE ON delivery.late_deliveries TO vendorapi_write;
GRANT ALTER DELETE ON delivery.closed_orders TO vendorapi_write;
GRANT ALTER DELETE ON delivery.closed_days TO vendorapi_write;
GRANT ALTER DELETE ON delivery.orders_local TO vendorapi_write;
GRANT ALTER DELETE ON delivery.order_events_local TO vendorapi_write;
GRANT ALTER DELETE ON delivery.late_deliveries_local TO vendorapi_write;
GRANT ALTER DELETE ON delivery.closed_orders_local TO vendorapi_write;
GRANT ALTER DELETE ON delivery.closed_days_local TO vendorapi_write;
GRANT ALTER DELETE ON delivery.journal TO vendorapi_write;
-- How long the audit trail is kept is a setting of the exporter (AUDIT_DAYS).
GRANT ALTER TTL ON delivery.audit TO vendorapi_write;
GRANT ALTER TTL ON delivery.audit_local TO vendorapi_write;
GRANT CLUSTER ON *.* TO vendorapi_write;
CREATE USER IF NOT EXISTS reporting_write IDENTIFIED WITH sha256_password BY 'CHANGE-ME' DEFAULT ROLE vendorapi_write;
GRANT vendorapi_write TO reporting_write;

-- reporting_read reads: the panel's pages, reports and downloads, and `reporting backup`.
CREATE ROLE IF NOT EXISTS vendorapi_read;
GRANT SELECT ON delivery.* TO vendorapi_read;
CREATE USER IF NOT EXISTS reporting_read IDENTIFIED WITH sha256_password BY 'CHANGE-ME' DEFAULT ROLE vendorapi_read;
GRANT vendorapi_read TO reporting_read;
