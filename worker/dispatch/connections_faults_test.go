package dispatch

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// fault is something that goes wrong on the way to an answer, and what the
// record of the attempt says of it.
type fault struct {
	name, url, class, detail string
}

// faultNames is what the name server knows.
func faultNames(name string, _ int) record {
	switch name {
	case "missing.test.":
		return record{code: dnsmessage.RCodeNameError}
	case "empty.test.":
		return record{}
	case "broken.test.":
		return record{code: dnsmessage.RCodeServerFailure}
	case "refusing.test.":
		return record{code: dnsmessage.RCodeRefused}
	case "private.test.":
		return addresses("10.1.2.3")
	}
	return addresses("127.0.0.1")
}

// Every class and its words, each with the real thing; what takes time is held by
// TestSend_GivesUpAtTheTimeout.
func TestSend_NamesWhatFailed(t *testing.T) {
	authority := newAuthority(t)
	s := localSender(t, authority, newNameServer(t, faultNames))
	faults := append(append(nameFaults(), networkFaults(t)...), append(tlsFaults(t, authority), answerFaults(t)...)...)
	for _, f := range faults {
		a := s.post(t, f.url)
		if a.class != f.class || !strings.Contains(a.detail, f.detail) || a.status != 0 && a.class != classStatus {
			t.Errorf("%s: %+v, want %s: %s", f.name, a, f.class, f.detail)
		}
		if strings.Contains(a.detail, "->") || strings.Contains(a.detail, "127.0.0.1:") && a.class != classRefused {
			t.Errorf("%s tells addresses: %s", f.name, a.detail)
		}
		if (a.class != classURL) != (a.took > 0) {
			t.Errorf("%s took %s", f.name, a.took)
		}
	}
}

func nameFaults() []fault {
	return []fault{
		{"no such name", "https://missing.test/", classDNS, "no such host"},
		{"a name without addresses", "https://empty.test/", classDNS, "no such host"},
		{"name servers in trouble", "https://broken.test/", classDNS, "server misbehaving"},
		{"name servers that refuse", "https://refusing.test/", classDNS, "server misbehaving"},
		{"a private address", "https://10.1.2.3/", classRefused, "10.1.2.3:443 is not a public address"},
		{"a name of a private address", "https://private.test:8443/", classRefused, "10.1.2.3:8443 is not a public address"},
		{"no URL", "https://a b/", classURL, "not a URL"},
		{"another scheme", "ftp://vendor.test/", classURL, `scheme "ftp" is not https`},
		{"credentials", "https://user:secret@vendor.test/", classURL, "credentials in a URL are not sent"},
		{"a number", "https://0x7f.1/", classURL, "the host is a number that is not a dotted address"},
		{"no name", "https://vendor..test/", classURL, "the host is not the name of a host"},
	}
}

func networkFaults(t *testing.T) []fault {
	gone := listen(t, "127.0.0.1:0")
	gone.Close()
	reset := listen(t, "127.0.0.1:0")
	raw(t, reset, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64))
		_ = conn.(*counted).Conn.(*net.TCPConn).SetLinger(0)
	})
	hangUp := listen(t, "127.0.0.1:0")
	raw(t, hangUp, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 64<<10)) })
	return []fault{
		{"nobody listens", hookAt("http", gone.port()), classConnect, "connection refused"},
		{"a reset", hookAt("http", reset.port()), classConnect, "connection reset by peer"},
		{"hung up", hookAt("http", hangUp.port()), classConnect, "the connection was closed"},
	}
}

func hookAt(scheme string, port int) string {
	return fmt.Sprintf("%s://vendor.test:%d/hook", scheme, port)
}

func tlsFaults(t *testing.T, a *authority) []fault {
	now := time.Now()
	secured := func(config *tls.Config) string {
		l := listen(t, "127.0.0.1:0")
		start(t, l, config, false, func(http.ResponseWriter, *http.Request) {})
		return hookAt("https", l.port())
	}
	plain := listen(t, "127.0.0.1:0")
	start(t, plain, nil, false, func(http.ResponseWriter, *http.Request) {})
	garbage, hangUp := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	raw(t, garbage, func(conn net.Conn) { _, _ = io.WriteString(conn, strings.Repeat("garbage", 1000)) })
	raw(t, hangUp, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 64<<10)) })
	old := a.issue(t, now.Add(time.Hour), "vendor.test")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	demanding := a.issue(t, now.Add(time.Hour), "vendor.test")
	// With TLS 1.3 the alert comes after the handshake, and the request that is
	// being written may meet the closed connection before it.
	demanding.MaxVersion, demanding.ClientAuth = tls.VersionTLS12, tls.RequireAnyClientCert
	ciphers := a.issue(t, now.Add(time.Hour), "vendor.test")
	ciphers.MaxVersion, ciphers.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}
	alone := &authority{key: a.key} // its certificates are signed with no one's
	return []fault{
		{"an expired certificate", secured(a.issue(t, now.Add(-time.Hour), "vendor.test")), classTLS, "certificate has expired or is not yet valid"},
		{"another host's certificate", secured(a.issue(t, now.Add(time.Hour), "other.test")), classTLS, "certificate is valid for other.test, not vendor.test"},
		{"a stranger's certificate", secured(newAuthority(t).issue(t, now.Add(time.Hour), "vendor.test")), classTLS, "certificate signed by unknown authority"},
		{"a self-signed certificate", secured(alone.issue(t, now.Add(time.Hour), "vendor.test")), classTLS, "certificate signed by unknown authority"},
		{"an old version of TLS", secured(old), classTLS, "protocol version"},
		{"no cipher in common", secured(ciphers), classTLS, "handshake failure"},
		{"a client's certificate is wanted", secured(demanding), classTLS, "handshake failure"},
		{"plain HTTP where TLS is expected", hookAt("https", plain.port()), classTLS, "first record does not look like a TLS handshake"},
		{"garbage", hookAt("https", garbage.port()), classTLS, "first record does not look like a TLS handshake"},
		{"hung up in the handshake", hookAt("https", hangUp.port()), classTLS, "the connection was closed"},
	}
}

// saying is a receiver that answers every request with these bytes.
func saying(t *testing.T, answer string) string {
	l := listen(t, "127.0.0.1:0")
	raw(t, l, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(conn, answer)
		_, _ = io.Copy(io.Discard, conn)
	})
	return hookAt("http", l.port())
}

func answerFaults(t *testing.T) []fault {
	return []fault{
		{"no HTTP", saying(t, "220 smtp.vendor.test ESMTP\r\n\r\n"), classConnect, "malformed HTTP"},
		{"a page not found", saying(t, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), classStatus, "404"},
		{"a redirect", saying(t, "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), classStatus, "302, redirects are not followed"},
		{"another protocol", saying(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), classStatus, "101"},
		{"a status of its own", saying(t, "HTTP/1.1 999 Blocked\r\nContent-Length: 0\r\n\r\n"), classStatus, "999"},
	}
}
