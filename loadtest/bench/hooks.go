package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"vendorapi/loadtest/receiver"
)

// hooks is the vendors' webhook receivers, one path for each. They verify every
// signature and keep what they have seen.
type hooks struct {
	server    *http.Server
	origin    string
	mux       *http.ServeMux
	receivers []*receiver.Receiver
	// watch is told of every distinct event; nil: nobody is.
	watch atomic.Pointer[func(receiver.Event)]
	bytes atomic.Int64 // of all requests, heads and bodies
}

func listenForHooks() (*hooks, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	h := &hooks{origin: "http://" + l.Addr().String(), mux: http.NewServeMux(), receivers: make([]*receiver.Receiver, vendors)}
	h.server = &http.Server{Handler: h.mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.server.Serve(l) }() // ends with close
	return h, nil
}

func (h *hooks) close() {
	if h != nil {
		_ = h.server.Close() // its listener goes with it
	}
}

// url is where the i-th vendor's webhooks go.
func (h *hooks) url(i int) string { return h.origin + "/" + strconv.Itoa(i) }

// add opens the i-th vendor's receiver.
func (h *hooks) add(i int, secret string) (err error) {
	h.receivers[i], err = receiver.New(receiver.Options{Secrets: []string{secret}, Seen: func(e receiver.Event, duplicate bool) {
		if watch := h.watch.Load(); watch != nil && !duplicate {
			(*watch)(e)
		}
	}})
	if err == nil {
		h.mux.HandleFunc("/"+strconv.Itoa(i), func(w http.ResponseWriter, r *http.Request) {
			h.bytes.Add(requestBytes(r))
			h.receivers[i].ServeHTTP(w, r)
		})
	}
	return err
}

// requestBytes is the length of a request as it came over the wire.
func requestBytes(r *http.Request) int64 {
	n := len(r.Method) + len(" ") + len(r.RequestURI) + len(" HTTP/1.1\r\nHost: ") + len(r.Host) + len("\r\n\r\n")
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(": ") + len(v) + len("\r\n")
		}
	}
	return int64(n) + r.ContentLength
}

// check refuses what no receiver should ever see: an event that cannot be
// verified or read, or that came twice with different bytes.
func (h *hooks) check() error {
	for i, r := range h.receivers {
		c := r.Counts()
		for reason, n := range c.Invalid {
			return fmt.Errorf("vendor %d: %d webhooks refused: %s", i, n, reason)
		}
		if c.Changed > 0 {
			return errors.New("an event came twice with different bytes")
		}
	}
	return nil
}
