package export

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// door stands between an exporter and ClickHouse. handle may answer an insert
// in its stead; false: the insert goes on.
type door struct {
	*httptest.Server
	handle  atomic.Pointer[func(w http.ResponseWriter, r *http.Request, forward func()) bool]
	inserts atomic.Int64
}

func newDoor(t *testing.T, s *exporting, options string) *door {
	t.Helper()
	engine, err := url.Parse(s.ClickHouse.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(engine)
	forward.ErrorLog = log.New(io.Discard, "", 0)
	d := &door{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Query().Get("query"), "INSERT") {
			d.inserts.Add(1)
			if handle := d.handle.Load(); handle != nil && (*handle)(w, r, func() { forward.ServeHTTP(w, r) }) {
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(d.CloseClientConnections)
	s.Archive, err = archive.Open(archive.Settings{URL: d.URL + options, Database: s.Database})
	if err != nil {
		t.Fatal(err)
	}
	a := s.Archive
	t.Cleanup(func() { _ = a.Close() })
	return d
}

func (d *door) answer(handle func(w http.ResponseWriter, r *http.Request, forward func()) bool) {
	d.handle.Store(&handle)
}

func (d *door) open() { d.handle.Store(nil) }

func refuse(status int, code, text string) func(http.ResponseWriter, *http.Request, func()) bool {
	return func(w http.ResponseWriter, r *http.Request, _ func()) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		if code != "" {
			w.Header().Set("X-ClickHouse-Exception-Code", code)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		return true
	}
}

// cutOff stores the rows and breaks the connection before it answers.
func cutOff(w http.ResponseWriter, _ *http.Request, forward func()) bool {
	forward()
	panic(http.ErrAbortHandler)
}

// Whatever ClickHouse answers: nothing is lost or given up, the exporter does not
// spin, and goes on by itself.
func TestExport_EnduresWhateverClickHouseAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, func()) bool{
		"too many parts":     refuse(500, "252", "Code: 252. DB::Exception: Too many parts (3000). (TOO_MANY_PARTS)\n"),
		"read only":          refuse(500, "242", "Code: 242. DB::Exception: Table is in readonly mode. (TABLE_IS_READ_ONLY)\n"),
		"a user who may not": refuse(403, "497", "Code: 497. DB::Exception: finance: Not enough privileges. (ACCESS_DENIED)\n"),
		"a full disk":        refuse(500, "243", "Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)\n"),
		"a missing column":   refuse(404, "16", "Code: 16. DB::Exception: No such column. (NO_SUCH_COLUMN_IN_TABLE)\n"),
		"a proxy's page":     refuse(502, "", "<html>Bad Gateway</html>"),
		"a cut connection":   func(http.ResponseWriter, *http.Request, func()) bool { panic(http.ErrAbortHandler) },
		"cut when stored":    cutOff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, testserver.SharedClickHouse(t))
			d := newDoor(t, s, "")
			d.answer(answer)
			for range 5 {
				s.Vendor.Order("", time.Now())
			}
			e, _ := s.export("x1")
			time.Sleep(3 * time.Second)
			for range 5 {
				s.Vendor.Order("", time.Now())
			}
			if stats := s.Stats(); stats.DeadLetters != 0 || stats.Pending[ledger.RoleExport]+stats.Unread[ledger.RoleExport] != 10 {
				t.Errorf("meanwhile %+v", stats)
			}
			if n := d.inserts.Load(); n > 40 {
				t.Errorf("%d inserts tried in 3 s", n)
			}
			d.open()
			began := time.Now()
			s.AwaitExported()
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("went on after %s", took)
			}
			s.Want("orders", "count(), sum(order_amount) FROM "+s.Database+".orders", "10\t1234.5")
			s.Want("events", "count() FROM "+s.Database+".order_events", "10")
			if n := testenv.Value(t, e.metrics.panics); n != 0 {
				t.Errorf("%v panics", n)
			}
		})
	}
}

// A ClickHouse that takes the rows and never answers.
func TestExport_DoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	d := newDoor(t, s, "?read_timeout=1s")
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	d.answer(func(http.ResponseWriter, *http.Request, func()) bool {
		<-done
		return true
	})
	s.Vendor.Order("", time.Now())
	e, stop := s.export("x1")
	s.Await("the exporter gives up the insert", func() bool {
		return testenv.Value(t, e.metrics.turns.WithLabelValues(resultFailed)) > 1
	})
	d.open()
	began := time.Now()
	s.AwaitExported()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("went on after %s", took)
	}
	s.Want("orders", "count() FROM "+s.Database+".orders", "1")

	// It also ends while it waits.
	d.answer(func(http.ResponseWriter, *http.Request, func()) bool {
		<-done
		return true
	})
	before := d.inserts.Load()
	s.Vendor.Order("", time.Now())
	s.Await("an insert is under way", func() bool { return d.inserts.Load() > before })
	began = time.Now()
	stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("ended after %s", took)
	}
	d.open()
	s.export("x1")
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "2")
}

// Groups that vanish while an exporter runs are made anew, from the oldest entry.
func TestExport_GroupsVanishWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	e, _ := s.export("x1")
	for range 3 {
		s.Vendor.Order("", time.Now())
		s.NewVendor().Order("", time.Now())
		s.EachKey("e", "redis.call('XGROUP', 'DESTROY', k, 'export')")
		s.Vendor.Order("", time.Now())
		s.AwaitExported()
	}
	s.Want("orders", "count(), (SELECT count() FROM "+s.Database+".order_events) FROM "+s.Database+".orders", "9\t9")
	if n := testenv.Value(t, e.metrics.missing); n != 0 || s.Stats().DeadLetters != 0 {
		t.Errorf("%v missing, %d dead letters", n, s.Stats().DeadLetters)
	}
}
