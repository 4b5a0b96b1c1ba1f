package receiver

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strconv"

	"vendorapi/internal/rules/broken"
)

func (r *Receiver) store(e Event, body [sha256.Size]byte) (duplicate bool) {
	if broken.Rule == "delivery-rules/3" { // each arrival is an event
		e.EventID += strconv.Itoa(r.Counts().Received)
	}
	return r.storeOriginal(e, body)
}

func (r *Receiver) insert(e Event) {
	if broken.Rule == "delivery-rules/4" { // in the order of arrival
		r.orders[e.Order.OrderID] = append(r.orders[e.Order.OrderID], Entry{e.Order.Status, e.OccurredAt, r.now(), e.EventID, e.Attempt})
		return
	}
	r.insertOriginal(e)
}

func parse(header http.Header, body []byte) (Event, error) {
	e, err := parseOriginal(header, body)
	switch broken.Rule {
	case "delivery-rules/5", "versioning/new-webhook-event-types-may": // what is not known is refused
		if err == nil && !slices.Contains(knownEvents, e.Event) {
			return e, http.ErrNotSupported
		}
	}
	return e, err
}
