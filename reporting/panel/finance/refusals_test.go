package finance

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/reports"
)

// routes are all pages there are.
func routes() []string {
	all := []string{"/payments", balancePath, linesPath}
	for _, name := range reports.Names() {
		all = append(all, "/payments/"+name)
	}
	return all
}

func TestPages_AreForFinance(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	for _, path := range routes() {
		e.page(path + "?" + november).Carries(map[string]string{"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": auth.PolicyScripts})
		e.client.Get(path+"?"+november, authenv.As("operator")).Want(http.StatusForbidden)
		stranger := testenv.NewClient(t, e.client.URL, testenv.AcceptHTML).Get(path).Want(http.StatusSeeOther)
		if to := stranger.Header.Get("Location"); !strings.HasPrefix(to, "/login") {
			t.Errorf("%s leads to %s", path, to)
		}

		for _, method := range []string{"POST", "PUT", "DELETE"} {
			e.client.Do(method, path, "").Want(http.StatusMethodNotAllowed)
		}
	}

	e.client.Get("/payments/nothing").Want(404, "there is order-ledger, expected-collections")
}

func TestFilters_SayWhatIsWrongAndKeepWhatWasTyped(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(10)
	long := strings.Repeat("ş", 100_000)
	for _, c := range []struct{ name, query, field, typed string }{
		{"a day that is none", "from=2026-02-30&to=2026-03-01", "from", "2026-02-30"},
		{"a leap day of another year", "from=2027-02-29", "from", "2027-02-29"},
		{"another form of a day", "to=30.11.2026", "to", "30.11.2026"},
		{"two days that are none", "from=22.11.2026&to=22.11.2026", "from", "22.11.2026"},
		{"from in the future alone", "from=2099-11-02", "from", "2099-11-02"},
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
			d := page{e.client.Get(path + "?" + c.query).Want(http.StatusUnprocessableEntity)}
			if len(d.Text) > 100_000 {
				t.Errorf("%s, %s: %d bytes", path, c.name, len(d.Text))
			}

			input, fault := d.ByID(c.field), d.ByID(c.field+"-fault")
			switch {
			case c.field == "acount":
				if !strings.Contains(testenv.Words(testenv.All(d.Tree(), "div", "alert")[0]), "is no filter of a report") {
					t.Errorf("%s: %s", c.name, testenv.Words(testenv.All(d.Tree(), "div", "alert")[0]))
				}
			case fault == nil || testenv.Words(fault) == "" || testenv.Attribute(input, "aria-invalid") != "true" || testenv.Attribute(input, "aria-describedby") != c.field+"-fault":
				t.Errorf("%s: %s is not marked", c.name, c.field)
			case c.typed != "" && testenv.Attribute(input, "value") != c.typed:
				t.Errorf("%s: %q is shown again", c.name, testenv.Attribute(input, "value"))
			}

			d.Lacks("VALIDATION_FAILED")
			if d.report() != nil || len(testenv.All(d.Tree(), "dl", "tiles")) > 0 {
				t.Errorf("%s: something is shown all the same", c.name)
			}
		}

		e.client.Get("/payments/ties?" + c.query).Want(http.StatusUnprocessableEntity)
	}

	e.client.Get("/payments?from=%zz").Want(http.StatusBadRequest)
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

// Whether ClickHouse refuses the connection, or takes every question and never
// answers: the page comes with its filters and says what is missing.
func TestPages_SayThatClickHouseIsUnavailable(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for name, url := range map[string]string{"refuses": "http://127.0.0.1:1", "hangs": "http://" + silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			unavailable, err := archive.Open(archive.Settings{URL: url, Database: e.Database})
			must(t, err)
			t.Cleanup(func() { _ = unavailable.Close() })
			e.serve(unavailable)
			e.pages.pinged.Timeout = pingLimit // a ClickHouse that hangs is noticed after it
			var all sync.WaitGroup
			for _, path := range routes() {
				all.Go(func() {
					a := e.client.Get(path + "?" + november).Want(http.StatusOK).Lacks("127.0.0.1")
					switch path {
					case pathOf(control): // it fetches its lines, which are among the routes
					case balancePath:
						a.Says("Not read: ClickHouse does not answer")
					default:
						a.Says("The figures cannot be read right now: ClickHouse does not answer.")
						if input := a.ByID("from"); testenv.Attribute(input, "value") != "2026-11-01" {
							t.Errorf("%s: the period is lost", path)
						}
					}
				})
			}

			all.Wait()
		})
	}
}

// What takes long is waited for as long as ClickHouse answers.
func TestWithin_EndsWithClickHouseAndNotBefore(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		p := &Pages{reading: semaphore.NewWeighted(1), queueing: queueing, pinged: layout.Cache[error]{MaxAge: pingPause, Timeout: pingLimit, Read: func(ctx context.Context) (error, error) {
			if silent.Load() {
				<-ctx.Done()
				return ctx.Err(), nil
			}
			return nil, nil
		}}}

		must(t, p.within(t.Context(), p.reading, digestLimit, func(ctx context.Context) error { time.Sleep(pageLimit); return ctx.Err() }))
		silent.Store(true)
		time.Sleep(pingPause + 1)
		began := time.Now()
		err := p.within(t.Context(), p.reading, digestLimit, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, delivery.ErrUnavailable) || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A token needs no session, so the pages outlive Redis, with ids for names.
func TestPages_TakeIdsWhileRedisIsUnavailable(t *testing.T) {
	t.Parallel()

	e := newEnvOn(t, testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{})))
	e.november(50)
	e.Server.Stop()
	d := e.page("/payments?" + november + "&account=" + e.account.String())
	if input := d.ByID("account"); input.Data != "input" || testenv.Attribute(input, "value") != e.account.String() {
		t.Errorf("the account is asked for with %s", input.Data)
	}
	if rows := d.rows(); len(rows) == 0 || !strings.HasSuffix(rows[0][0], "|"+e.account.String()) {
		t.Errorf("%q", rows)
	}
}

func TestWithin_RefusesWhatHasToWaitOrTakesTooLong(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		turns := semaphore.NewWeighted(1)
		p := &Pages{queueing: queueing, pinged: layout.Cache[error]{MaxAge: time.Hour, Timeout: pingLimit, Read: func(context.Context) (error, error) { return nil, nil }}}
		must(t, turns.Acquire(t.Context(), 1))
		var refused *delivery.Error
		if err := p.within(t.Context(), turns, time.Minute, func(context.Context) error { return nil }); !errors.As(err, &refused) || refused.Code != delivery.CodeServiceUnavailable || refused.RetryAfter == 0 {
			t.Errorf("while others read: %v", err)
		}

		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := p.within(gone, turns, time.Minute, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("after the reader has gone: %v", err)
		}

		turns.Release(1)
		err := p.within(t.Context(), turns, time.Minute, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, "shorter period") {
			t.Errorf("what takes too long: %v", err)
		}

		if !turns.TryAcquire(1) {
			t.Error("a turn was not given back")
		}
	})
}
