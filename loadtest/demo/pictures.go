package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// screen is how a page is shown: its size in CSS pixels, and how much of a page a picture shows.
type screen struct{ width, height, shown int }

var (
	desktop = screen{width: 1280, height: 900, shown: 1100}
	phone   = screen{width: 390, height: 844, shown: 1500}
)

// picture is one of those in PANEL.md and CLOSING.md. Its file's name ends in the screen's width.
type picture struct {
	name, path string
	screen     screen
}

func (s *scene) pictures() []picture {
	return []picture{
		{"overview", "/overview", desktop},
		{"webhooks", "/webhooks", desktop},
		{"payments", "/payments?" + s.period(), phone},
		{"tracking", s.trackingPath, phone},
		{"month", "/payments/months/" + s.month.String(), desktop},
	}
}

// pages returns the paths that are measured: of every kind of page one.
func (s *scene) pages() []string {
	period := s.period()
	return []string{
		"/login",
		"/overview",
		"/overview/live",
		"/orders",
		"/orders?q=" + s.healthy.Store,
		"/orders/" + s.deliveredOrder,
		"/webhooks",
		"/webhooks/" + s.unreachable.AccountID,
		"/accounts",
		"/accounts/" + s.healthy.AccountID,
		"/fleets",
		"/fleets/" + s.FleetID,
		"/stores",
		"/stores/" + s.healthy.AccountID + "/" + s.healthy.Store,
		"/refused-updates",
		"/dead-letters",
		s.trackingPath,
		"/payments?" + period,
		"/payments/order-ledger?" + period,
		"/payments/fleet-statement?" + period,
		"/payments/exceptions?" + period,
		"/payments/control-totals?" + period,
		"/payments/control-totals/lines?" + period,
		"/payments/months",
		"/payments/months/" + s.month.String(),
		"/payments/months/unbooked",
		"/payments/delivery",
	}
}

// period is the query for today and the days before that were added.
func (s *scene) period() string {
	today := time.Now().In(delivery.Istanbul)
	return url.Values{
		"from": {today.AddDate(0, 0, -len(shares)).Format(time.DateOnly)},
		"to":   {today.Format(time.DateOnly)},
	}.Encode()
}

// takePictures takes the pictures and measures every page. The error reports a page or a picture that is too large, or
// that the browser complained.
func (s *scene) takePictures(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}

	b, err := browser.Launch(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()

	tab, err := b.NewTab(s.Demo.PanelURL)
	if err != nil {
		return err
	}
	if err := s.signIn(tab); err != nil {
		return fmt.Errorf("sign in: %w", err)
	}

	for _, p := range s.pictures() {
		file := fmt.Sprintf("%s-%d.png", p.name, p.screen.width)
		if err := p.take(tab, filepath.Join(folder, file)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}

	troubles := []error{s.measure(ctx, tab)}
	for _, fault := range tab.Faults() {
		troubles = append(troubles, errors.New(fault.Text))
	}

	return errors.Join(troubles...)
}

func (s *scene) signIn(tab *browser.Tab) error {
	if err := tab.Open("/login"); err != nil {
		return err
	}
	return tab.Navigate("submit the form",
		chromedp.SendKeys(chromedp.CSS("#user"), s.Demo.Panel.User),
		chromedp.SendKeys(chromedp.CSS("#password"), s.Demo.Panel.Password),
		chromedp.Submit(chromedp.CSS("#user")))
}

// untilFetched is a promise of JavaScript that resolves when every part that the page fetches after loading is there.
// Evaluate gives up waiting for it.
const untilFetched = `new Promise(resolve => {
	const look = () => document.querySelector('[hx-trigger=load]') ? setTimeout(look, 50) : resolve(true);
	look();
})`

func (p *picture) take(tab *browser.Tab, file string) error {
	if err := tab.Viewport(p.screen.width, p.screen.height); err != nil {
		return err
	}
	if err := tab.Open(p.path); err != nil {
		return err
	}

	status := tab.Status()
	if status != http.StatusOK {
		return fmt.Errorf("%s answers %d", p.path, status)
	}

	_, err := browser.Evaluate[bool](tab, untilFetched)
	if err != nil {
		return err
	}

	time.Sleep(time.Second) // charts are drawn after the page has loaded

	// The picture is a screen as high as what it shows, so that what sticks to
	// the screen's edges does so in the picture.
	length, err := browser.Evaluate[int](tab, "document.documentElement.scrollHeight")
	if err != nil {
		return err
	}
	if err := tab.Viewport(p.screen.width, max(p.screen.height, min(length, p.screen.shown))); err != nil {
		return err
	}

	time.Sleep(500 * time.Millisecond)

	shot, err := tab.Screenshot()
	if err != nil {
		return err
	}

	fmt.Printf("%-20s %4d kB\n", filepath.Base(file), len(shot)/1000)
	if len(shot) > maxPicture {
		return fmt.Errorf("%d bytes, more than %d", len(shot), maxPicture)
	}

	return os.WriteFile(file, shot, 0o644)
}

// measure reads every page of the panel some times, as the browser that has signed in does, and prints what each takes.
func (s *scene) measure(ctx context.Context, tab *browser.Tab) error {
	cookie, err := tab.Cookies()
	if err != nil {
		return err
	}

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "page\tbytes\tmedian\t")
	var large, slow []string
	for _, path := range s.pages() {
		size, median, err := s.read(ctx, tab, path, cookie)
		if err != nil {
			return err
		}

		fmt.Fprintf(table, "%s\t%d\t%.1f ms\t\n", path, size, float64(median.Microseconds())/1000)
		if size > maxBytes {
			large = append(large, path)
		}

		if median > maxTime {
			slow = append(slow, path)
		}
	}

	if err := table.Flush(); err != nil {
		return err
	}

	if len(slow) > 0 { // no failure: the machine may be busy
		fmt.Printf("slower than %v: %s\n", maxTime, strings.Join(slow, ", "))
	}

	if len(large) > 0 {
		return fmt.Errorf("larger than %d bytes: %s", maxBytes, strings.Join(large, ", "))
	}

	return nil
}

// read measures one page. Its bytes are those over the wire as a browser sees them the first time: of the page, its
// stylesheet and scripts, compressed where they come compressed, without the charts' script.
func (s *scene) read(ctx context.Context, tab *browser.Tab, path, cookie string) (size int, median time.Duration, err error) {
	var took []time.Duration
	for range 5 {
		began := time.Now()
		size, err = s.fetch(ctx, path, cookie)
		if err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(began))
	}

	slices.Sort(took)
	median = took[len(took)/2]
	if strings.HasSuffix(path, "/live") {
		return size, median, nil // a part of a page, which loads nothing by itself
	}

	if err := tab.Open(path); err != nil {
		return 0, 0, err
	}

	parts, err := browser.Evaluate[[]string](tab, `[...document.querySelectorAll('link[rel=stylesheet], link[rel=icon], script[src]')]
		.map(e => new URL(e.href || e.src).pathname).filter(path => !path.includes('chart'))`)
	if err != nil {
		return 0, 0, err
	}

	for _, part := range parts {
		bytes, err := s.fetch(ctx, part, cookie)
		if err != nil {
			return 0, 0, err
		}
		size += bytes
	}

	return size, median, nil
}

// fetch reads a path to its end and returns its bytes over the wire.
func (s *scene) fetch(ctx context.Context, path, cookie string) (int, error) {
	resp, err := harness.Request(ctx, http.MethodGet, s.Demo.PanelURL+path, "", http.Header{
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
