// Package browser drives a Chromium without a window, which reaches loopback only. It
// notes errors in the console, failed requests and requests to other hosts.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

// timeout bounds every single wait, also on two busy processors.
const timeout = time.Minute

// Find is the path of the machine's Chromium: what CHROMIUM names, else a known name on PATH.
func Find() (string, error) {
	candidates := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}
	if named := os.Getenv("CHROMIUM"); named != "" {
		candidates = []string{named}
	}
	for _, name := range candidates {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("found no %s: `make deps` installs Chromium, and CHROMIUM may name one", strings.Join(candidates, ", "))
}

// flags beyond chromedp's own: Chromium requests nothing by itself, and names other
// than loopback's are not even looked up.
var flags = []chromedp.ExecAllocatorOption{
	chromedp.NoSandbox, // root, as in a container, has none; pages are the project's own
	chromedp.DisableGPU,
	chromedp.Flag("disable-quic", true),
	chromedp.Flag("disable-component-update", true),
	chromedp.Flag("disable-domain-reliability", true),
	chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter,InterestFeedContentSuggestions,AutofillServerCommunication,CertificateTransparencyComponentUpdater"),
	chromedp.Flag("no-pings", true),
	chromedp.Flag("no-proxy-server", true),
	chromedp.Flag("accept-lang", "en-GB,en"),
	chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.*"),
	chromedp.WindowSize(1280, 900),
}

// Browser is a running Chromium. Each of its tabs is used by one goroutine.
type Browser struct {
	ctx context.Context
	// Stop ends the browser and removes its profile.
	Stop context.CancelFunc
}

// Launch runs a Chromium in a temporary folder. It ends with Stop, with ctx, and with this process.
func Launch(ctx context.Context) (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], flags...)
	allocator, stopAllocator := chromedp.NewExecAllocator(ctx, append(options, chromedp.ExecPath(path))...)
	quiet := func(string, ...any) {}
	// What chromedp cannot read of a newer protocol does not matter here.
	browser, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(quiet), chromedp.WithLogf(quiet))
	b := &Browser{ctx: browser, Stop: func() {
		graceful, done := context.WithTimeout(browser, 10*time.Second)
		_ = chromedp.Cancel(graceful) // what did not end by itself is killed below
		done()
		cancel()
		stopAllocator() // waits until the process and its folder are gone
	}}
	// The browser runs as long as the context of the first call: it has no deadline.
	started := make(chan error, 1)
	go func() { started <- chromedp.Do(browser) }()
	select {
	case err = <-started:
	case <-time.After(timeout):
		err = errors.New("it did not answer")
	}
	if err != nil {
		cancel()
		stopAllocator()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return b, nil
}
