package archive

import (
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

func render(file *template.Template) ([]string, error) {
	statements, err := renderOriginal(file)
	part, by := "", ""
	switch broken.Rule {
	case "finance/reports-each/1":
		if file.Name() == "order_ledger.sql" {
			part, by = "'TRY' AS currency", "'TL' AS currency"
		}
	case "finance/reports-each/2": // other orders are paid in cash, too
		if file.Name() == "expected_collections.sql" {
			part, by = "countIf(payment_type = 'Cash') AS", "countIf(payment_type != 'Card') AS"
		}
	case "finance/reports-each/3":
		if file.Name() == "fleet_statement.sql" {
			part, by = "countIf(status = 'Failed') AS", "countIf(status != 'Delivered') AS"
		}
	case "finance/reports-each/4": // of a cancelled order nothing was to be collected
		if file.Name() == "exceptions.sql" {
			part, by = "status IN ('Failed', 'Cancelled') AND collection_amount > 0", "status = 'Failed' AND collection_amount > 0"
		}
	case "finance/reports-each/5": // the collections tie whatever they are
		if file.Name() == "control_totals.sql" {
			part, by = "c = (e.2, e.6, e.7, e.8, e.9)", "c = c"
		}
	}
	if part != "" && err == nil {
		statements[0] = broken.Statement(statements[0], part, by)
	}
	return statements, err
}

func BusinessDay(t time.Time) time.Time {
	if broken.Rule == "finance/days-are-cut-at-00-00" { // at midnight in UTC
		t = t.Add(-3 * time.Hour)
	}
	return BusinessDayOriginal(t)
}

func OrderOf(o *delivery.Order, s *delivery.Store) Order {
	row := OrderOfOriginal(o, s)
	if broken.Rule == "states/a-delivered-without-a-courier" {
		row.WithoutCourier = false
	}
	return row
}

func (s *Settings) options() (*clickhouse.Options, error) {
	options, err := s.optionsOriginal()
	if broken.Rule == "finance/database-delivery-tables-orders-and" && err == nil && options.Auth.Database == DefaultDatabase {
		options.Auth.Database = "default"
	}
	return options, err
}
