package sender

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
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
	for _, f := range slices.Concat(nameFaults, connectionFaults(t), tlsFaults(t, authority)) {
		a := s.post(t, f.url)
		if a.Class != f.class || !strings.Contains(a.Detail, f.detail) || a.Status != 0 && a.Class != ClassStatus {
			t.Errorf("%s: %+v, want %s: %s", f.name, a, f.class, f.detail)
		}
		if strings.Contains(a.Detail, "->") || strings.Contains(a.Detail, "127.0.0.1:") && a.Class != ClassRefused {
			t.Errorf("%s shows addresses: %s", f.name, a.Detail)
		}
		if (a.Class != ClassURL) != (a.Took > 0) {
			t.Errorf("%s took %s", f.name, a.Took)
		}
	}
}

var nameFaults = []fault{
	{"no such name", "https://missing.test/", ClassDNS, "no such host"},
	{"a name without addresses", "https://empty.test/", ClassDNS, "no such host"},
	{"name servers in trouble", "https://broken.test/", ClassDNS, "server misbehaving"},
	{"name servers that refuse", "https://refusing.test/", ClassDNS, "server misbehaving"},
	{"a private address", "https://10.1.2.3/", ClassRefused, "10.1.2.3:443 is not a public address"},
	{"a name of a private address", "https://private.test:8443/", ClassRefused, "10.1.2.3:8443 is not a public address"},
	{"no URL", "https://a b/", ClassURL, "not a URL"},
	{"another scheme", "ftp://vendor.test/", ClassURL, `scheme "ftp" is not https`},
	{"credentials", "https://user:secret@vendor.test/", ClassURL, "credentials in a URL are not sent"},
	{"a number", "https://0x7f.1/", ClassURL, "the host is a number that is not a dotted address"},
	{"no name", "https://vendor..test/", ClassURL, "the host is not the name of a host"},
}

// hook is the URL of a receiver that does this with each connection.
func hook(t *testing.T, scheme string, serve func(net.Conn)) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	raw(t, l, serve)
	return at(scheme, l, 1)
}

// hangUp closes the connection after the first bytes.
func hangUp(conn net.Conn) { _, _ = conn.Read(make([]byte, 64<<10)) }

func connectionFaults(t *testing.T) []fault {
	saying := func(answer string) string {
		return hook(t, "http", func(conn net.Conn) {
			hangUp(conn)
			_, _ = io.WriteString(conn, answer)
			_, _ = io.Copy(io.Discard, conn)
		})
	}

	reset := hook(t, "http", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64))
		_ = conn.(*counted).Conn.(*net.TCPConn).SetLinger(0)
	})

	return []fault{
		{"nobody listens", "http://vendor.test:1/", ClassConnect, "connection refused"},
		{"a reset", reset, ClassConnect, "connection reset by peer"},
		{"hung up", hook(t, "http", hangUp), ClassConnect, "the connection was closed"},
		{"no HTTP", saying("220 smtp.vendor.test ESMTP\r\n\r\n"), ClassAnswer, `the answer cannot be read: it does not begin with a status line of HTTP, but with "220 smtp.vendor.test ESMTP"`},
		{"a page not found", saying("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), ClassStatus, "404"},
		{"a redirect", saying("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), ClassStatus, "302, redirects are not followed"},
		{"another protocol", saying("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), ClassStatus, "101"},
		{"a status of its own", saying("HTTP/1.1 999 Blocked\r\nContent-Length: 0\r\n\r\n"), ClassStatus, "999"},
	}
}

func tlsFaults(t *testing.T, a *authority) []fault {
	secured := func(config *tls.Config) string {
		l := listen(t, "127.0.0.1:0")
		start(t, l, config, false, func(http.ResponseWriter, *http.Request) {})
		return at("https", l, 1)
	}

	changed := func(change func(*tls.Config)) string {
		config := a.vendor(t)
		change(config)
		return secured(config)
	}

	garbage := hook(t, "https", func(conn net.Conn) { _, _ = io.WriteString(conn, strings.Repeat("garbage", 1000)) })

	return []fault{
		{"an expired certificate", secured(a.issue(t, time.Now().Add(-time.Minute), "vendor.test")), ClassTLS, "certificate has expired or is not yet valid"},
		{"another host's certificate", secured(a.issue(t, time.Time{}, "other.test")), ClassTLS, "certificate is valid for other.test, not vendor.test"},
		{"an unknown certificate", secured(newAuthority(t).vendor(t)), ClassTLS, "certificate signed by unknown authority"},
		{"an old version of TLS", changed(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), ClassTLS, "protocol version"},
		{"no cipher in common", changed(func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256}
		}), ClassTLS, "handshake failure"},
		// With TLS 1.3 the alert comes after the handshake, and the request that is
		// being written may meet the closed connection before it.
		{"a client's certificate is wanted", changed(func(c *tls.Config) {
			c.MaxVersion, c.ClientAuth = tls.VersionTLS12, tls.RequireAnyClientCert
		}), ClassTLS, "handshake failure"},
		{"plain HTTP where TLS is expected", strings.Replace(secured(nil), "http:", "https:", 1), ClassTLS, "first record does not look like a TLS handshake"},
		{"garbage", garbage, ClassTLS, "first record does not look like a TLS handshake"},
		{"hung up in the handshake", hook(t, "https", hangUp), ClassTLS, "the connection was closed"},
	}
}
