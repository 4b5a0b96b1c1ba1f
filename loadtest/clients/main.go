// Command clients is `make check-clients`: clients that integrators use, with
// their default settings, walk from a token to a delivered order, a replayed and
// a cancelled one. Each does so over plain HTTP/1.1 against the gateway and over
// TLS through haproxy, where a client that knows HTTP/2 chooses it. Walks named
// "no length" send bodies whose length the client does not know (chunked).
//
// A client that fails fails the command. One that is not installed is reported
// as untried.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
)

const (
	courierStep = 200 * time.Millisecond
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

// result is the outcome of one walk; err is nil when every step was as expected.
type result struct {
	walker    string
	transport string
	version   string // of HTTP, as the client saw it
	err       error
	untried   string // why it was not tried
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "check-clients:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	root, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "vendor-clients-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder of the system's for temporary ones
	fmt.Fprintln(out, "building the programs")
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "nethttp"), "./loadtest/clients/nethttp")
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build nethttp: %w\n%s", err, said)
	}
	s, err := stack.Start(ctx, stack.Options{DataDir: filepath.Join(dir, "data"), CourierStep: courierStep})
	if err != nil {
		return err
	}
	defer s.Stop()
	c := &check{
		dir: dir, walks: filepath.Join(root, "loadtest", "clients", "walks"), out: out, plainURL: s.Demo.BaseURL,
		admin: client.New(s.Demo.OpsURL+"/api/admin/v1", together),
	}
	c.admin.Bearer = s.Demo.AdminKey
	var missing string
	if _, err := exec.LookPath("haproxy"); err != nil {
		missing = "haproxy is not installed"
	} else {
		proxy, err := c.startProxy(ctx, strings.TrimPrefix(s.Demo.BaseURL, "http://"))
		if err != nil {
			return err
		}
		defer proxy.Stop()
	}
	return c.walkAll(ctx, c.walkers(ctx), missing)
}

type check struct {
	dir, walks       string
	plainURL, tlsURL string
	trust            []string // settings that make clients trust the run's CA
	admin            *client.Client
	out              io.Writer
}

// proxyConfig ends TLS and speaks HTTP/1.1 to the gateway, as the balancer of
// docker-compose.yml does with a certificate in it.
const proxyConfig = `global
    maxconn 1000
defaults
    mode http
    timeout connect 2s
    timeout client 75s
    timeout server 75s
frontend tls
    bind %s ssl crt %s alpn h2,http/1.1
    default_backend gateway
frontend health
    bind %s
    monitor-uri /healthz
backend gateway
    server gateway %s
`

