package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive/archiveenv"
)

// env is a running panel, with a customer and a program of finance who use it.
type env struct {
	addr, token string
	customers   string // the listener of the tracking pages alone
	tracking    string // the path of the customer's page
	page        string // what stands there: the order has ended, so it stays for the day
	log         strings.Builder
	stop        func() error // SIGTERM, and what became of it
}

func newEnv(t *testing.T) *env {
	t.Helper()
	a := archiveenv.New(t)
	o := a.Delivered(time.Now())
	e := &env{addr: freeAddr(t), customers: freeAddr(t), token: "a-token-of-finance"}
	keys := delivery.TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": make([]byte, 32)}}
	e.tracking = "/track/" + keys.Token(o.ID)
	digest := sha256.Sum256([]byte(e.token))
	ops := freeAddr(t)
	cmd := program(t, append(variables(a), "PANEL_ADDR="+e.addr, "REPORT_TOKENS=test:finance,operator:sha256:"+hex.EncodeToString(digest[:]),
		"REPORTING_OPS_ADDR="+ops, "TRACKING_ADDR="+e.customers,
		"OPS_URL=http://"+hanging(t), "PANEL_PROGRAMS=worker=http://127.0.0.1:1,reporting=http://"+ops), "serve", "--config", settingsFile(t))
	cmd.Stderr = &e.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	e.stop = func() error { return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) }
	awaitAnswer(t, "http://"+ops+"/readyz", "200 ready")
	awaitAnswer(t, "http://"+e.addr+e.tracking, "200 ")
	e.page = e.look()
	a.AwaitExported()
	a.Want("the order", "status FROM "+a.Database+".orders WHERE order_id = '"+o.ID.String()+"'", "Delivered")

	return e
}

// hanging is an address that takes connections and never answers.
func hanging(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// look is the customer's page as it is now: at midnight its times get their day.
func (e *env) look() string {
	return steady(strings.TrimPrefix(answer("http://"+e.addr+e.tracking), "200 "))
}

// steady is the page without the line with the time when it was made.
func steady(page string) string {
	before, rest, _ := strings.Cut(page, `<p class="updated">`)
	_, after, _ := strings.Cut(rest, "</p>")
	return before + after
}

// odd is what a stranger writes, and with what it may be answered; closed: the
// connection ends then, so that nothing behind it is taken for a request.
type odd struct {
	bytes  string
	status []int
	closed bool
}

func refusedAs(status int, bytes string) odd { return odd{bytes, []int{status}, true} }

// on is a request whose answer leaves the connection in order.
func on(status int, bytes string) odd { return odd{bytes, []int{status}, false} }

// A panel exports, serves, and ends when it is asked to. Requests of every odd kind are refused by what they are, or
// lose the connection; nothing breaks, nothing behind them is served, and the
// customer's page behind those that are in order is the customer's.
func TestHostile_Panel(t *testing.T) {
	t.Parallel()

	b := newEnv(t)
	t.Run("requests", func(t *testing.T) {
		for name, c := range oddRequests(b) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b.send(t, c)
			})
		}
	})

	t.Run("customers", b.customersAlone)
	t.Run("overview", b.namesWhoIsUnavailable)
	if err := b.stop(); err != nil || strings.Contains(b.log.String(), "panic") {
		t.Errorf("the panel ended with %v\n%s", err, &b.log)
	}
}

// The overview asks the programs: here the gateway hangs, and nobody is where the
// worker should be.
func (b *env) namesWhoIsUnavailable(t *testing.T) {
	operator := testenv.NewClient(t, "http://"+b.addr, "Authorization: Bearer "+b.token, testenv.AcceptHTML)
	testserver.Await(t, "both are found unavailable", func() bool {
		said := operator.Get("/overview").Want(200).Words()
		return strings.Contains(said, "gateway unavailable") && strings.Contains(said, "worker unavailable") && !strings.Contains(said, "reporting unavailable")
	})
}

