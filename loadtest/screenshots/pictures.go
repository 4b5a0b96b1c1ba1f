package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/browser"
)

// maxPicture keeps the repository small, in bytes.
const maxPicture = 250_000

// picture is a page that is shown in the README.
type picture struct{ name, path string }

// screen is how pages are shown: its size in CSS pixels, and how much of a page
// a picture shows.
type screen struct{ width, height, shown int }

var screens = []screen{{1280, 900, 1100}, {390, 844, 1500}}

// show takes the pictures, and measures every page.
func (e *env) show(ctx context.Context, f flags) error {
	if err := os.MkdirAll(f.out, 0o755); err != nil {
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
	if err := e.signIn(tab); err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	for _, p := range e.pictures() {
		for _, s := range screens {
			if err := e.take(tab, p, s, f.out); err != nil {
				return fmt.Errorf("%s at %d: %w", p.name, s.width, err)
			}
		}
	}
	measured := e.measure(ctx, tab, f.reads)
	var troubles []error
	for _, f := range tab.Faults() {
		troubles = append(troubles, errors.New(f.Text))
	}
	return errors.Join(append(troubles, measured)...)
}

func (e *env) pictures() []picture {
	return []picture{
		{"overview", "/overview"},
		{"webhooks", "/webhooks"},
		{"payments", "/payments?" + e.fortnight()},
		{"tracking", e.tracked},
	}
}

// fortnight is the query of the last two weeks.
func (e *env) fortnight() string {
	today := time.Now().In(delivery.Istanbul)
	return url.Values{
		"from": {today.AddDate(0, 0, -len(shares)).Format(time.DateOnly)}, "to": {today.Format(time.DateOnly)},
	}.Encode()
}

func (e *env) signIn(tab *browser.Tab) error {
	if err := tab.Open("/login"); err != nil {
		return err
	}
	return tab.Navigate("submit the form", chromedp.SendKeys(chromedp.CSS("#user"), e.Demo.Panel.User),
		chromedp.SendKeys(chromedp.CSS("#password"), e.Demo.Panel.Password), chromedp.Submit(chromedp.CSS("#user")))
}

func (e *env) take(tab *browser.Tab, p picture, s screen, dir string) error {
	if err := tab.Viewport(s.width, s.height); err != nil {
		return err
	}
	if err := tab.Open(p.path); err != nil {
		return err
	}
	if status := tab.Status(); status != 200 {
		return fmt.Errorf("%s answers %d", p.path, status)
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
	name := fmt.Sprintf("%s-%d.png", p.name, s.width)
	e.log("%-20s %4d kB", name, len(shot)/1000)
	if err := os.WriteFile(filepath.Join(dir, name), shot, 0o644); err != nil {
		return err
	}
	if len(shot) > maxPicture {
		return fmt.Errorf("%d bytes, more than %d", len(shot), maxPicture)
	}
	return nil
}
