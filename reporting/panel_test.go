package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Whoever announces a body and does not send it is let go, also by a handler
// that never looks at it, and so is one that sends more than any form has.
func TestBounded_LetsGoOfBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()
	unread := httptest.NewServer(bounded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "seen") })))
	t.Cleanup(unread.Close)
	read := httptest.NewServer(bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, "too long", http.StatusRequestEntityTooLarge)
		}
	})))
	t.Cleanup(read.Close)
	for name, server := range map[string]*httptest.Server{"unread": unread, "read": read} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "POST /accounts HTTP/1.1\r\nHost: panel\r\nContent-Length: 100000\r\n\r\na"); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(6 * panelBodyTimeout)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("the connection is still there: %v", err)
			}
		})
	}
	resp, err := http.Post(read.URL, "text/plain", io.LimitReader(zeros{}, panelBodyBytes+1))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too long: %d", resp.StatusCode)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
