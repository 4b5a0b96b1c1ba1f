package sender

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// BenchmarkSend is one webhook over a kept connection, many at a time.
func BenchmarkSend(b *testing.B) {
	authority := newAuthority(b)
	for name, h2 := range map[string]bool{"http1": false, "http2": true} {
		b.Run(name, func(b *testing.B) {
			server := start(b, listen(b, "127.0.0.1:0"), authority.issue(b, time.Now().Add(time.Hour), "127.0.0.1"), h2,
				func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.WriteHeader(http.StatusNoContent)
				})

			s := New(localOptions())
			s.tls.RootCAs = authority.roots()
			signed := signedHeader()
			b.ReportAllocs()
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a := s.Send(b.Context(), Request{URL: server.URL + "/hook", Header: signed, Body: statusBody}); !a.OK() {
						b.Errorf("%+v", a)
						return
					}
				}
			})

			b.StopTimer()
			s.CloseIdleConnections()
		})
	}
}

// BenchmarkSendOne is one webhook after another over a kept connection, to a receiver that costs next to
// nothing: it reads what comes and answers with bytes that are ready.
func BenchmarkSendOne(b *testing.B) {
	authority := newAuthority(b)
	for _, scheme := range []string{"http", "https"} {
		b.Run(scheme, func(b *testing.B) {
			l := listen(b, "127.0.0.1:0")
			var config *tls.Config
			if scheme == "https" {
				config = authority.issue(b, time.Now().Add(time.Hour), "127.0.0.1")
			}

			raw(b, l, func(conn net.Conn) {
				if config != nil {
					conn = tls.Server(conn, config)
				}

				buffer := make([]byte, 16<<10)
				for received := 0; ; received = 0 {
					for !bytes.HasSuffix(buffer[:received], statusBody) {
						n, err := conn.Read(buffer[received:])
						if err != nil {
							return
						}
						received += n
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nDate: Mon, 30 Nov 2026 22:00:00 GMT\r\nServer: x\r\n\r\n")
				}
			})

			s := New(localOptions())
			s.tls.RootCAs = authority.roots()
			signed := signedHeader()
			url := scheme + "://" + l.Addr().String() + "/hook"
			b.ReportAllocs()
			for b.Loop() {
				if a := s.Send(b.Context(), Request{URL: url, Header: signed, Body: statusBody}); !a.OK() {
					b.Fatalf("%+v", a)
				}
			}

			s.CloseIdleConnections()
		})
	}
}
