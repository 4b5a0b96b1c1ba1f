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

// Main parses the flags of the command line and calls Run. usage is printed above the flags by -help.
func Main(name, usage string, run func(context.Context) error) {
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage, "\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	Run(name, run)
}

// Run calls run with a context that ends with the first interrupt, a terminal that is gone included. After an error or an
// interrupt it prints the error's text and exits with status 1; flag.ErrHelp is no error. A second interrupt kills the
// process. SIGPIPE does not count as an interrupt: a program that asks for it also gets it when it writes to a connection
// that was cut.
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

// Await calls done until it returns true or an error, which Await returns. It pauses between the calls (every). After
// timeout the error wraps ErrTimeout; when ctx ends it is the cause of that. what names the event in the error's text.
func Await(ctx context.Context, what string, timeout, every time.Duration, done func() (bool, error)) error {
	end := time.Now().Add(timeout)
	for {
		isDone, err := done()
		if isDone || err != nil {
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

// Sleep returns nil after d. It returns earlier when ctx ends, with the cause of that.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// WithSystem starts a system, calls use with it, and stops it. The context of use ends when one of the programs dies, which
// is then the error. Without a DataDir the system has a temporary folder. That folder is removed at the end, unless keep is
// set or an error other than an interrupt has happened; then its path is printed.
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
			_ = os.RemoveAll(o.DataDir) // what cannot be removed is in the system's temporary folder
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

// WriteConfig writes the shipped settings of a program to a folder, with other values for some keys, and returns the path of
// the file. To change one of several keys with the same name, the name is given with the beginning of the shipped value,
// such as "url: ${REDIS_URL". A key that the settings do not have is an error, and then nothing is written.
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

// Request sends a request and returns the response, whose body the caller closes. It fails if the status is not 200;
// redirects are not followed and fail, too.
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

	refusal := fmt.Errorf("%s answers %d to %.60q: %s", req.URL.Path, resp.StatusCode, body, bytes.TrimSpace(reason))
	return nil, errors.Join(refusal, err)
}

// Query sends a statement to ClickHouse and returns the answer, tab-separated values, without the space around it.
func Query(ctx context.Context, url, statement string) (string, error) {
	answer, err := Fetch(ctx, http.MethodPost, url, statement)
	return strings.TrimSpace(string(answer)), err
}

// Fetch sends a request and returns the body of the answer. Its errors are those of Request.
func Fetch(ctx context.Context, method, url, body string) ([]byte, error) {
	resp, err := Request(ctx, method, url, body, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
