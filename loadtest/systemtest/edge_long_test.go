//go:build long

package systemtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/testserver"
)

// edge is the shipped balancer in front of a whole system. Its frontends by their ports.
type edge struct {
	*stackEnv
	frontend map[string]string
	trusted  *x509.CertPool
}

// startEdge starts a whole system with its balancer.
func startEdge(t *testing.T) *edge {
	t.Helper()
	fleets, pages := stack.FreeAddr(), stack.FreeAddr()
	s := startStack(t, stack.Options{Reporting: true, CourierStep: 50 * time.Millisecond, Env: []string{
		"FLEET_API_ADDR=" + fleets, "PROXY_PROTOCOL_FROM=127.0.0.1", "MAX_CONNECTIONS_PER_IP=16", "PANEL_PROXY_PROTOCOL_FROM=127.0.0.1", "TRACKING_ADDR=" + pages}})
	ready := hostOf(strings.TrimSuffix(s.Reporting.Ready, "/readyz"))
	return startBalancer(t, s, map[string]string{
		"gateway-1:8086": fleets, "reporting:8090": hostOf(s.Demo.PanelURL), "reporting:8084": pages, " port 8083 ": " port " + port(ready) + " ",
	})
}

func hostOf(origin string) string { return origin[strings.LastIndex(origin, "/")+1:] }

// startBalancer starts the haproxy of this machine with configs/haproxy/haproxy.cfg, of which
// only addresses and the path of files are changed, and a certificate of a CA of this run.
// addresses are those of the servers besides the system's gateway.
func startBalancer(t *testing.T, s *stackEnv, addresses map[string]string) *edge {
	t.Helper()
	e := &edge{stackEnv: s, frontend: map[string]string{}, trusted: x509.NewCertPool()}
	dir := t.TempDir()
	authority, err := stack.NewAuthority("edge")
	must(t, err)
	files, err := authority.Issue(filepath.Join(dir, "tls"), time.Time{}, "localhost", "127.0.0.1")
	must(t, err)
	read := func(name string) []byte {
		text, err := os.ReadFile(name)
		must(t, err)
		return text
	}

	certificate := filepath.Join(dir, "certificate.pem")
	must(t, os.WriteFile(certificate, slices.Concat(read(files.CertFile), read(files.KeyFile)), 0o600))
	e.trusted.AppendCertsFromPEM(read(files.CAFile))

	text := readFile(t, "configs/haproxy/haproxy.cfg")
	change := func(old, replacement string) {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("haproxy.cfg has no %q", old)
		}
		text = strings.ReplaceAll(text, old, replacement)
	}

	for _, port := range []string{"8080", "8081", "8086"} {
		change("    server gateway-2 gateway-2:"+port, "#")
	}

	change("gateway-1:8080", hostOf(s.Demo.BaseURL))
	change("gateway-1:8081", hostOf(s.Demo.OpsURL))
	change(" port 8081 ", " port "+port(hostOf(s.Demo.OpsURL))+" ")
	for name, address := range addresses {
		change(name, address)
	}

	change("/usr/local/etc/haproxy/errors", moduleFile(t, "configs/haproxy/errors"))
	for _, port := range []string{"8080", "8443", "8086", "8446", "8081", "8441", "8090", "8490", "8091", "8491"} {
		e.frontend[port] = stack.FreeAddr()
		change("bind :"+port, "bind "+e.frontend[port])
	}

	change("maxconn 16384", "maxconn 4096") // of the files that a test may open
	health := stack.FreeAddr()
	change("127.0.0.1:8404", health)
	change("bind :8405", "bind "+stack.FreeAddr())
	config := filepath.Join(dir, "haproxy.cfg")
	must(t, os.WriteFile(config, []byte(text), 0o600))
	balancer := &stack.Program{Name: "haproxy", Path: "haproxy", Args: []string{"-db", "-f", config}, Env: []string{"CERTIFICATE=" + certificate},
		Log: filepath.Join(dir, "haproxy.log"), Ready: "http://" + health + "/healthz"}
	must(t, balancer.Start(t.Context()))
	t.Cleanup(balancer.Stop)

	served := []string{"8080", "8086", "8081"}
	if s.Reporting != nil {
		served = append(served, "8091")
	}

	for _, port := range served { // its first checks
		testserver.Await(t, "the balancer serves "+port, func() bool {
			_, status, err := e.ask(t, "127.0.0.1", http.MethodGet, "http://"+e.frontend[port]+"/", "")
			return err == nil && status != http.StatusServiceUnavailable
		})
	}

	return e
}

// from is a client with an address of its own, on loopback.
func (e *edge) from(address string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		},
		TLSClientConfig:   &tls.Config{RootCAs: e.trusted},
		ForceAttemptHTTP2: true, DisableKeepAlives: strings.HasPrefix(address, "127.0.0.1"),
	}}
}

func (e *edge) ask(t *testing.T, address, method, target, body string) (text string, status int, err error) {
	t.Helper()
	c := e.from(address)
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()

	all, err := io.ReadAll(resp.Body)

	return string(all), resp.StatusCode, err
}