// startProxy starts haproxy with a certificate of a CA made for this run.
func (c *check) startProxy(ctx context.Context, gateway string) (*stack.Program, error) {
	authority, err := stack.NewAuthority("check-clients")
	if err != nil {
		return nil, err
	}
	files, err := authority.Issue(filepath.Join(c.dir, "tls"), time.Time{}, "localhost", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	certificate, err := os.ReadFile(files.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(files.KeyFile)
	if err != nil {
		return nil, err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return nil, err
	}
	health, err := stack.FreeAddr()
	if err != nil {
		return nil, err
	}
	pem, config := filepath.Join(c.dir, "tls", "haproxy.pem"), filepath.Join(c.dir, "haproxy.cfg")
	err = errors.Join(os.WriteFile(pem, slices.Concat(certificate, key), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, proxyConfig, addr, pem, health, gateway), 0o600))
	if err != nil {
		return nil, err
	}
	trust := filepath.Join(c.dir, "tls", "trust.p12")
	if said, err := exec.CommandContext(ctx, "keytool", "-importcert", "-noprompt", "-alias", "run", "-file", files.CAFile,
		"-keystore", trust, "-storepass", "changeit").CombinedOutput(); err != nil {
		fmt.Fprintf(c.out, "Java will not trust the certificate: %v %s\n", err, said)
	}
	c.trust = []string{
		"CURL_CA_BUNDLE=" + files.CAFile, "SSL_CERT_FILE=" + files.CAFile, "NODE_EXTRA_CA_CERTS=" + files.CAFile,
		"REQUESTS_CA_BUNDLE=" + files.CAFile, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStorePassword=changeit -Djavax.net.ssl.trustStore=" + trust,
	}
	c.tlsURL = "https://localhost:" + addr[strings.LastIndexByte(addr, ':')+1:]
	proxy := stack.NewProgram(stack.ProgramOptions{
		Name: "haproxy", Path: "haproxy", Args: []string{"-db", "-f", config}, Log: filepath.Join(c.dir, "haproxy.log"),
		Ready: "http://" + health + "/healthz",
	})
	if err := proxy.Start(ctx); err != nil {
		proxy.Stop()
		return nil, err
	}
	return proxy, nil
}

// walkers are all clients. One whose program is not there is found out when its
// turn comes.
func (c *check) walkers(ctx context.Context) []walker {
	axios := filepath.Join(c.dir, "node_modules", "axios", "index.js")
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", c.dir, axiosPinned)
	if said, err := install.CombinedOutput(); err != nil {
		fmt.Fprintf(c.out, "axios cannot be installed: %v\n%s", err, said)
	}
	requests := "python3"
	if exec.CommandContext(ctx, requests, "-c", "import requests").Run() != nil {
		requests = "/usr/bin/python3" // the system's, for which its package is, where another one comes first on PATH
	}
	var all []walker
	for _, w := range []walker{
		{name: "curl", command: []string{"sh", "curl.sh"}, needs: "curl"},
		{name: "Go net/http", command: []string{filepath.Join(c.dir, "nethttp")}},
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
	k6, err := filepath.Abs(filepath.Join(os.Getenv("DATA_DIR"), "bin", "k6")) // where `make loadtest` puts it, too
	if err != nil {
		k6 = "k6"
	}
	return append(all, walker{name: "k6", command: []string{
		k6, "run", "--quiet", "--summary-mode=disabled", "--log-format=raw", "--console-output=/dev/stdout", "walk.js",
	}})
}

// walkAll lets every client walk over both transports and prints a table. The
// error tells how many failed.
func (c *check) walkAll(ctx context.Context, all []walker, noProxy string) error {
	results := make([]result, 2*len(all))
	var g errgroup.Group
	g.SetLimit(together)
	for i, w := range all {
		for j, url := range []string{c.plainURL, c.tlsURL} {
			r := &results[2*i+j]
			r.walker, r.transport = w.name, []string{"plain", "TLS"}[j]
			g.Go(func() error {
				if r.untried = w.missing(); url == "" {
					r.untried = noProxy
				}
				if r.untried == "" {
					r.version, r.err = c.walk(ctx, w, url)
					fmt.Fprintf(c.out, "  %s, %s: %s\n", r.walker, r.transport, r.outcome())
				}
				return nil
			})
		}
	}
	_ = g.Wait() // each result has its own error
	failed := 0
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nclient\ttransport\tHTTP\toutcome")
	for _, r := range results {
		if r.err != nil {
			failed++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.walker, r.transport, r.version, r.outcome())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(c.out, "\n%s, %s: %v\n", r.walker, r.transport, r.err)
		}
	}
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d walks failed", failed, len(results))
	}
	return nil
}

func (r *result) outcome() string {
	switch {
	case r.untried != "":
		return "untried: " + r.untried
	case r.err != nil:
		return "FAILED"
	}
	return "delivered"
}

// missing says what is not there of what the client needs.
func (w *walker) missing() string {
	for _, name := range []string{w.command[0], w.needs} {
		if name == "" {
			continue
		}
		if _, err := os.Stat(name); err == nil {
			continue
		}
		if _, err := exec.LookPath(name); err != nil {
			return filepath.Base(name) + " is not installed"
		}
	}
	return ""
}

// walk lets the client walk as an account of its own, and asks the service
// whether its orders are where the client says.
func (c *check) walk(ctx context.Context, w walker, url string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var account struct{ AccountID, ClientID, ClientSecret string }
	if err := c.admin.Call(ctx, http.MethodPost, "/accounts", map[string]string{"name": w.name}, &account); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	cmd.Dir = c.walks
	cmd.Env = append(os.Environ(), "BASE_URL="+url, "CLIENT_ID="+account.ClientID, "CLIENT_SECRET="+account.ClientSecret)
	cmd.Env = append(cmd.Env, c.trust...)
	cmd.Env = append(cmd.Env, w.env...)
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
	vendor, err := client.New(c.plainURL+"/api/vendor/v1", 1).Login(ctx, "/token", account.ClientID, account.ClientSecret)
	if err != nil {
		return "", err
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
		if err == nil && order.Status != want {
			err = fmt.Errorf("is %s, not %s", order.Status, want)
		}
		if err != nil {
			return "", fmt.Errorf("order %s: %w", words[i], err)
		}
	}
	return words[2], nil
}
