package chromium

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Tab is one page at a time, with cookies that no other tab shares: a person of
// its own. One goroutine uses it.
type Tab struct {
	*Notes
	ctx    context.Context
	close  context.CancelFunc
	origin string // such as http://127.0.0.1:8090
}

// NewTab opens an empty tab. origin is put in front of every path that is
// opened.
func (b *Browser) NewTab(origin string) (*Tab, error) {
	t := &Tab{Notes: newNotes(), origin: strings.TrimSuffix(origin, "/")}
	t.ctx, t.close = chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(t.notice))
	// The tab lives as long as the context of the first call: no deadline here.
	if err := chromedp.Do(t.ctx); err != nil {
		t.close()
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	go t.answerDialogs(t.ctx)
	return t, t.Viewport(1280, 900)
}

// Close closes the tab and forgets its cookies.
func (t *Tab) Close() { t.close() }

// do runs one step within the patience.
func (t *Tab) do(what string, steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// call is one command of the browser's protocol, within the patience.
func call[P, R any](t *Tab, command cdp.Command[P, R], params P) (R, error) {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	return chromedp.Call(ctx, command, params)
}

// Open shows a page, a path of the tab's origin or a whole URL, and returns when
// it has loaded. What it was answered with tells Status.
func (t *Tab) Open(path string) error {
	url := path
	if strings.HasPrefix(path, "/") {
		url = t.origin + path
	}
	return t.do("open "+path, chromedp.Navigate(url))
}

// Viewport sets the size of the page in CSS pixels.
func (t *Tab) Viewport(width, height int) error {
	return t.do("set the viewport", chromedp.EmulateViewport(int64(width), int64(height)))
}

// Language is what the browser asks for from now on, such as "tr-TR,tr;q=0.9".
func (t *Tab) Language(accepted string) error {
	_, err := call(t, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": accepted}})
	return err
}

// Dark turns the system's preference for a dark page on or off.
func (t *Tab) Dark(on bool) error {
	scheme := "light"
	if on {
		scheme = "dark"
	}
	_, err := call(t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	return err
}

// Screenshot is the page as PNG, as wide as the viewport and from its top to
// height pixels, or to the page's end if that comes first; 0: the whole page.
func (t *Tab) Screenshot(height int) ([]byte, error) {
	size, err := Evaluate[[]float64](t, `[document.documentElement.clientWidth, document.documentElement.scrollHeight]`)
	if err != nil || len(size) != 2 {
		return nil, fmt.Errorf("screenshot: %w", err)
	}
	if height > 0 {
		size[1] = min(size[1], float64(height))
	}
	beyond := true
	shot, err := call(t, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &beyond,
		Clip: &page.Viewport{Width: size[0], Height: size[1], Scale: 1},
	})
	if err != nil {
		return nil, fmt.Errorf("screenshot: %w", err)
	}
	return shot.Data, nil
}

// Evaluate is the value of a JavaScript expression on the page; a promise is
// waited for. The page's policy does not bind it.
func Evaluate[T any](t *Tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		return value, fmt.Errorf("evaluate %.80s: %w", expression, err)
	}
	return value, nil
}

// Nothing is the value of an expression that has none.
type Nothing = chromedp.Void

// Until asks holds every 50 ms until it is true; an error counts as not yet,
// since pages are replaced while they are looked at.
func (t *Tab) Until(what string, holds func() (bool, error)) error {
	deadline := time.Now().Add(Patience)
	for {
		ok, err := holds()
		if ok && err == nil {
			return nil
		}
		if t.ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, t.ctx.Err())
		}
		if time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("waited %v: %s: %w", Patience, what, err)
			}
			return fmt.Errorf("waited %v: %s", Patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Cookies are what the tab would send to a URL, as in the header Cookie.
func (t *Tab) Cookies(url string) (string, error) {
	found, err := call(t, network.GetCookies, network.GetCookiesParams{URLs: []string{url}})
	if err != nil {
		return "", err
	}
	var header []string
	for _, c := range found.Cookies {
		header = append(header, c.Name+"="+c.Value)
	}
	return strings.Join(header, "; "), nil
}
