package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
)

// An outage of Redis and writes that others were faster than are logged apart, so that neither
// hides the other, whichever comes first.
func TestFault_ContentionAndOutagesAreLoggedApart(t *testing.T) {
	const outage, contention = "the ledger is unavailable", "a record was changed by others at every try"
	for name, faults := range map[string][]error{
		"the outage first":     {delivery.ErrUnavailable, errContended, delivery.ErrUnavailable, errContended},
		"the contention first": {errContended, delivery.ErrUnavailable, errContended, delivery.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			g := &gateway{
				Process: &service.Process{Log: slog.New(slog.NewTextHandler(&log, nil))},
				work:    context.Background(),
			}

			second := time.Unix(1_800_000_000, 0)

			for _, now := range []time.Time{second, second.Add(time.Second)} {
				for _, err := range faults {
					x := &requestContext{now: now, meter: &meter{name: "stores_put"}}
					g.fault(x, err)
				}
			}

			for _, line := range []string{
				`level=ERROR msg="` + outage + `"`,
				`level=WARN msg="` + contention + `"`,
			} {
				if n := strings.Count(log.String(), line); n != 2 {
					t.Errorf("%d lines %s in two seconds, want one in each", n, line)
				}
			}

			if n := strings.Count(log.String(), "unlogged=1"); n != 2 {
				t.Errorf("%d lines count what was not logged, want one of each kind:\n%s", n, log.String())
			}
		})
	}
}
