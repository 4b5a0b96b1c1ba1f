package archive

import "vendorapi/internal/delivery"

// OrderOf makes a later version of an order an earlier one for ClickHouse.
func OrderOf(o *delivery.Order, s *delivery.Store) Order {
	row := OrderOfOriginal(o, s)
	row.Version = ^row.Version
	return row
}
