//go:build clients

// Package clients tests the service with clients that integrators use.
package clients

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
)

const (
	timeout     = 2 * time.Minute // of one walk
	together    = 4               // walks at once
	axiosPinned = "axios@1.13.2"
)

// walker is a client. Its command runs in the folder of the walks.
type walker struct {
	name    string
	command []string
	env     []string
	needs   string // a program or file besides command[0]; empty: none
}

// checker is the system under test and what the walks share.
type checker struct {
	dir, walks string
	trust      []string // settings that make clients trust the run's CA
	api        *stack.APIs
}

func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{"net/http"}) {
		harness.Run("net/http", walkNetHTTP)
		return
	}
	testserver.Parallel(together)
	testserver.Main(m)
}

// Clients with their default settings get a token, an order delivered, one replayed and one cancelled. Each does so
// over plain HTTP/1.1 and over TLS through haproxy, where a client that knows HTTP/2 chooses it; "no length" sends
// chunked bodies. A client that is not installed fails.
func TestClients_GetFromATokenToADeliveredOrder(t *testing.T) {
	t.Parallel()

	walks, err := filepath.Abs("walks")
	must(t, err)
	o := stack.Options{DataDir: filepath.Join(t.TempDir(), "data"), BinDir: testserver.Programs(t), CourierStep: 200 * time.Millisecond}
	err = harness.WithSystem(t.Context(), t.Output(), false, o, func(ctx context.Context, s *harness.System) error {
		c := &checker{dir: t.TempDir(), walks: walks, api: s.APIs}
		tlsURL := ""
		if _, err := exec.LookPath("haproxy"); err == nil {
			var proxy *stack.Program
			tlsURL, proxy = c.startProxy(t, strings.TrimPrefix(s.Demo.BaseURL, "http://"))
			defer proxy.Stop()
		}

		all := c.walkers(t)
		t.Run("walks", func(t *testing.T) { // ends after all of them
			for _, w := range all {
				for transport, url := range map[string]string{"plain": s.Demo.BaseURL, "TLS": tlsURL} {
					t.Run(w.name+" "+transport, func(t *testing.T) {
						t.Parallel()
						if missing := w.missing(); missing != "" || url == "" {
							t.Fatal("not installed: " + cmp.Or(missing, "haproxy"))
						}
						version, err := c.walk(ctx, w, url)
						must(t, err)
						t.Logf("delivered over %s", version)
					})
				}
			}
		})

		return nil
	})

	must(t, err)
}

// startProxy starts haproxy at url with a certificate of a CA made for this run.
func (c *checker) startProxy(t *testing.T, gateway string) (url string, proxy *stack.Program) {
	authority, err := stack.NewAuthority("check-clients")
	must(t, err)
	files, err := authority.Issue(filepath.Join(c.dir, "tls"), time.Time{}, "localhost", "127.0.0.1")
	must(t, err)
	certificate, err := os.ReadFile(files.CertFile)
	must(t, err)
	key, err := os.ReadFile(files.KeyFile)
	must(t, err)
	pem, trust := filepath.Join(c.dir, "tls", "haproxy.pem"), filepath.Join(c.dir, "tls", "trust.p12")
	must(t, os.WriteFile(pem, slices.Concat(certificate, key), 0o600))
	if said, err := exec.CommandContext(t.Context(), "keytool", "-importcert", "-noprompt", "-alias", "run", "-file", files.CAFile,
		"-keystore", trust, "-storepass", "changeit").CombinedOutput(); err != nil {
		t.Logf("Java will not trust the certificate: %v %s", err, said)
	}

	c.trust = []string{
		"CURL_CA_BUNDLE=" + files.CAFile, "SSL_CERT_FILE=" + files.CAFile, "NODE_EXTRA_CA_CERTS=" + files.CAFile,
		"REQUESTS_CA_BUNDLE=" + files.CAFile, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStorePassword=changeit -Djavax.net.ssl.trustStore=" + trust,
	}

	addr, health := stack.FreeAddr(), stack.FreeAddr()
	proxy = &stack.Program{
		Name: "haproxy", Path: "haproxy", Args: []string{"-db", "-f", filepath.Join(c.walks, "haproxy.cfg")},
		Env: []string{"TLS_ADDR=" + addr, "CERTIFICATE=" + pem, "HEALTH_ADDR=" + health, "GATEWAY_ADDR=" + gateway},
		Log: filepath.Join(c.dir, "haproxy.log"), Ready: "http://" + health + "/healthz",
	}

	must(t, proxy.Start(t.Context()))

	return "https://localhost:" + addr[strings.LastIndexByte(addr, ':')+1:], proxy
}