// Customers' own listener has their pages and nothing else. However many
// connections one address opens there, the panel's are its own.
func (b *env) customersAlone(t *testing.T) {
	for _, path := range []string{"/login", "/", "/overview", "/assets/panel.css", "/reports/order-ledger.json"} {
		if got := answer("http://" + b.customers + path); !strings.HasPrefix(got, "404 ") {
			t.Errorf("%s: %.60s", path, got)
		}
	}

	customer := func() string { return steady(strings.TrimPrefix(answer("http://"+b.customers+b.tracking), "200 ")) }
	if got := customer(); got != b.page && got != b.look() {
		t.Errorf("the customer got %.200s", got)
	}

	http.DefaultClient.CloseIdleConnections()
	var open []net.Conn
	for range 256 {
		conn, err := net.Dial("tcp", b.customers)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}

	testserver.Await(t, "one more is closed", func() bool {
		defer http.DefaultClient.CloseIdleConnections()
		return customer() == ""
	})

	if got := answer("http://" + b.addr + "/login"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("the panel beside them: %.60s", got)
	}

	for _, conn := range open {
		_ = conn.Close()
	}

	testserver.Await(t, "their places are free again", func() bool { return customer() != "" })
}

func oddRequests(b *env) map[string]odd {
	rest := " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b.token + "\r\n\r\n"
	leave := "POST /logout HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
	get := func(status int, target string) odd { return on(status, "GET "+target+rest) }
	const report = "/reports/order-ledger.json"
	return map[string]odd{
		"length and chunks":      refusedAs(401, leave+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		"chunks":                 refusedAs(401, leave+"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		"chunks in HTTP/1.0":     refusedAs(401, strings.Replace(leave, "1.1", "1.0", 1)+"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		"two lengths":            refusedAs(400, leave+"Content-Length: 4\r\nContent-Length: 5\r\n\r\na=b&c"),
		"length with plus":       refusedAs(400, leave+"Content-Length: +4\r\n\r\na=bc"),
		"length below zero":      refusedAs(400, leave+"Content-Length: -1\r\n\r\n"),
		"length of 2^64":         refusedAs(400, leave+"Content-Length: 18446744073709551616\r\n\r\n"),
		"unknown encoding":       refusedAs(501, leave+"Transfer-Encoding: xchunked\r\n\r\na=b"),
		"two encodings":          refusedAs(501, leave+"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
		"space before a colon":   refusedAs(400, leave+"Content-Length : 3\r\n\r\na=b"),
		"NUL in a header":        refusedAs(400, "GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n"),
		"no Host":                refusedAs(400, "GET / HTTP/1.1\r\n\r\n"),
		"two Hosts":              refusedAs(400, "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
		"Host with a path":       refusedAs(400, "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n"),
		"HTTP/0.9":               refusedAs(400, "GET /\r\n\r\n"),
		"HTTP/2 preface":         refusedAs(400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"HTTP/3.0":               refusedAs(505, "GET / HTTP/3.0\r\nHost: x\r\n\r\n"),
		"no HTTP":                refusedAs(400, "\x16\x03\x01\x02\x00\x01\r\n\r\n"),
		"method with NUL":        refusedAs(400, "G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"a header of 200000":     refusedAs(431, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("y", 200_000)+"\r\n\r\n"),
		"a target of 200000":     refusedAs(431, "GET /"+strings.Repeat("a", 200_000)+" HTTP/1.1\r\nHost: x\r\n\r\n"),
		"Expect something":       refusedAs(417, leave+"Expect: 200-maybe\r\nContent-Length: 3\r\n\r\na=b"),
		"TRACE":                  on(405, "TRACE /login"+rest),
		"CONNECT":                on(405, "CONNECT example.com:443"+rest),
		"asterisk":               {"OPTIONS *" + rest, []int{200, 404}, false},
		"upgrade":                on(405, "DELETE "+b.tracking+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
		"another host's path":    {"GET //evil.example/%2e%2e" + rest, []int{301, 307, 404}, false},
		"traversal":              {"GET /track/../../etc/passwd" + rest, []int{301, 307, 404}, false},
		"encoded traversal":      get(404, "/track/%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
		"traversal of assets":    get(404, "/assets/..%2f..%2fgo.mod"),
		"traversal of reports":   get(404, "/reports/..%2f..%2fetc%2fpasswd"),
		"token with NUL":         get(404, "/track/%00"),
		"token with a line":      get(404, "/track/a%0d%0aSet-Cookie:%20a=b"),
		"token of 50000":         get(404, "/track/"+strings.Repeat("A", 50_000)),
		"forged token":           get(404, b.tracking[:len(b.tracking)-1]+"A"),
		"token in another case":  get(404, strings.ToUpper(b.tracking)),
		"unknown report":         get(404, "/reports/passwords.csv"),
		"unknown form":           get(404, "/reports/order-ledger.exe"),
		"day with NUL":           get(422, report+"?from=%00&to=%ff"),
		"day 9999-99-99":         get(422, report+"?from=9999-99-99&to=2026-01-01"),
		"day 1e999":              get(422, report+"?from=1e999&to=1e999"),
		"account with SQL":       get(422, report+"?from=2026-01-01&to=2026-01-02&account='%20OR%201=1%20--"),
		"store with SQL":         get(422, report+"?from=2026-01-01&to=2026-01-02&store='%20OR%20sleep(3)=0%20--"),
		"query garbage":          {"GET " + report + "?%zz&&==&from;to" + rest, []int{400, 422}, false},
		"5000 parameters":        {"GET " + report + "?" + strings.Repeat("from=2026-01-01&", 3000) + rest, []int{400, 422}, false},
		"wrong token":            on(401, "GET "+report+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+b.token+"x\r\n\r\n"),
		"two tokens":             on(401, "GET "+report+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+b.token+strings.TrimPrefix(rest, " HTTP/1.1\r\nHost: x")),
		"cookies of garbage":     {"GET " + report + " HTTP/1.1\r\nHost: x\r\nCookie: a=b; session=%00; =; \"\r\n\r\n", []int{303, 401}, false},
		"sign in with bad UTF-8": on(400, "POST /login"+strings.TrimPrefix(leave, "POST /logout")+"Content-Length: 20\r\n\r\nuser=%ff&password=%0"),
	}
}

// send writes it with a look at the customer's page right behind it.
func (b *env) send(t *testing.T, c odd) {
	t.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if err := conn.SetDeadline(time.Now().Add(testserver.Timeout)); err != nil {
		t.Fatal(err)
	}

	go func() { _, _ = io.WriteString(conn, c.bytes+"GET "+b.tracking+" HTTP/1.1\r\nHost: x\r\n\r\n") }()
	r := bufio.NewReader(conn)
	status, body, header := readOne(t, r)
	if !slices.Contains(c.status, status) {
		t.Errorf("got %d %.200s", status, body)
	}
	if to := header.Get("Location"); to != "" && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.Contains(to, "\\")) {
		t.Errorf("it leads to %q", to)
	}
	if header.Get("Set-Cookie") == "a=b" || strings.Contains(body, b.token) || strings.Contains(body, "goroutine ") {
		t.Errorf("the answer shows too much: %v %.200s", header, body)
	}

	if c.closed {
		if rest, _ := io.ReadAll(r); len(rest) > 0 {
			t.Errorf("the connection went on: %.200s", rest)
		}
		return
	}

	if status, body, _ := readOne(t, r); status != http.StatusOK || steady(body) != b.page && steady(body) != b.look() {
		t.Errorf("the customer behind it got %d %.200s", status, body)
	}
}

func readOne(t *testing.T, r *bufio.Reader) (status int, body string, header http.Header) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	return resp.StatusCode, string(raw), resp.Header
}
