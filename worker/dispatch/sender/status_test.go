package sender

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Whatever stands around the status line of a final answer, and in whatever pieces it arrives, its status
// decides: on a new connection and on one that had a request before.
func TestSend_TheStatusDecidesAmongAnything(t *testing.T) {
	fields := []string{
		"Link: </a.css>; rel=preload\r\n", "X: " + strings.Repeat("x", 1500) + "\r\n", "Powered by POS\r\n", ": 1\r\n", " folded\r\n",
		"Content-Length: 2\r\n", "Content-Length: yok\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip\r\n",
		"X: \x00\r\n", "Şube: 1\r\n", "X: 1\n", "\x80\xff\r\n", "Connection: close\r\n", "X : 1\r\n",
	}

	rests := []string{"\r\n", "\n", "", "Content-Len", "\r\nok", "\r\n2\r\nok\r\n0\r\n\r\n", "\r\nzz\r\n", "\r\n0\r\nX\r\n\r\n"}
	rapid.Check(t, func(rt *rapid.T) {
		var answer strings.Builder
		for range rapid.IntRange(0, 2).Draw(rt, "interim answers") {
			answer.WriteString(rapid.SampledFrom([]string{"HTTP/1.1 100 Continue\r\n", "HTTP/1.1 103 Early Hints\r\n", "HTTP/1.0 102\n"}).Draw(rt, "interim"))
			answer.WriteString(strings.Join(rapid.SliceOfN(rapid.SampledFrom(fields), 0, 4).Draw(rt, "its fields"), ""))
			answer.WriteString("\r\n")
		}

		line := rapid.SampledFrom([]string{"HTTP/1.1 200 OK\r\n", "HTTP/1.0 204\n", "HTTP/1.1 299 \xff\r\n", "HTTP/1.1 500 Error\r\n", "HTTP/1.1 302 Found\r\n"}).Draw(rt, "line")
		answer.WriteString(line)
		answer.WriteString(strings.Join(rapid.SliceOfN(rapid.SampledFrom(fields), 0, 4).Draw(rt, "fields"), ""))
		answer.WriteString(rapid.SampledFrom(rests).Draw(rt, "rest"))
		status, _ := parseStatusLine(strings.TrimRight(line, "\r\n"))
		isReused := rapid.Bool().Draw(rt, "reused")
		piece := rapid.SampledFrom([]int{10_000, 1000, 100, 10}).Draw(rt, "bytes in a piece")

		synctest.Test(t, func(t *testing.T) {
			l := listenPipes()
			raw(t, l, func(conn net.Conn) {
				if isReused && readRequest(conn) {
					_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
				}

				if !readRequest(conn) {
					return
				}

				for rest := answer.String(); rest != ""; {
					n := min(piece, len(rest))
					_, _ = io.WriteString(conn, rest[:n])
					rest = rest[n:]
					time.Sleep(time.Microsecond) // the bubble's: until all else waits
				}
			})

			s := pipeSender(t, nil, l)
			s.lifetime = forEver
			if isReused {
				if a := s.post(t, at("http", l, 1)); !a.OK() {
					t.Fatalf("the first: %+v", a)
				}
				synctest.Wait()
			}

			if a := s.post(t, at("http", l, 1)); a.Status != status || a.OK() != (status < 300) {
				rt.Errorf("%+v for %q in pieces of %d, reused: %v", a, answer.String(), piece, isReused)
			}
		})
	})
}
