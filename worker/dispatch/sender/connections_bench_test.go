package sender

import (
	"io"
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
