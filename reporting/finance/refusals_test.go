package finance

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/reports"
)

// routes are all pages there are.
func routes() []string {
	all := []string{"/payments", tiesPath, linesPath}
	for _, name := range reports.Names() {
		all = append(all, "/payments/"+name)
	}
	return all
}

func TestPages_AreForFinance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range routes() {
		for who, status := range map[string]int{"fin": 200, "both": 200, "ops": 403} {
			a := w.get(path+"?"+november, who)
			if a.StatusCode != status || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
				t.Errorf("%s by %s: %d %s", path, who, a.StatusCode, a.Header.Get("Content-Type"))
			}
			if csp := a.Header.Get("Content-Security-Policy"); csp == "" {
				t.Errorf("%s by %s: no Content-Security-Policy", path, who)
			}
		}
		if a := w.get(path, ""); a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/login") {
			t.Errorf("%s by nobody: %d %s", path, a.StatusCode, a.Header.Get("Location"))
		}
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			if a := w.ask(method, path, "fin"); a.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, a.StatusCode)
			}
		}
	}
	if a := w.get("/payments/nothing", "fin"); a.StatusCode != 404 || !strings.Contains(a.text, "there is order-ledger, expected-collections") {
		t.Errorf("%d %.300s", a.StatusCode, a.text)
	}
}

func TestFilters_SayWhatIsWrongAndKeepWhatWasTyped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.november(10)
	long := strings.Repeat("ş", 100_000)
	for _, c := range []struct{ name, query, field, typed string }{
		{"a day that is none", "from=2026-02-30&to=2026-03-01", "from", "2026-02-30"},
		{"a leap day of another year", "from=2027-02-29", "from", "2027-02-29"},
		{"another form of a day", "to=30.11.2026", "to", "30.11.2026"},
		{"to before from", "from=2026-11-02&to=2026-11-01", "to", "2026-11-01"},
		{"before all days", "from=1999-12-31", "from", "1999-12-31"},
		{"a name that nobody has", november + "&account=nobody", "account", ""},
		{"a fleet that is none", november + "&fleet=%3Cb%3E", "fleet", ""},
		{"a store too long", november + "&store=" + strings.Repeat("x", 65), "store", strings.Repeat("x", 65)},
		{"a store beyond reason", november + "&store=" + url.QueryEscape(long), "store", strings.Repeat("ş", maxTyped)},
		{"a day beyond reason", "from=" + url.QueryEscape(long), "from", strings.Repeat("ş", maxTyped)},
		{"a store that is no text", november + "&store=" + strings.Repeat("%ff", 70), "store", "\uFFFD"},
		{"a misspelt filter", november + "&acount=x", "acount", ""},
		{"a filter twice", november + "&store=a&store=b", "store", "a"},
	} {
		for _, path := range []string{"/payments", "/payments/order-ledger", "/payments/control-totals"} {
			a := w.get(path+"?"+c.query, "fin")
			d := parsed(t, a.text)
			if a.StatusCode != http.StatusUnprocessableEntity || d.size > 100_000 {
				t.Errorf("%s, %s: %d, %d bytes", path, c.name, a.StatusCode, d.size)
				continue
			}
			input, fault := d.byID(c.field), d.byID(c.field+"-fault")
			switch {
			case c.field == "acount":
				if !strings.Contains(text(all(d.root, "div", "alert")[0]), "is no filter of a report") {
					t.Errorf("%s: %s", c.name, text(all(d.root, "div", "alert")[0]))
				}
			case fault == nil || text(fault) == "" || attribute(input, "aria-invalid") != "true" || attribute(input, "aria-describedby") != c.field+"-fault":
				t.Errorf("%s: %s is not marked", c.name, c.field)
			case c.typed != "" && attribute(input, "value") != c.typed:
				t.Errorf("%s: %q is shown again", c.name, attribute(input, "value"))
			}
			if d.report() != nil || len(all(d.root, "dl", "tiles")) > 0 {
				t.Errorf("%s: something is shown all the same", c.name)
			}
		}
		if a := w.get("/payments/ties?"+c.query, "fin"); a.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("ties, %s: %d", c.name, a.StatusCode)
		}
	}
	if a := w.get("/payments?from=%zz", "fin"); a.StatusCode != http.StatusBadRequest {
		t.Errorf("%d", a.StatusCode)
	}
}

func TestFilters_AreShortenedToWhatCanBeRight(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequest("GET", "/payments?store="+strings.Repeat("%C5%9F", 64), nil)
	must(t, err)
	f, err := readFilters(r, &directory{}, time.Now())
	if err != nil || f.params.Store != strings.Repeat("ş", 64) {
		t.Errorf("%v, %d bytes", err, len(f.params.Store))
	}
}

func TestPages_SayThatClickHouseIsAway(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	w := newWorldOn(t, testenv.New(t), e)
	w.november(10)
	e.Kill(t)
	for _, path := range routes() {
		if path == pathOf(control) {
			continue // it fetches its lines, which are among the routes
		}
		a := w.get(path+"?"+november, "fin")
		if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || !strings.Contains(a.text, "Not available right now") {
			t.Errorf("%s: %d %.300s", path, a.StatusCode, a.text)
		}
		if strings.Contains(a.text, "127.0.0.1") {
			t.Errorf("%s tells where ClickHouse is", path)
		}
	}
	e.Start(t)
	for _, path := range routes() {
		if a := w.get(path+"?"+november, "fin"); a.StatusCode != 200 {
			t.Errorf("%s: %d %.300s", path, a.StatusCode, a.text)
		}
	}
}

// A token needs no session, so the pages outlive Redis, with ids for names.
func TestPages_TakeIdsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{})), testserver.SharedClickHouse(t))
	w.november(100)
	w.Server.Stop()
	began := time.Now()
	d := w.page("/payments?" + november + "&account=" + w.account.String())
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if input := d.byID("account"); input.Data != "input" || attribute(input, "value") != w.account.String() {
		t.Errorf("the account is asked for with %s", input.Data)
	}
	if rows := d.rows(); len(rows) == 0 || rows[0][1] != w.account.String() {
		t.Errorf("%q", rows)
	}
}

func TestWithin_RefusesWhatHasToWaitOrTakesTooLong(t *testing.T) {
	t.Parallel()
	turns := semaphore.NewWeighted(1)
	must(t, turns.Acquire(t.Context(), 1))
	var refused *delivery.Error
	if err := within(t.Context(), turns, time.Minute, func(context.Context) error { return nil }); !errors.As(err, &refused) || refused.Code != delivery.CodeServiceUnavailable || refused.RetryAfter == 0 {
		t.Errorf("while others read: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := within(gone, turns, time.Minute, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("after the reader has gone: %v", err)
	}
	turns.Release(1)
	err := within(t.Context(), turns, time.Millisecond, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if !errors.As(err, &refused) || !strings.Contains(refused.Message, "shorter period") {
		t.Errorf("what takes too long: %v", err)
	}
	if !turns.TryAcquire(1) {
		t.Error("a turn was not given back")
	}
}
