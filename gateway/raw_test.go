package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// raw sends bytes to the vendor listener and reads one response: its status,
// its header section and its body.
func (w *world) raw(bytes string) (status int, header, body string) {
	w.Helper()
	c := w.dial()
	defer c.Close()
	if _, err := io.WriteString(c, bytes); err != nil {
		w.Fatal(err)
	}
	return w.response(bufio.NewReader(c))
}

func (w *world) dial() net.Conn {
	w.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.vendor, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		w.Fatal(err)
	}
	return c
}

// response reads one response off a connection.
func (w *world) response(r *bufio.Reader) (status int, header, body string) {
	w.Helper()
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			w.Fatalf("after %q: %v", header, err)
		}
		if line == "\r\n" {
			break
		}
		header += line
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.EqualFold(name, "Content-Length") {
			length = atoi(value)
		}
	}
	if fields := strings.Fields(header); len(fields) > 1 {
		status = atoi(fields[1])
	}
	raw := make([]byte, length)
	if _, err := io.ReadFull(r, raw); err != nil {
		w.Fatal(err)
	}
	return status, header, string(raw)
}

func atoi(s string) int {
	n := 0
	for _, c := range strings.TrimSpace(s) {
		n = n*10 + int(c-'0')
	}
	return n
}

// parseHeader gives a header section the form that net/http has for it.
func parseHeader(status int, section string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}}
	for line := range strings.Lines(section) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			resp.Header.Add(name, value)
		}
	}
	return resp
}
