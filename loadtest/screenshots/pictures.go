package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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
func (w *world) show(ctx context.Context, f flags) error {
	b, err := browser.Launch(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()
	tab, err := b.NewTab(w.Demo.PanelURL)
	if err != nil {
		return err
	}
	if err := w.signIn(tab); err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	for _, p := range w.pictures() {
		for _, s := range screens {
			if err := w.take(tab, p, s, f.out); err != nil {
				return fmt.Errorf("%s at %d: %w", p.name, s.width, err)
			}
		}
	}
	measured := w.measure(ctx, tab, f.reads)
	var troubles []error
	for _, f := range tab.Faults() {
		troubles = append(troubles, errors.New(f.Text))
	}
	return errors.Join(append(troubles, measured)...)
}

func (w *world) pictures() []picture {
	return []picture{
		{"overview", "/overview"},
		{"webhooks", "/webhooks"},
		{"payments", "/payments?" + w.fortnight()},
		{"tracking", w.tracked},
	}
}

// fortnight is the query of the last two weeks.
func (w *world) fortnight() string {
	today := time.Now().In(delivery.Istanbul)
	return url.Values{
		"from": {today.AddDate(0, 0, -len(shares)).Format(time.DateOnly)}, "to": {today.Format(time.DateOnly)},
	}.Encode()
}

func (w *world) signIn(tab *browser.Tab) error {
	if err := tab.Open("/login"); err != nil {
		return err
	}
	return tab.Do("fill in the form",
		chromedp.SendKeys("#user", w.Demo.Panel.User), chromedp.SendKeys("#password", w.Demo.Panel.Password),
		chromedp.Submit("#user"), chromedp.WaitVisible("nav"))
}

func (w *world) take(tab *browser.Tab, p picture, s screen, dir string) error {
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
	w.say("%-20s %4d kB", name, len(shot)/1000)
	if err := write(dir, name, shot); err != nil {
		return err
	}
	if len(shot) > maxPicture {
		return fmt.Errorf("%d bytes, more than %d", len(shot), maxPicture)
	}
	return nil
}
