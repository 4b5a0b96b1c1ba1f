package service

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"vendorapi/internal/testenv/testserver"
)

func proxied(t *testing.T, version byte, command proxyproto.ProtocolVersionAndCommand) string {
	t.Helper()
	header := proxyproto.HeaderProxyFromAddrs(version, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 40000}, &net.TCPAddr{IP: net.ParseIP("198.51.100.1"), Port: 443})
	header.Command = command
	text, err := header.Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestProxyListener_TakesTheAddressOfTrustedPeersOnly(t *testing.T) {
	t.Parallel()

	v1, v2 := proxied(t, 1, proxyproto.PROXY), proxied(t, 2, proxyproto.PROXY)
	for name, c := range map[string]struct {
		trusted, sent string
		from, read    string // of the connection that is served; no from: it is closed
	}{
		"version 1":               {"127.0.0.1", v1 + "GET", "192.0.2.1", "GET"},
		"version 2":               {"127.0.0.0/8", v2 + "GET", "192.0.2.1", "GET"},
		"a balancer's own check":  {"127.0.0.1", proxied(t, 2, proxyproto.LOCAL) + "GET", "127.0.0.1", "GET"},
		"unknown to the balancer": {"127.0.0.1", "PROXY UNKNOWN\r\nGET", "127.0.0.1", "GET"},
		"no header":               {"127.0.0.1", "POST", "127.0.0.1", "POST"},
		"nearly one":              {"127.0.0.1", "PRO", "127.0.0.1", "PRO"},
		"who is not trusted":      {"192.0.2.9,::1", v1, "127.0.0.1", v1},
		"nobody is trusted":       {"", v2, "127.0.0.1", v2},
		"no address":              {"127.0.0.1", "PROXY TCP4 nobody 198.51.100.1 1 2\r\n", "", ""},
		"cut off":                 {"127.0.0.1", v1[:20], "", ""},
		"a line without end":      {"127.0.0.1", "PROXY TCP4 " + strings.Repeat("1", 200), "", ""},
		"an unknown command":      {"127.0.0.1", v2[:12] + "\x3f" + v2[13:], "", ""},
		"cut off in version 2":    {"127.0.0.1", v2[:20], "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			trusted, err := ParseNetworks([]string{c.trusted})
			if err != nil {
				t.Fatal(err)
			}
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}

			var malformed atomic.Int32
			l := newProxyListener(plain, trusted, func() { malformed.Add(1) }, testserver.Timeout)
			defer l.Close()
			client, err := net.Dial("tcp", plain.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()

			_, _ = io.WriteString(client, c.sent)
			_ = client.(*net.TCPConn).CloseWrite()
			if c.from == "" {
				if _, err := client.Read(make([]byte, 1)); err == nil || malformed.Load() != 1 {
					t.Errorf("the peer reads %v, %d malformed", err, malformed.Load())
				}
				return
			}

			served, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer served.Close()

			read, err := io.ReadAll(served)
			if from := peer(served).String(); err != nil || from != c.from || string(read) != c.read || malformed.Load() != 0 {
				t.Errorf("from %s %q, %v, %d malformed", from, read, err, malformed.Load())
			}
		})
	}
}

// A header that does not come holds up nobody else, and the listener ends all the same.
func TestProxyListener_WaitsForNoHeader(t *testing.T) {
	t.Parallel()

	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	trusted, _ := ParseNetworks([]string{"127.0.0.1"})
	l := newProxyListener(plain, trusted, func() {}, time.Hour)
	silent, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	other, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	_, _ = io.WriteString(other, proxied(t, 2, proxyproto.PROXY))
	served, err := l.Accept()
	if err != nil || peer(served).String() != "192.0.2.1" {
		t.Fatal(err)
	}

	served.Close()
	l.Close()
	if _, err := l.Accept(); err == nil {
		t.Error("it accepts after its end")
	}
}

func TestParseNetworks_RefusesNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"balancer", "10.0.0.0/33", "10.0.0.1:80"} {
		if _, err := ParseNetworks([]string{"10.0.0.1", text}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
