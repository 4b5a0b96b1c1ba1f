// Command clients is `make check-clients`: clients that integrators use, with their default settings, get a token, an
// order delivered, one replayed and one cancelled. Each does so over plain HTTP/1.1 and over TLS through haproxy,
// where a client that knows HTTP/2 chooses it; "no length" sends chunked bodies. A client that fails fails the
// command; one that is not installed is untried.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
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

// result is one walk's row of the table.
type result struct {
	walker, transport string
	version           string // of HTTP, as the client saw it
	outcome           string
	err               error
}

// checker is the system under test and what the walks share.
type checker struct {
	dir, walks       string
	plainURL, tlsURL string   // tlsURL is empty without haproxy
	trust            []string // settings that make clients trust the run's CA
	api              *stack.APIs
}

func main() {
	check := run
	if slices.Equal(os.Args[1:], []string{"net/http"}) {
		check = walkNetHTTP
	}
	harness.Run("check-clients", check)
}

func run(ctx context.Context) error {
	root, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "vendor-clients-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder of the system's for temporary ones
	fmt.Println("building the programs")
	o := stack.Options{DataDir: filepath.Join(dir, "data"), CourierStep: 200 * time.Millisecond}
	return harness.WithSystem(ctx, os.Stdout, false, o, func(ctx context.Context, s *harness.System) error {
		c := &checker{dir: dir, walks: filepath.Join(root, "loadtest", "clients", "walks"), plainURL: s.Demo.BaseURL, api: s.APIs}
		if _, err := exec.LookPath("haproxy"); err == nil {
			proxy, err := c.startProxy(ctx, strings.TrimPrefix(s.Demo.BaseURL, "http://"))
			if err != nil {
				return err
			}
			defer proxy.Stop()
		}
		return c.walkAll(ctx, c.walkers(ctx))
	})
}

// startProxy starts haproxy with a certificate of a CA made for this run.
func (c *checker) startProxy(ctx context.Context, gateway string) (*stack.Program, error) {
	authority, err := stack.NewAuthority("check-clients")
	if err != nil {
		return nil, err
	}
	files, err := authority.Issue(filepath.Join(c.dir, "tls"), time.Time{}, "localhost", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	certificate, unread := os.ReadFile(files.CertFile)
	key, err := os.ReadFile(files.KeyFile)
	pem := filepath.Join(c.dir, "tls", "haproxy.pem")
	if err := errors.Join(unread, err, os.WriteFile(pem, slices.Concat(certificate, key), 0o600)); err != nil {
		return nil, err
	}
	addr, health := stack.FreeAddr(), stack.FreeAddr()
	trust := filepath.Join(c.dir, "tls", "trust.p12")
	if said, err := exec.CommandContext(ctx, "keytool", "-importcert", "-noprompt", "-alias", "run", "-file", files.CAFile,
		"-keystore", trust, "-storepass", "changeit").CombinedOutput(); err != nil {
		fmt.Printf("Java will not trust the certificate: %v %s\n", err, said)
	}
	c.trust = []string{
		"CURL_CA_BUNDLE=" + files.CAFile, "SSL_CERT_FILE=" + files.CAFile, "NODE_EXTRA_CA_CERTS=" + files.CAFile,
		"REQUESTS_CA_BUNDLE=" + files.CAFile, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStorePassword=changeit -Djavax.net.ssl.trustStore=" + trust,
	}
	c.tlsURL = "https://localhost:" + addr[strings.LastIndexByte(addr, ':')+1:]
	proxy := &stack.Program{
		Name: "haproxy", Path: "haproxy", Args: []string{"-db", "-f", filepath.Join(c.walks, "haproxy.cfg")},
		Env: []string{"TLS_ADDR=" + addr, "CERTIFICATE=" + pem, "HEALTH_ADDR=" + health, "GATEWAY_ADDR=" + gateway},
		Log: filepath.Join(c.dir, "haproxy.log"), Ready: "http://" + health + "/healthz",
	}
	return proxy, proxy.Start(ctx)
}

// walkers are all clients, installed or not.
func (c *checker) walkers(ctx context.Context) []walker {
	axios := filepath.Join(c.dir, "node_modules", "axios", "index.js")
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", c.dir, axiosPinned)
	if said, err := install.CombinedOutput(); err != nil {
		fmt.Printf("axios cannot be installed: %v\n%s", err, said)
	}
	self, _ := os.Executable() // empty: untried
	requests := "python3"
	if exec.CommandContext(ctx, requests, "-c", "import requests").Run() != nil {
		requests = "/usr/bin/python3" // the system's, for which its package is, where another one comes first on PATH
	}
	var all []walker
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
		all = append(all, w)
		w.name += ", no length"
		w.env = append(slices.Clone(w.env), "STREAM=1")
		all = append(all, w)
	}
	k6, _ := filepath.Abs(filepath.Join(os.Getenv("DATA_DIR"), "bin", "k6")) // where `make loadtest` puts it, too
	return append(all, walker{name: "k6", command: []string{
		k6, "run", "--quiet", "--summary-mode=disabled", "--log-format=raw", "--console-output=/dev/stdout", "walk.js",
	}})
}

// walkAll lets every client walk over both transports and prints a table. The error names those that failed.
func (c *checker) walkAll(ctx context.Context, all []walker) error {
	var results []*result
	var g errgroup.Group
	g.SetLimit(together)
	for _, w := range all {
		for _, transport := range [][2]string{{"plain", c.plainURL}, {"TLS", c.tlsURL}} {
			r := &result{walker: w.name, transport: transport[0], outcome: "delivered"}
			results = append(results, r)
			if transport[1] == "" {
				r.outcome = "untried: haproxy is not installed"
			} else if missing := w.missing(); missing != "" {
				r.outcome = "untried: " + missing + " is not installed"
			} else {
				g.Go(func() error {
					if r.version, r.err = c.walk(ctx, w, transport[1]); r.err != nil {
						r.outcome = "FAILED"
					}
					fmt.Printf("  %s, %s: %s\n", r.walker, r.transport, r.outcome)
					return nil
				})
			}
		}
	}
	_ = g.Wait() // each result has its own error
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nclient\ttransport\tHTTP\toutcome")
	var failures []error
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.walker, r.transport, r.version, r.outcome)
		if r.err != nil {
			failures = append(failures, fmt.Errorf("%s, %s: %w", r.walker, r.transport, r.err))
		}
	}
	return errors.Join(table.Flush(), ctx.Err(), errors.Join(failures...))
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
