//go:build long

// Package browser lets a test use the panel as people do: in a real Chromium,
// through what can be seen, clicked and typed. A page that logs an error, throws,
// makes a request that fails or goes to another host, is wider than the screen, or
// cannot be used with a keyboard or a screen reader fails the test, unless it
// expects that (Page.Expect). Package chromium drives the browser.
package browser

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"vendorapi/loadtest/chromium"
)

// Browser is a running Chromium for one test and its subtests.
type Browser struct{ chromium *chromium.Browser }

// Start runs a Chromium that ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	c, err := chromium.Start(context.WithoutCancel(t.Context())) // cleanups still look at pages
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return &Browser{c}
}

// Page is one tab with cookies of its own. What fails on it ends the test.
type Page struct {
	*visit
	t testing.TB
}

// visit is what the pages of one tab share.
type visit struct {
	tab       *chromium.Tab
	host      string
	expected  []int // statuses that are no fault
	questions int   // of the confirmations, how many have been told
	judged    int   // of the troubles, how many
}

// Open opens a tab for pages of origin, such as http://127.0.0.1:8090. When the
// test is over the tab is judged (Clean) and closed.
func (b *Browser) Open(t testing.TB, origin string) *Page {
	t.Helper()
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		t.Fatalf("%q is no origin", origin)
	}
	tab, err := b.chromium.NewTab(origin)
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{&visit{tab: tab, host: u.Host}, t}
	t.Cleanup(func() {
		p.Clean()
		tab.Close()
	})
	return p
}

// For is the same page whose failures end another test, such as a subtest.
func (p *Page) For(t testing.TB) *Page { return &Page{p.visit, t} }

func (p *Page) must(err error) {
	p.t.Helper()
	if err != nil {
		shown, _ := p.tab.Text("body") // the message is only less helpful without it
		p.t.Fatalf("%v\nthe page %s shows:\n%.1500s", err, p.Location(), shown)
	}
}

// Expect allows answers with these statuses from now on: a refusal that the test
// asks for is no fault.
func (p *Page) Expect(statuses ...int) { p.expected = append(p.expected, statuses...) }

// Visit opens a path and fails unless it is answered with the status.
func (p *Page) Visit(path string, status int) {
	p.t.Helper()
	if status >= 400 {
		p.Expect(status)
	}
	p.must(p.tab.Open(path))
	p.HasStatus(status)
}

// HasStatus fails unless the last document was answered with the status.
func (p *Page) HasStatus(status int) {
	p.t.Helper()
	if got := p.tab.Status(); got != status {
		p.must(fmt.Errorf("answered %d, want %d", got, status))
	}
}

// Location is the page's path with its query.
func (p *Page) Location() string {
	p.t.Helper()
	path, err := chromium.Evaluate[string](p.tab, "location.pathname + location.search")
	if err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Fill puts text into the field with the label; see chromium.Tab.Fill.
func (p *Page) Fill(label, text string) { p.t.Helper(); p.must(p.tab.Fill(label, text)) }

// Press presses a button and waits for the page that answers.
func (p *Page) Press(name string) { p.t.Helper(); p.PressIn("", name) }

// PressIn is Press within the part that CSS names.
func (p *Page) PressIn(part, name string) {
	p.t.Helper()
	p.must(p.tab.Follow(chromium.Element{Role: "button", Name: name, In: part}))
}

// Follow clicks on a link and waits for its page.
func (p *Page) Follow(name string) { p.t.Helper(); p.FollowIn("", name) }

// FollowIn is Follow within the part that CSS names.
func (p *Page) FollowIn(part, name string) {
	p.t.Helper()
	p.must(p.tab.Follow(chromium.Element{Role: "link", Name: name, In: part}))
}

// Has tells whether exactly one element of the role has the accessible name.
func (p *Page) Has(role, name string) bool {
	return p.tab.Has(chromium.Element{Role: role, Name: name})
}

// Text is what the first element that matches CSS shows; "body" is the page.
func (p *Page) Text(css string) string {
	p.t.Helper()
	text, err := p.tab.Text(css)
	p.must(err)
	return text
}

// WaitText waits until the page shows every text.
func (p *Page) WaitText(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.must(p.tab.WaitText(text))
	}
}

// Shows fails unless the page shows every text now.
func (p *Page) Shows(texts ...string) {
	p.t.Helper()
	shown := p.Text("body")
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			p.t.Errorf("%s does not show %q:\n%.1500s", p.Location(), text, shown)
		}
	}
}

// Until waits until the page satisfies holds.
func (p *Page) Until(what string, holds func() bool) {
	p.t.Helper()
	p.must(p.tab.Until(what, func() (bool, error) { return holds(), nil }))
}

// Download clicks on a link and returns the path of the file that came.
func (p *Page) Download(link string) string {
	p.t.Helper()
	path, err := p.tab.Download(p.t.TempDir(), func() error {
		return p.tab.Click(chromium.Element{Role: "link", Name: link})
	})
	p.must(err)
	return path
}

// Width sets the width of the screen in CSS pixels.
func (p *Page) Width(pixels int) { p.t.Helper(); p.must(p.tab.Viewport(pixels, 900)) }

// Language is the browser's from now on, such as "tr".
func (p *Page) Language(tag string) { p.t.Helper(); p.must(p.tab.Language(tag)) }

// Dark sets whether the system prefers dark pages.
func (p *Page) Dark(on bool) { p.t.Helper(); p.must(p.tab.Dark(on)) }

// Confirmed are the questions that pages have asked since the last call; each
// was answered with yes.
func (p *Page) Confirmed() []string {
	all := p.tab.Confirmed()
	fresh := all[p.questions:]
	p.questions = len(all)
	return fresh
}

// Eval is the value of a JavaScript expression on the page.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	value, err := chromium.Evaluate[T](p.tab, expression)
	p.must(err)
	return value
}

// Clean fails for everything that went wrong on this tab since it was judged
// last: errors that it logged, exceptions, alerts, requests that
// failed, and any request to another host.
func (p *Page) Clean() {
	p.t.Helper()
	for _, fault := range p.faults() {
		p.t.Error(fault)
	}
}

// faults are what Clean finds.
func (p *Page) faults() (faults []string) {
	troubles := p.tab.Troubles()
	for _, trouble := range troubles[p.judged:] {
		if !p.allowed(trouble) {
			faults = append(faults, trouble.String())
		}
	}
	p.judged = len(troubles)
	for host, first := range p.tab.Hosts() {
		if host != p.host {
			faults = append(faults, fmt.Sprintf("another host was asked: %s", first))
		}
	}
	return faults
}

// allowed also leaves out what the browser itself says, which differs with its
// version. What its policy refuses shows all the same: as a request that failed, an
// exception, or as inline code, which Usable finds.
func (p *Page) allowed(trouble chromium.Trouble) bool {
	if trouble.Kind == chromium.Complaint {
		p.t.Logf("Chromium says: %s", trouble)
		return true
	}
	if trouble.Kind != chromium.Answer {
		return false
	}
	for _, status := range p.expected {
		if trouble.Status == status {
			return true
		}
	}
	return false
}
