package archiveenv

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

	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
)

// Proxy stands between an archive and ClickHouse. At first it lets everything pass.
type Proxy struct {
	URL     string
	Archive *archive.Archive // by way of the proxy
	handle  atomic.Pointer[Handler]
}

// Handler deals with a request; forward has ClickHouse answer it. Panicking with
// http.ErrAbortHandler breaks the connection. The statement is cut off after 200
// bytes.
type Handler func(statement string, w http.ResponseWriter, r *http.Request, forward func())

// NewProxy starts one; options are those of a URL of ClickHouse.
func (e *System) NewProxy(options string) *Proxy {
	e.T.Helper()
	engine, err := url.Parse(e.ClickHouse.URL)
	testenv.Must(e.T, err)
	forward := httputil.NewSingleHostReverseProxy(engine)
	forward.ErrorLog = log.New(io.Discard, "", 0)
	p := &Proxy{}
	p.Guard(nil, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		statement := strings.TrimSpace(r.URL.Query().Get("query") + " " + string(body[:min(len(body), 200)]))
		(*p.handle.Load())(statement, w, r, func() { forward.ServeHTTP(w, r) })
	}))

	e.T.Cleanup(server.Close)
	p.URL = server.URL + "?compress=none" + options
	p.Archive = e.open(p.URL)

	return p
}

// Handle has the handler deal with everything from now on.
func (p *Proxy) Handle(h Handler) { p.handle.Store(&h) }

// Guard lets before and after, which may be nil, look at every statement: before
// decides whether it reaches ClickHouse, after whether its answer comes back.
func (p *Proxy) Guard(before, after func(statement string) bool) {
	p.Handle(func(statement string, _ http.ResponseWriter, _ *http.Request, forward func()) {
		if before != nil && !before(statement) {
			panic(http.ErrAbortHandler)
		}
		forward()
		if after != nil && !after(statement) {
			panic(http.ErrAbortHandler)
		}
	})
}