// walkers are all clients, installed or not.
func (c *checker) walkers(t *testing.T) []walker {
	axios := filepath.Join(c.dir, "node_modules", "axios", "index.js")
	install := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", c.dir, axiosPinned)
	if said, err := install.CombinedOutput(); err != nil {
		t.Logf("axios cannot be installed: %v\n%s", err, said)
	}

	self, err := os.Executable()
	must(t, err)
	requests := "python3"
	if exec.CommandContext(t.Context(), requests, "-c", "import requests").Run() != nil {
		requests = "/usr/bin/python3" // the system's, for which its package is, where another one comes first on PATH
	}

	data, err := stack.DataDir()
	must(t, err)
	k6 := filepath.Join(data, "bin", "k6") // where `make loadtest` puts it, too
	all := []walker{{name: "k6", command: []string{
		k6, "run", "--quiet", "--summary-mode=disabled", "--log-format=raw", "--console-output=/dev/stdout", "walk.js",
	}}}
	for _, w := range []walker{
		{name: "curl", command: []string{"sh", "curl.sh"}, needs: "curl"},
		{name: "Go net/http", command: []string{self, "net/http"}},
		{name: "Node fetch", command: []string{"node", "node.mjs"}},
		{name: "Node axios", command: []string{"node", "node.mjs"}, env: []string{"AXIOS=" + axios}, needs: axios},
		{name: "Python urllib", command: []string{"python3", "walk.py"}},
		{name: "Python requests", command: []string{requests, "walk.py"}, env: []string{"REQUESTS=1"}},
		{name: "PHP curl", command: []string{"php", "curl.php"}},
		{name: "Java HttpClient", command: []string{"java", "Walk.java"}},
	} {
		streaming := w
		streaming.name += ", no length"
		streaming.env = append(slices.Clone(w.env), "STREAM=1")
		all = append(all, w, streaming)
	}

	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// missing is what is not there of what the client needs; empty: nothing.
func (w *walker) missing() string {
	for _, name := range []string{w.command[0], w.needs} {
		_, noFile := os.Stat(name)
		if _, noProgram := exec.LookPath(name); name != "" && noFile != nil && noProgram != nil {
			return filepath.Base(name)
		}
	}
	return ""
}

// walk lets the client walk as an account of its own, and checks that its orders ended as they should.
func (c *checker) walk(ctx context.Context, w walker, url string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	vendor, err := c.api.OpenAccount(ctx, w.name, nil)
	if err != nil {
		return "", err
	}

	cmd := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	cmd.Dir = c.walks
	cmd.Env = slices.Concat(os.Environ(), c.trust, w.env,
		[]string{"BASE_URL=" + url, "CLIENT_ID=" + vendor.ClientID, "CLIENT_SECRET=" + vendor.ClientSecret})
	var complaints strings.Builder
	cmd.Stderr = &complaints
	said, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, said, complaints.String())
	}

	words := strings.Fields(string(said))
	if len(words) != 3 {
		return "", fmt.Errorf("printed %q, not two order ids and a version of HTTP", said)
	}

	for i, want := range []string{"Delivered", "Cancelled"} {
		var order struct{ Status string }
		path := "/orders/" + words[i]
		answer, err := vendor.Do(ctx, http.MethodGet, path, nil)
		if err == nil && answer.Status == http.StatusTooManyRequests {
			time.Sleep(answer.RetryAfter()) // the client has read it within the last 10 s (spec, "Limits")
			answer, err = vendor.Do(ctx, http.MethodGet, path, nil)
		}

		if err == nil {
			err = answer.Into(&order)
		}

		if err != nil || order.Status != want {
			return "", errors.Join(fmt.Errorf("order %s is %q, not %s", words[i], order.Status, want), err)
		}
	}

	return words[2], nil
}
