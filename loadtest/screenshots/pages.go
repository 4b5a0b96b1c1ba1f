package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/chromedp/chromedp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/browser"
	"vendorapi/loadtest/harness"
)

const (
	// maxPicture keeps the repository small, in bytes.
	maxPicture = 250_000
	// maxBytes and maxTime are for every page before its charts, on this data.
	maxBytes = 100_000
	maxTime  = 100 * time.Millisecond
)

// screen is how pages are shown: its size in CSS pixels, and how much of a page a picture shows.
type screen struct{ width, height, shown int }

var screens = []screen{{1280, 900, 1100}, {390, 844, 1500}}

// show takes the pictures, and measures every page.
func (e *env) show(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := browser.Launch(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()
	tab, err := b.NewTab(e.Demo.PanelURL)
	if err != nil {
		return err
	}
	if err := tab.Open("/login"); err != nil {
		return err
	}
	err = tab.Navigate("submit the form", chromedp.SendKeys(chromedp.CSS("#user"), e.Demo.Panel.User),
		chromedp.SendKeys(chromedp.CSS("#password"), e.Demo.Panel.Password), chromedp.Submit(chromedp.CSS("#user")))
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	today := time.Now().In(delivery.Istanbul)
	e.names["fortnight"] = url.Values{
		"from": {today.AddDate(0, 0, -len(shares)).Format(time.DateOnly)}, "to": {today.Format(time.DateOnly)},
	}.Encode()
	e.names["order"], err = e.ask(ctx, "SELECT order_id FROM delivery.orders FINAL WHERE status = 'Delivered' AND business_day >= toDate(now('Etc/GMT-3')) "+
		"AND account_id = '"+e.plan.Vendors[0].AccountID+"' LIMIT 1")
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(e.plan.Pictures)) {
		for _, s := range screens {
			file := fmt.Sprintf("%s-%d.png", name, s.width)
			if err := e.take(tab, e.path(e.plan.Pictures[name]), s, filepath.Join(dir, file)); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	troubles := []error{e.measure(ctx, tab)}
	for _, f := range tab.Faults() {
		troubles = append(troubles, errors.New(f.Text))
	}
	return errors.Join(troubles...)
}

func (e *env) take(tab *browser.Tab, path string, s screen, file string) error {
	if err := tab.Viewport(s.width, s.height); err != nil {
		return err
	}
	if err := tab.Open(path); err != nil {
		return err
	}
	if status := tab.Status(); status != 200 {
		return fmt.Errorf("%s answers %d", path, status)
	}
	time.Sleep(time.Second) // charts are drawn after the page has loaded
	// The picture is a screen as high as what it shows, so that what sticks to
	// the screen's edges does so in the picture.
	length, err := browser.Evaluate[int](tab, "document.documentElement.scrollHeight")
	if err != nil {
		return err
	}
	if err := tab.Viewport(s.width, max(s.height, min(length, s.shown))); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	shot, err := tab.Screenshot()
	if err != nil {
		return err
	}
	e.log("%-20s %4d kB", filepath.Base(file), len(shot)/1000)
	if len(shot) > maxPicture {
		err = fmt.Errorf("%d bytes, more than %d", len(shot), maxPicture)
	}
	return errors.Join(err, os.WriteFile(file, shot, 0o644))
}

// measure reads every page of the panel some times, as the browser that has
// signed in does, and prints what each takes.
func (e *env) measure(ctx context.Context, tab *browser.Tab) error {
	cookie, err := tab.Cookies()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "page\tbytes\tmedian\t")
	var large, slow []string
	for _, path := range e.plan.Pages {
		path = e.path(path)
		size, median, err := e.read(ctx, tab, path, cookie)
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f ms\t\n", path, size, float64(median.Microseconds())/1000)
		if size > maxBytes {
			large = append(large, path)
		}
		if median > maxTime {
			slow = append(slow, path)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(slow) > 0 { // no failure: the machine may be busy
		e.log("slower than %v: %s", maxTime, strings.Join(slow, ", "))
	}
	if len(large) > 0 {
		return fmt.Errorf("larger than %d bytes: %s", maxBytes, strings.Join(large, ", "))
	}
	return nil
}

// read measures one page. Its bytes are those over the wire as a browser sees them the first time: of the page, its
// stylesheet and scripts, compressed where they come compressed, without the charts' script.
func (e *env) read(ctx context.Context, tab *browser.Tab, path, cookie string) (size int, median time.Duration, err error) {
	var took []time.Duration
	for range 20 {
		began := time.Now()
		if size, err = e.fetch(ctx, path, cookie); err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	median = took[len(took)/2]
	if strings.HasSuffix(path, "/live") {
		return size, median, nil // loads nothing of its own
	}
	if err := tab.Open(path); err != nil {
		return 0, 0, err
	}
	parts, err := browser.Evaluate[[]string](tab, `[...document.querySelectorAll('link[rel=stylesheet], link[rel=icon], script[src]')]
		.map(e => new URL(e.href || e.src).pathname).filter(path => !path.includes('chart'))`)
	for _, part := range parts {
		n, failure := e.fetch(ctx, part, cookie)
		size, err = size+n, errors.Join(err, failure)
	}
	return size, median, err
}

// fetch reads a path to its end and returns its bytes over the wire.
func (e *env) fetch(ctx context.Context, path, cookie string) (int, error) {
	resp, err := harness.Request(ctx, http.MethodGet, e.Demo.PanelURL+path, "", http.Header{
		"Accept": {"text/html,*/*"}, "Cookie": {cookie},
		"Accept-Encoding": {"gzip, deflate, br, zstd"}, // set by hand, so what comes is not unpacked
	})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	return int(n), err
}
