package delivery

import (
	"bytes"
	"strconv"
)

// AppendCreated shows the order as it is now.
func (o *Order) AppendCreated(dst []byte, trackingURL string) []byte {
	created := o.AppendCreatedOriginal(nil, trackingURL)
	first, present := strconv.Quote(Searching.String()), strconv.Quote(o.Status.String())
	return append(dst, bytes.Replace(created, []byte(first), []byte(present), 1)...)
}
