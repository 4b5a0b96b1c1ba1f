package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// pipes is a listener whose connections are pipes, for a bubble of synctest.
type pipes chan net.Conn

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Whoever announces a body and does not send it is let go, also by a handler
// that never looks at it, and so is one that sends more than any form has.
func TestBounded_LetsGoOfBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()

	unread := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "seen") }
	read := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, "the body is too long or did not come", http.StatusRequestEntityTooLarge)
		}
	}

	const head = "POST /accounts HTTP/1.1\r\nHost: panel\r\nContent-Length: "
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		request string
		want    string
	}{
		"unread":   {unread, head + "100000\r\n\r\na", "HTTP/1.1 200 OK"},
		"read":     {read, head + "100000\r\n\r\na", "HTTP/1.1 413"},
		"too long": {read, "POST /accounts HTTP/1.1\r\nHost: panel\r\nContent-Length: 1048577\r\n\r\n" + strings.Repeat("a", panelBodyBytes+1), "HTTP/1.1 413"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := make(pipes)
				server := &http.Server{Handler: bounded(c.handler)}
				go func() { _ = server.Serve(listener) }()
				client, served := net.Pipe()
				listener <- served
				go func() { _, _ = io.WriteString(client, c.request) }()
				got, err := io.ReadAll(client) // until the server closes, however late
				if err != nil || !strings.HasPrefix(string(got), c.want) {
					t.Errorf("got %.100q, %v", got, err)
				}

				close(listener)
				_ = server.Close()
				_ = client.Close()
			})
		})
	}
}

// One request more than may be in work is refused at once, and the next one after
// an end is served.
func TestInFlight_RefusesWhatIsTooMuch(t *testing.T) {
	t.Parallel()

	p := &panel{settings: panelSettings{MaxInFlight: 2}, log: slog.New(slog.DiscardHandler)}
	begun, end := make(chan struct{}), make(chan struct{})
	h := p.inFlight(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-end }))
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w
	}

	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { ask() })
		<-begun
	}

	if w := ask(); w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "SERVICE_UNAVAILABLE") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}

	end <- struct{}{}
	end <- struct{}{}
	all.Wait()
	all.Go(func() { ask() })
	<-begun
	end <- struct{}{}
	all.Wait()
}
