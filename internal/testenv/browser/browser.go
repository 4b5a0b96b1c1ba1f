// Package browser drives a Chromium without a window, which reaches loopback only. It
// notes errors in the console, failed requests and requests to other hosts.
package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
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

// Tab shows one page at a time, with cookies of its own. One goroutine uses it.
type Tab struct {
	// Context is the tab's for chromedp. It ends with the browser.
	Context context.Context
	// Close closes the tab and forgets its cookies.
	Close context.CancelFunc

	origin *url.URL

	mu       sync.Mutex
	faults   []Fault
	requests map[network.RequestID]string // URLs
	status   int                          // of the last document
	confirms []string
}

// Fault is something that should not happen on a sound page: an error or warning
// in the console, an exception, a dialog other than a confirmation, a request that
// failed, was answered with a status of 400 or above, or went to another host.
type Fault struct {
	Text   string
	Status int  // of an answer; else 0
	Native bool // what the browser itself says, which differs with its version
}

// NewTab opens an empty tab for pages of origin, such as http://127.0.0.1:8090.
func (b *Browser) NewTab(origin string) (*Tab, error) {
	t := &Tab{requests: map[network.RequestID]string{}}
	var err error
	t.origin, err = url.Parse(origin)
	if err != nil || t.origin.Host == "" {
		return nil, fmt.Errorf("%q is no origin", origin)
	}

	t.Context, t.Close = chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(t.notice))
	// The tab is open as long as the context of the first call: no deadline here.
	if err := chromedp.Do(t.Context); err != nil {
		t.Close()
		return nil, fmt.Errorf("open a tab: %w", err)
	}

	return t, errors.Join(t.SetScheme("light"), t.Viewport(1280, 900))
}

// Do runs steps within the time limit. The error begins with what.
func (t *Tab) Do(what string, steps ...chromedp.Action[chromedp.Void]) error {
	_, err := Run(t, what, chromedp.Steps(steps...))
	return err
}

// Run runs a step within the time limit. The error begins with what.
func Run[T any](t *Tab, what string, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(t.Context, timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return value, err
}

// Call is one command of the browser's protocol.
func Call[P, R any](t *Tab, command cdp.Command[P, R], params P) (R, error) {
	ctx, cancel := context.WithTimeout(t.Context, timeout)
	defer cancel()
	return chromedp.Call(ctx, command, params)
}

// Open shows a path of the tab's origin and returns when it has loaded.
func (t *Tab) Open(path string) error {
	return t.Do("open "+path, chromedp.Navigate(t.origin.Scheme+"://"+t.origin.Host+path))
}

// Navigate runs steps that lead to another page and returns when that has loaded.
func (t *Tab) Navigate(what string, steps ...chromedp.Action[chromedp.Void]) error {
	_, err := Run(t, what, chromedp.WaitEvent(page.LoadEventFired, nil, chromedp.Steps(steps...)))
	return err
}

// Evaluate is the value of a JavaScript expression, or of its promise, whatever the page's policy.
func Evaluate[T any](t *Tab, expression string) (T, error) {
	return Run(t, fmt.Sprintf("evaluate %.80s", expression), chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Viewport sets the size of the page in CSS pixels.
func (t *Tab) Viewport(width, height int) error {
	return t.Do("set the viewport", chromedp.EmulateViewport(int64(width), int64(height)))
}

// Screenshot is what the viewport shows, as PNG.
func (t *Tab) Screenshot() ([]byte, error) { return Run(t, "screenshot", chromedp.CaptureScreenshot()) }

// SetScheme is the system's preference, "light" or "dark".
func (t *Tab) SetScheme(scheme string) error {
	_, err := Call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	return err
}

// Cookies are what the tab sends to its origin, as in the header Cookie.
func (t *Tab) Cookies() (string, error) {
	found, err := Call(t, network.GetCookies, network.GetCookiesParams{URLs: []string{t.origin.String()}})
	var header []string
	for _, c := range found.Cookies {
		header = append(header, c.Name+"="+c.Value)
	}
	return strings.Join(header, "; "), err
}

// Faults are all since the last call, in the order in which they happened.
func (t *Tab) Faults() []Fault { return take(t, &t.faults) }

// Status is the last document's.
func (t *Tab) Status() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// Confirmed are the questions that pages have asked (window.confirm) since the
// last call; each was answered with yes.
func (t *Tab) Confirmed() []string { return take(t, &t.confirms) }

func take[T any](t *Tab, list *[]T) []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := *list
	*list = nil
	return taken
}

var faultyCalls = []runtime.ConsoleAPICalledType{
	runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert}

// notice handles the browser's events, in their order. It must not call the browser.
func (t *Tab) notice(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		t.requested(e.RequestID, e.Request.URL)
	case *network.EventWebSocketCreated:
		t.requested(e.RequestID, e.URL)
	case *network.EventResponseReceived:
		if e.Type == network.ResourceTypeDocument {
			t.status = int(e.Response.Status)
		}
		if status := int(e.Response.Status); status >= 400 {
			t.faults = append(t.faults, Fault{Text: fmt.Sprintf("%s answered %d", e.Response.URL, status), Status: status})
		}
	case *network.EventLoadingFailed:
		if !e.Canceled || e.BlockedReason != "" {
			t.fault("request failed: %s %s (%s)", e.ErrorText, e.BlockedReason, t.requests[e.RequestID])
		}
	case *log.EventEntryAdded:
		// Of a failed request the network's events say more.
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			t.faults = append(t.faults, Fault{Text: fmt.Sprintf("browser: %s (%s)", e.Entry.Text, e.Entry.URL), Native: true})
		}
	case *runtime.EventConsoleAPICalled:
		if slices.Contains(faultyCalls, e.Type) {
			var words []string
			for _, arg := range e.Args {
				words = append(words, cmp.Or(arg.Description, string(arg.Value)))
			}
			t.fault("console: %s", strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		t.fault("exception: %s (%s)", text, e.ExceptionDetails.URL)
	case *page.EventJavascriptDialogOpening:
		if e.Type == page.DialogTypeConfirm {
			t.confirms = append(t.confirms, e.Message)
		} else {
			t.fault("dialog: %s: %s (%s)", e.Type, e.Message, e.URL)
		}
		go func() { // an open dialog blocks the whole tab; it may be gone with its page
			_, _ = Call(t, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

func (t *Tab) fault(format string, args ...any) {
	t.faults = append(t.faults, Fault{Text: fmt.Sprintf(format, args...)})
}

func (t *Tab) requested(id network.RequestID, address string) {
	t.requests[id] = address
	u, err := url.Parse(address)
	if err != nil || u.Host != "" && u.Host != t.origin.Host { // data: and blob: have no host
		t.fault("another host was requested: %s", address)
	}
}
