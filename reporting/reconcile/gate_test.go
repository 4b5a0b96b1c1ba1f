package reconcile

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"vendorapi/internal/testenv/archiveenv"
	"vendorapi/reporting/archive"
)

// gate is a door to the scene's ClickHouse at which the test stands: it is told
// every statement, and decides whether it goes on and whether its answer comes
// back.
type gate struct {
	*archive.Archive
	guard atomic.Pointer[guard]
}

type guard struct {
	before func(statement string) (passes bool)
	after  func(statement string) (answers bool)
}

func newGate(t *testing.T, s *archiveenv.Env) *gate {
	t.Helper()
	engine, err := url.Parse(s.ClickHouse.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(engine)
	forward.ErrorLog = log.New(io.Discard, "", 0)
	g := &gate{}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		statement := strings.TrimSpace(r.URL.Query().Get("query") + " " + string(body[:min(len(body), 200)]))
		guard := g.guard.Load()
		if guard != nil && !guard.before(statement) {
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
		if guard != nil && !guard.after(statement) {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(door.Close)
	if g.Archive, err = archive.Open(archive.Settings{URL: door.URL + "?compress=none", Database: s.Database}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// stand puts a guard at the gate, whose parts may be nil.
func (g *gate) stand(before, after func(statement string) bool) {
	passes := func(string) bool { return true }
	if before == nil {
		before = passes
	}
	if after == nil {
		after = passes
	}
	g.guard.Store(&guard{before, after})
}

func (g *gate) leave() { g.guard.Store(nil) }