func TestEdge(t *testing.T) {
	t.Parallel()

	e := startEdge(t)

	t.Run("a vendor walks over HTTP/2 and TLS", func(t *testing.T) {
		v := e.Vendor(t, stack.Unlimited)
		c := e.from("127.0.0.2")
		protocols := map[string]int{}
		c.Transport = counting{c.Transport, protocols}
		api := &client.Client{Base: "https://localhost:" + port(e.frontend["8443"]) + "/api/vendor/v1", HTTP: c}
		vendor, err := api.Login(t.Context(), "/token", v.ClientID, v.ClientSecret)
		must(t, err)
		var order struct{ OrderID, Status string }
		must(t, vendor.Call(t.Context(), http.MethodPost, "/orders", v.Order(nil), &order))
		must(t, vendor.Call(t.Context(), http.MethodGet, "/orders/"+order.OrderID, nil, &order))
		if len(protocols) != 1 || protocols["HTTP/2.0"] != 3 {
			t.Errorf("spoken: %v", protocols)
		}

		// A client without HTTP/2, and one whose TLS is too old.
		old := e.from("127.0.0.2")
		old.Transport.(*http.Transport).ForceAttemptHTTP2 = false
		old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
		if resp, err := old.Get(api.Base + "/x"); err == nil {
			resp.Body.Close()
			t.Error("TLS 1.1 is spoken")
		}
	})

	t.Run("fleets reach their API and nothing else", func(t *testing.T) {
		for path, want := range map[string]int{"/api/fleet/v1/openapi.yaml": 200, "/api/fleet/v1/jobs": 401,
			"/api/admin/v1/accounts": 404, "/api/admin/v1/openapi.yaml": 404, "/metrics": 404, "/readyz": 404, "/api/vendor/v1/orders/x": 404} {
			for _, origin := range []string{"http://" + e.frontend["8086"], "https://localhost:" + port(e.frontend["8446"])} {
				if text, status, err := e.ask(t, "127.0.0.3", http.MethodGet, origin+path, ""); err != nil || status != want {
					t.Errorf("%s%s: %d %v %s", origin, path, status, err, text)
				}
			}
		}

		if _, status, err := e.ask(t, "127.0.0.3", http.MethodGet, "http://"+e.frontend["8081"]+"/api/admin/v1/accounts", ""); err != nil || status != 401 {
			t.Errorf("operators: %d %v", status, err)
		}
		if _, status, err := e.ask(t, "127.0.0.3", http.MethodGet, "http://"+e.frontend["8091"]+"/login", ""); err != nil || status != 404 {
			t.Errorf("customers reach the panel: %d %v", status, err)
		}
	})

	t.Run("the gateway counts wrong logins by the client's address", func(t *testing.T) {
		login := func(address string, n int) int {
			body := fmt.Sprintf(`{"clientId":"vnd_00000000000000000000%010d","clientSecret":"wrong"}`, n)
			_, status, err := e.ask(t, address, http.MethodPost, "http://"+e.frontend["8080"]+"/api/vendor/v1/token", body)
			must(t, err)
			return status
		}

		testserver.Await(t, "one address is throttled", func() bool { return login("127.0.0.4", int(time.Now().UnixNano()%1e9)) == 429 })
		if status := login("127.0.0.5", 1); status != 401 {
			t.Errorf("another address: %d", status)
		}
	})

	t.Run("the panel sees the client's address", func(t *testing.T) {
		c := e.from("127.0.0.6")
		c.Jar, _ = cookiejar.New(nil)
		login := "http://" + e.frontend["8090"] + "/login"
		resp, err := c.PostForm(login, url.Values{"user": {"nobody"}, "password": {"wrong"}})
		must(t, err)
		resp.Body.Close()
		testserver.Await(t, "the refusal is logged", func() bool {
			text, err := os.ReadFile(e.Reporting.Log)
			return err == nil && strings.Contains(string(text), "address=127.0.0.6/32")
		})
	})

	t.Run("a flood from one address closes the API to nobody else", func(t *testing.T) {
		var flood []net.Conn
		defer func() {
			for _, c := range flood {
				c.Close()
			}
		}()

		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.7")}}
		for range 700 {
			if c, err := dialer.DialContext(t.Context(), "tcp", e.frontend["8080"]); err == nil { // else it was closed at once
				flood = append(flood, c)
			}
		}

		if len(flood) < 512 {
			t.Fatalf("only %d connections were opened", len(flood))
		}

		// The kernel opens a connection before the balancer counts it. A thread of the balancer
		// accepts it and hands it to some thread, which counts it when it comes to that: the order
		// holds within a thread only. So a request may be counted, and answered, while another
		// thread still has some of the flood before it. It is refused once they are counted, and
		// until the balancer closes those that send nothing (inspect-delay, 10 s). 700 and these
		// tries together are fewer than conn_rate allows, so it is conn_cur that refuses.
		for tries := 1; ; tries++ {
			_, status, err := e.ask(t, "127.0.0.7", http.MethodGet, "http://"+e.frontend["8080"]+"/docs", "")
			if err != nil {
				break
			}

			if tries == 100 {
				t.Errorf("the flood's address is answered %d", status)
				break
			}

			time.Sleep(20 * time.Millisecond)
		}

		if _, status, err := e.ask(t, "127.0.0.8", http.MethodGet, "http://"+e.frontend["8080"]+"/docs", ""); err != nil || status != 200 {
			t.Errorf("another address: %d %v", status, err)
		}
	})
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// counting counts answers by their protocol.
type counting struct {
	http.RoundTripper
	protocols map[string]int
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.protocols[resp.Proto]++
	}
	return resp, err
}
