package dispatch

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// statusBody is about what an order's status weighs on the wire.
var statusBody = []byte(`{"eventId":"evt_01970000-0000-7000-8000-000000000001","event":"delivery.status_changed",` +
	`"occurredAt":"2026-03-01T12:00:00.000+03:00","data":{"orderId":"` + strings.Repeat("0", 36) +
	`","externalOrderId":"A-1000","status":"Delivering","note":"` + strings.Repeat("n", 500) + `"}}`)

// bareReceiver answers every request with the same bytes and allocates nothing
// for it, so that what a benchmark counts is the sender's.
func bareReceiver(b *testing.B) (url string) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerBarely(conn)
		}
	}()
	return "http://" + listener.Addr().String()
}

func answerBarely(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReaderSize(conn, 8<<10)
	for {
		for {
			line, err := reader.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := reader.Discard(len(statusBody)); err != nil {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
			return
		}
	}
}

// BenchmarkSend is one webhook over a kept connection, many at a time.
func BenchmarkSend(b *testing.B) {
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	talkative := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"received":true}`)
	})
	b.Run("bare", func(b *testing.B) {
		benchmarkSend(b, newSender(guard{local: true}, testSettings(), nil), bareReceiver(b))
	})
	for name, handler := range map[string]http.Handler{"http1": plain, "http1 with an answer": talkative} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(handler)
			defer server.Close()
			benchmarkSend(b, newSender(guard{local: true}, testSettings(), nil), server.URL)
		})
	}
	b.Run("http2", func(b *testing.B) {
		server := httptest.NewUnstartedServer(plain)
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		benchmarkSend(b, newSender(guard{local: true}, testSettings(), rootsOf(server)), server.URL)
	})
}

func benchmarkSend(b *testing.B, s *sender, url string) {
	signed := signedHeader()
	failed := errors.New("a send failed")
	b.ReportAllocs()
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a := s.send(b.Context(), url+"/hook", signed, statusBody); !a.ok() {
				b.Error(failed, a)
				return
			}
		}
	})
	b.StopTimer()
	s.transport.CloseIdleConnections()
}
