package download

import (
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/reports"
)

// safeName may stand in a header and be a file anywhere.
var safeName = regexp.MustCompile(`^[a-z-]+_\d{4}-\d\d-\d\d_\d{4}-\d\d-\d\d(_plain)?\.(csv|xlsx|json)$`)

func FuzzParse(f *testing.F) {
	for _, seed := range []struct{ path, query string }{
		{"/reports/order-ledger.csv", "from=2026-11-01&to=2026-11-30&plain=1"},
		{"/reports/control-totals.xlsx", "store=%C5%9Fube&account=00000000-0000-4000-8000-000000000001"},
		{"/reports/.csv", "plain=0"}, {"/reports/../order-ledger.json", "a=b;c=d"}, {"order-ledger.csv", "from=%"},
	} {
		f.Add("GET", seed.path, seed.query, "gzip;q=0.5, *;q=0")
	}

	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, method, path, query, accept string) {
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{"Accept-Encoding": {accept}}}
		_ = auth.AcceptsGzip(r)
		q, err := parse(r, unnamed, now)
		if err != nil {
			if status := delivery.CodeOf(err).HTTPStatus(); status < 400 || status >= 500 {
				t.Errorf("%q?%q: %v", path, query, err)
			}
			return
		}

		if !safeName.MatchString(q.name("")) || q.report == nil || q.format == reports.Table || q.params.From > q.params.To {
			t.Errorf("%q?%q: %+v, %s", path, query, q, q.name(""))
		}
	})
}
