package sender

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Old receivers of TLS 1.2 are reached, whatever they have of exchanging a key and of ciphers
// that are not broken.
//
//rule:authentication/6
func TestTLS_ReachesOldReceivers(t *testing.T) {
	config, roots := rsaReceiver(t)
	config.MaxVersion = tls.VersionTLS12
	for _, cipher := range []uint16{
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
		tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA,
	} {
		t.Run(tls.CipherSuiteName(cipher), func(t *testing.T) {
			old := config.Clone()
			old.CipherSuites = []uint16{cipher}
			l := listen(t, "127.0.0.1:0")
			start(t, l, old, false, func(http.ResponseWriter, *http.Request) {})
			s := plainSender(t)
			s.tls.RootCAs = roots
			if a := s.post(t, at("https", l, 1)); !a.OK() {
				t.Errorf("%+v", a)
			}
		})
	}
}

// What a receiver can choose from has forward secrecy, and nothing that is broken.
func TestTLS_PrefersForwardSecrecy(t *testing.T) {
	config, roots := rsaReceiver(t)
	config.MaxVersion = tls.VersionTLS12
	for _, suites := range [][]*tls.CipherSuite{tls.CipherSuites(), tls.InsecureCipherSuites()} {
		for _, suite := range suites {
			config.CipherSuites = append(config.CipherSuites, suite.ID)
		}
	}

	var chosen uint16
	l := listen(t, "127.0.0.1:0")
	start(t, l, config, false, func(_ http.ResponseWriter, r *http.Request) { chosen = r.TLS.CipherSuite })
	s := plainSender(t)
	s.tls.RootCAs = roots

	if a := s.post(t, at("https", l, 1)); !a.OK() {
		t.Fatalf("%+v", a)
	}
	if name := tls.CipherSuiteName(chosen); !strings.HasPrefix(name, "TLS_ECDHE_") {
		t.Errorf("the receiver chose %s", name)
	}

	for _, broken := range tls.InsecureCipherSuites() {
		isRSA := strings.HasPrefix(broken.Name, "TLS_RSA_WITH_AES_") && !strings.HasSuffix(broken.Name, "CBC_SHA256")
		for _, offered := range receiversCiphers() {
			if offered == broken.ID && !isRSA {
				t.Errorf("%s is offered", broken.Name)
			}
		}
	}
}

// A ClientHello fits one segment, with the longest name and when a session is resumed, too.
func TestTLS_AClientHelloIsOneSegment(t *testing.T) {
	label := strings.Repeat("a", 60)
	host := strings.Join([]string{label, label, label, label[:50], "test"}, ".")
	for name, ticket := range map[string]int{"a short ticket": 0, "a long ticket": 2000} {
		t.Run(name, func(t *testing.T) {
			authority := newAuthority(t)
			config := authority.issue(t, time.Time{}, host)
			if ticket > 0 {
				withLongTickets(config, ticket)
			}

			var sizes helloSizes
			client := receiversTLS()
			client.RootCAs, client.ServerName = authority.roots(), host

			resumed := false
			for range 3 {
				resumed = handshake(t, client, config, &sizes)
			}

			for _, size := range sizes.all() {
				if size > maxHello {
					t.Errorf("a ClientHello has %d bytes", size)
				}
			}

			if wantResumed := ticket == 0; resumed != wantResumed {
				t.Errorf("resumed: %v", resumed)
			}
		})
	}
}

// withLongTickets makes a server's tickets longer by so many bytes.
func withLongTickets(config *tls.Config, bytes int) {
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		session.Extra = append(session.Extra, make([]byte, bytes))
		return config.EncryptTicket(state, session)
	}
}

// rsaReceiver is vendor.test with an RSA key, and the roots that know it.
func rsaReceiver(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"vendor.test"}, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}

	roots := x509.NewCertPool()
	roots.AddCert(certificate)

	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}, roots
}

// helloSizes notes how long the first record of each connection is.
type helloSizes struct {
	mu    sync.Mutex
	sizes []int
}

func (h *helloSizes) all() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sizes
}

type helloSizer struct {
	net.Conn
	once sync.Once
	into *helloSizes
}

func (s *helloSizer) Write(p []byte) (int, error) {
	s.once.Do(func() {
		s.into.mu.Lock()
		defer s.into.mu.Unlock()
		s.into.sizes = append(s.into.sizes, 5+int(binary.BigEndian.Uint16(p[3:5])))
	})
	return s.Conn.Write(p)
}

// handshake makes one, and reads one byte, so that the session's ticket has arrived.
func handshake(t *testing.T, client, server *tls.Config, sizes *helloSizes) (resumed bool) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}

	var served sync.WaitGroup
	served.Go(func() {
		conn := tls.Server(far, server)
		_, _ = conn.Write([]byte("x"))
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	})

	conn := tls.Client(&helloSizer{Conn: near, into: sizes}, client)
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	resumed = conn.ConnectionState().DidResume
	_ = near.Close()
	served.Wait()

	return resumed
}
