package devclickhouse

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/devclickhouse/libchdb"
)

// front is the HTTP interface.
type front struct {
	open     func() (*libchdb.Conn, error) // a session of its own
	identity identity
	running  *running
	slots    chan struct{} // one element per statement under way
	maxBody  int64
	stall    time.Duration
	spool    string // folder for results that are kept until they are whole
	key      string // needed for changes; empty: nothing is
	trusting bool   // reachable from other machines, by the operator's will
	log      *slog.Logger
	active   sync.WaitGroup
}

// queueTimeout is how long a request may wait for a slot.
const queueTimeout = 10 * time.Second

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.active.Add(1)
	defer f.active.Done()
	// A deadline outlives the request that set it; this one is of the answer
	// before on the same connection.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
		return // the connection is gone
	}
	if reason := f.foreign(r); reason != "" {
		http.Error(w, reason, http.StatusForbidden)
		return
	}
	allowed := []string{http.MethodGet, http.MethodHead, http.MethodPost}
	switch r.URL.Path {
	case "/ping", "/replicas_status":
		allowed = allowed[:2]
	case "/", "":
	default:
		http.Error(w, "There is no handle "+r.URL.Path, http.StatusNotFound)
		return
	}
	if !slices.Contains(allowed, r.Method) {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		http.Error(w, r.Method+" is not allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/ping" || r.URL.Path == "/replicas_status" || r.Method != http.MethodPost && r.URL.RawQuery == "" {
		w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
		_, _ = io.WriteString(w, "Ok.\n")
		return
	}
	if err := f.query(w, r); err != nil {
		e := asException(err)
		f.log.Debug("refused", "code", e.Code, "error", e.Text)
		refuse(w, e)
	}
}

// foreign says why a request is none of a trusted caller's: a page in a browser
// can send requests to loopback, directly or through a name that it points
// there, and reading needs no password.
func (f *front) foreign(r *http.Request) string {
	if site := r.Header.Get("Sec-Fetch-Site"); r.Header.Get("Origin") != "" || site == "cross-site" || site == "same-site" {
		return "requests of web pages are not allowed"
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !f.trusting && host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
		return "the Host header must be an address or localhost"
	}
	return ""
}

// query answers one statement. An error means that nothing was answered yet.
func (f *front) query(w http.ResponseWriter, r *http.Request) error {
	q, err := parseRequest(r)
	if err != nil {
		return err
	}
	if err := q.authorize(f.key); err != nil {
		return err
	}
	h := w.Header()
	h.Set("X-ClickHouse-Query-Id", q.id)
	h.Set("X-ClickHouse-Server-Display-Name", f.identity.name)
	h.Set("X-ClickHouse-Timezone", f.identity.timezone)
	body, err := f.openBody(w, r, q)
	if err != nil {
		return err
	}
	// The statement is read before a slot is taken: a client that dawdles
	// keeps nobody waiting.
	t, err := readText(q, body)
	if err != nil {
		return err
	}
	if isHello(q, t) {
		return f.answerHello(w, q)
	}
	leave, err := f.admit(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	conn, err := f.open()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	mark, finished, err := f.running.watch(ctx, q.id)
	if err != nil {
		return err
	}
	defer finished()
	return (&execution{front: f, conn: conn, q: q, w: w, mark: mark, cancel: cancel}).run(t)
}

// admit waits for one of the slots.
func (f *front) admit(ctx context.Context) (leave func(), err error) {
	leave = func() { <-f.slots }
	select {
	case f.slots <- struct{}{}:
		return leave, nil
	default:
	}
	timeout := time.NewTimer(queueTimeout)
	defer timeout.Stop()
	select {
	case f.slots <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timeout.C:
		return nil, libchdb.NewException(codeTooManyQueries, "TOO_MANY_SIMULTANEOUS_QUERIES",
			"Too many simultaneous queries. Maximum: %d", cap(f.slots))
	}
}
