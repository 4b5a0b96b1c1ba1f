package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"vendorapi/loadtest/k6/results"
	"vendorapi/loadtest/receiver"
)

func TestDistanceOfRead_ReadsAtMostSoManyOrders(t *testing.T) {
	t.Parallel()
	for orders, want := range map[int]int{0: 1, 1: 1, mostRead: 1, mostRead + 1: 2, 2 * mostRead: 2, 2*mostRead + 1: 3} {
		if got := distanceOfRead(orders); got != want {
			t.Errorf("of %d orders every %d. is read, want every %d.", orders, got, want)
		}
	}
}

func TestHistories_AssumeOrdersThatAreNotRead(t *testing.T) {
	t.Parallel()

	var reads atomic.Int64
	a := &account{label: "1", api: newVendorAPI(t, func(w http.ResponseWriter, r *http.Request) {
		reads.Add(1)
		_, _ = fmt.Fprintf(w, `{"success": true, "data": {"orderId": %q, "status": "Delivered", "events": [{"status": "Searching"}]}}`, strings.TrimPrefix(r.URL.Path, "/orders/"))
	})}

	var orders []results.Order
	for i := range mostRead + 2 {
		orders = append(orders, results.Order{ID: fmt.Sprint("o", i), End: "Delivered"})
	}

	orders[1].End = "Searching" // has no webhooks
	received, err := receiver.New(receiver.Options{Secrets: []string{"whsec_dGVzdA=="}})
	if err != nil {
		t.Fatal(err)
	}

	histories, err := a.histories(t.Context(), orders, received)

	if err != nil || len(histories) != mostRead+1 || reads.Load() != mostRead/2+1 {
		t.Fatalf("%d histories, %d reads, %v", len(histories), reads.Load(), err)
	}
	if h := histories[0]; h.Status != "Delivered" || len(h.Events) != 1 {
		t.Errorf("read: %+v", h)
	}
	if h := histories[1]; h.OrderID != "o2" || h.Status != "Searching" || len(h.Events) != len(wholeWay) {
		t.Errorf("not read, and no webhook arrived of it: %+v", h)
	}
}

func TestRead_GivesAnOrderThatCannotBeReadAnotherStatus(t *testing.T) {
	t.Parallel()

	var reads atomic.Int64
	a := &account{label: "1", api: newVendorAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		reads.Add(1)
		_, _ = io.WriteString(w, `{"success": false, "data": {"errorCode": "RATE_LIMITED"}}`)
	})}

	h := receiver.History{OrderID: "o1", End: "Delivered"}

	err := a.read(t.Context(), &h)

	if err != nil || !strings.HasPrefix(h.Status, "nobody knows how") || reads.Load() != mostTries {
		t.Errorf("%+v after %d reads, %v", h, reads.Load(), err)
	}
}
