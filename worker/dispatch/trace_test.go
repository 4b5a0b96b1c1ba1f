package dispatch

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/tracing"
	"vendorapi/worker/dispatch/sender"
)

func TestAbout_NamesAccountOrderAndEventAndNothingPrivate(t *testing.T) {
	t.Parallel()

	order := &delivery.Order{ID: delivery.OrderID{1, 2, 3}, Account: delivery.NewAccountID()}
	order.PackageNote = "geheim"
	order.Recipient = delivery.Recipient{Name: "Ayşe Geheim", Phone: "5321234567"}
	a := &attempt{Delivery: &partitions.Delivery{EventID: "e-1", Account: order.Account, Order: order}, number: 3,
		receiver: partitions.Receiver{URL: "https://vendor.example/hook?key=geheim"}}
	tracer, err := tracing.Open(t.Context(), tracing.Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: 1}, "worker", "sandbox", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	for _, r := range []*Role{{}, {tracer: tracer}} {
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Error("line", r.about(a, "error", "timeout")...)
		var line map[string]any
		if err := json.Unmarshal(b.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line["account"] != order.Account.String() || line["order"] != order.ID.String() || line["event"] != "e-1" || line["attempt"] != 3.0 || line["error"] != "timeout" {
			t.Errorf("%s", &b)
		}
		if traced := line["trace_id"] == "01020300000000000000000000000000"; traced != (r.tracer != nil) {
			t.Errorf("trace_id %v", line["trace_id"])
		}

		for _, private := range []string{"geheim", "Geheim", "5321234567"} {
			if strings.Contains(b.String(), private) {
				t.Errorf("%q in %s", private, &b)
			}
		}
	}
}

func TestPromise_TellsTheReceiverOnlyWhileTracingIsOn(t *testing.T) {
	a := &attempt{Delivery: &partitions.Delivery{EventID: "e-1", Order: &delivery.Order{ID: delivery.OrderID{7}}}}
	header := http.Header{}
	(&Role{}).promise(a, header)
	if len(header) != 0 {
		t.Errorf("off, and the header is %v", header)
	}

	off := testing.AllocsPerRun(100, func() { r := &Role{}; r.trace(a, r.promise(a, header), a.OccurredAt, sender.Answer{}) })
	if off != 0 {
		t.Errorf("off, and it costs %v allocations", off)
	}
}
