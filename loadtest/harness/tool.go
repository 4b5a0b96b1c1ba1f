package harness

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// Main is a tool's main: it parses the flags and is Run.
func Main(name, usage string, run func(context.Context) error) {
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage, "\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	Run(name, run)
}

// Run runs until the end or the first interrupt, a terminal that is gone included,
// and exits with 1 and the error's text. A second interrupt kills. SIGPIPE is no interrupt:
// once asked for, a write to a connection that was cut raises it, too.
func Run(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}

	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// System is a running system in a folder of its own, with a server for receivers of webhooks in this process.
type System struct {
	*stack.Stack
	*stack.APIs
	Hooks    *http.ServeMux // "/" is for the demo account
	HooksURL string
}

// ErrTimeout is what Await wraps when its timeout is over.
var ErrTimeout = errors.New("timeout")

// Await polls done until it holds or fails.
func Await(ctx context.Context, what string, timeout, every time.Duration, done func() (bool, error)) error {
	for end := time.Now().Add(timeout); ; {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s: %w", timeout, what, ErrTimeout)
		}
		if err := Sleep(ctx, every); err != nil {
			return err
		}
	}
}

// Sleep returns early with the cause that ended ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// WithSystem starts a system, uses and stops it. The context of use ends when one of the
// programs dies, which is then the error. Without a DataDir it has a temporary folder,
// which is kept and printed with keep and after an error, but not after an interrupt.
func WithSystem(ctx context.Context, out io.Writer, keep bool, o stack.Options, use func(context.Context, *System) error) (err error) {
	if o.DataDir == "" {
		o.DataDir, err = os.MkdirTemp("", "vendor-")
		if err != nil {
			return err
		}

		defer func() {
			if keep || err != nil && !errors.Is(err, context.Canceled) {
				fmt.Fprintln(out, "data and logs:", o.DataDir)
				return
			}
			_ = os.RemoveAll(o.DataDir) // it is among the temporary ones
		}()
	}

	s := &System{Hooks: http.NewServeMux()}
	url, stop, err := receiver.Serve(s.Hooks)
	if err != nil {
		return err
	}
	defer stop()

	s.HooksURL, o.WebhookURL = url, url+"/"

	s.Stack, err = stack.Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Stop()

	s.APIs, err = s.Demo.Connect(ctx, client.New("", 16))
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(s.Wait(ctx)) }()

	err = use(ctx, s)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}

	return err
}

// WriteConfig writes the shipped settings of a program to a folder, with other values for some keys. A key that occurs
// several times is followed by what its value begins with: "url: ${REDIS_URL".
func WriteConfig(dir, program string, values map[string]string) (path string, err error) {
	root, err := stack.ModuleDir()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, "configs", program+".yaml"))
	if err != nil {
		return "", err
	}

	for key, value := range values {
		key, before, _ := strings.Cut(key, ": ")
		line := regexp.MustCompile(`(?m)^( *` + regexp.QuoteMeta(key) + `: *)` + regexp.QuoteMeta(before) + `.*$`)
		if !line.Match(content) {
			return "", fmt.Errorf("the settings of %s have no %s", program, key)
		}
		content = line.ReplaceAll(content, []byte("${1}"+value))
	}

	path = filepath.Join(dir, program+".yaml")

	return path, os.WriteFile(path, content, 0o600)
}

var noRedirects = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// Request sends a request; any answer but 200 is an error, redirects too.
func Request(ctx context.Context, method, url, body string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}

	maps.Copy(req.Header, header)
	resp, err := noRedirects.Do(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()

	reason, err := io.ReadAll(io.LimitReader(resp.Body, 1000))

	return nil, errors.Join(fmt.Errorf("%s answers %d to %.60q: %s", req.URL.Path, resp.StatusCode, body, bytes.TrimSpace(reason)), err)
}

// Query is what ClickHouse answers to a statement, tab-separated values.
func Query(ctx context.Context, url, statement string) (string, error) {
	answer, err := Fetch(ctx, http.MethodPost, url, statement)
	return strings.TrimSpace(string(answer)), err
}

// Fetch is what a URL answers.
func Fetch(ctx context.Context, method, url, body string) ([]byte, error) {
	resp, err := Request(ctx, method, url, body, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
