package export

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

// answer answers an insert in ClickHouse's stead; forward lets ClickHouse do so.
type answer func(w http.ResponseWriter, forward func())

// proxy puts itself between the exporter and ClickHouse; answer takes all inserts.
func (e *env) proxy(options string) (answerWith func(answer), open func()) {
	e.T.Helper()
	p := e.NewProxy(options)
	e.Archive = p.Archive
	return func(a answer) {
		p.Handle(func(statement string, w http.ResponseWriter, _ *http.Request, forward func()) {
			if strings.HasPrefix(statement, "INSERT") {
				a(w, forward)
			} else {
				forward()
			}
		})
	}, func() { p.Guard(nil, nil) }
}

func refuse(status int, code, text string) answer {
	return func(w http.ResponseWriter, _ func()) {
		if code != "" {
			w.Header().Set("X-ClickHouse-Exception-Code", code)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// awaitFailures waits until so many turns of the exporter have failed.
func (e *env) awaitFailures(x *Exporter, n float64) {
	e.T.Helper()
	e.Await("turns have failed", func() bool {
		return testenv.Value(e.T, x.metrics.turns.WithLabelValues(resultFailed)) >= n
	})
}

// Whatever ClickHouse answers: nothing is lost, given up or stored twice, the
// exporter pauses longer and longer, and goes on by itself.
func TestExport_EnduresWhateverClickHouseAnswers(t *testing.T) {
	t.Parallel()

	for name, a := range map[string]answer{
		"too many parts":     refuse(500, "252", "Code: 252. DB::Exception: Too many parts (3000). (TOO_MANY_PARTS)\n"),
		"read only":          refuse(500, "242", "Code: 242. DB::Exception: Table is in readonly mode. (TABLE_IS_READ_ONLY)\n"),
		"a user who may not": refuse(403, "497", "Code: 497. DB::Exception: finance: Not enough privileges. (ACCESS_DENIED)\n"),
		"a full disk":        refuse(500, "243", "Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)\n"),
		"a missing column":   refuse(404, "16", "Code: 16. DB::Exception: No such column. (NO_SUCH_COLUMN_IN_TABLE)\n"),
		"a proxy's page":     refuse(502, "", "<html>Bad Gateway</html>"),
		"a cut connection":   func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) },
		"cut when stored": func(_ http.ResponseWriter, forward func()) {
			forward()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newEnv(t)
			answerWith, open := s.proxy("")
			answerWith(a)
			for range 5 {
				s.Vendor.Order("", time.Now())
			}

			began := time.Now()
			x, _ := s.export("x1")
			s.awaitFailures(x, 4)
			if paused := time.Since(began); paused < 700*time.Millisecond { // 100 + 200 + 400
				t.Errorf("4 inserts tried within %s", paused)
			}

			for range 5 {
				s.Vendor.Order("", time.Now())
			}

			if stats := s.Stats(); stats.DeadLetters != 0 || stats.Pending[ledger.RoleExport]+stats.Unread[ledger.RoleExport] != 10 {
				t.Errorf("meanwhile %+v", stats)
			}

			open()
			s.AwaitExported()
			s.Want("orders", "count(), sum(order_amount) FROM "+s.Database+".orders", "10\t1234.5")
			s.Want("events", "count() FROM "+s.Database+".order_events", "10")
			if n := testenv.Value(t, x.metrics.panics); n != 0 {
				t.Errorf("%v panics", n)
			}
		})
	}
}

// An exporter ends although ClickHouse does not answer its insert.
func TestExport_EndsWhileAnInsertIsInFlight(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	answerWith, open := s.proxy("")
	inFlight, done := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(done) })
	answerWith(func(http.ResponseWriter, func()) { inFlight <- struct{}{}; <-done })
	s.Vendor.Order("", time.Now())
	_, stop := s.export("x1")
	<-inFlight
	stop()
	open()
	s.export("x1")
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "1")
}

// Groups that vanish while an exporter runs are made again, from the oldest entry.
func TestExport_GroupsVanishWhileItRuns(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	x, _ := s.export("x1")
	for range 3 {
		s.Vendor.Order("", time.Now())
		s.NewVendor().Order("", time.Now())
		s.EachKey("e", "redis.call('XGROUP', 'DESTROY', k, 'export')")
		s.Vendor.Order("", time.Now())
		s.AwaitExported()
	}

	s.Want("orders", "count(), (SELECT count() FROM "+s.Database+".order_events) FROM "+s.Database+".orders", "9\t9")
	if n := testenv.Value(t, x.metrics.missing); n != 0 || s.Stats().DeadLetters != 0 {
		t.Errorf("%v missing, %d dead letters", n, s.Stats().DeadLetters)
	}
}
