package dispatch

import (
	"vendorapi/internal/ledger/partitions"
)

// appendBody shows the order as it is now.
func appendBody(dst []byte, d *partitions.Delivery) []byte {
	present := *d
	present.Version = 0
	return appendBodyOriginal(dst, &present)
}
