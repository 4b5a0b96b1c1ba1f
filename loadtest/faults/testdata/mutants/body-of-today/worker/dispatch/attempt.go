package dispatch

import "vendorapi/internal/ledger"

// appendBody shows the order as it is now.
func appendBody(dst []byte, d *ledger.Delivery) []byte {
	present := *d
	present.Version = 0
	return appendBodyOriginal(dst, &present)
}
