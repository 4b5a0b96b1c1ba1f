//go:build long

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"vendorapi/internal/testenv/browser"
	"vendorapi/internal/testenv/testserver"
)

// nothing is the value of an expression that has none.
type nothing = chromedp.Void

// Page is a tab of a test. What fails on it ends the test.
type Page struct {
	*browser.Tab
	t        testing.TB
	expected map[int]bool // statuses that are no fault
}

// startBrowser runs a Chromium that ends with the test.
func startBrowser(t testing.TB) *browser.Browser {
	t.Helper()
	b, err := browser.Launch(context.WithoutCancel(t.Context())) // cleanups still look at pages
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// openPage opens a tab for pages of origin. When the test is over the tab is checked
// (Clean) and closed.
func openPage(t testing.TB, b *browser.Browser, origin string) *Page {
	t.Helper()
	tab, err := b.NewTab(origin)
	if err != nil {
		t.Fatal(err)
	}

	p := &Page{tab, t, map[int]bool{}}
	t.Cleanup(func() {
		p.Clean()
		tab.Close()
	})

	return p
}

// For is the same page whose failures end another test, such as a subtest.
func (p *Page) For(t testing.TB) *Page { return &Page{p.Tab, t, p.expected} }

func (p *Page) must(err error) {
	p.t.Helper()
	if err != nil {
		shown, _ := p.text("body") // the message is only less helpful without it
		p.t.Fatalf("%v\nthe page %s shows:\n%.1500s", err, p.Location(), shown)
	}
}

// Expect allows answers with these statuses from now on: a refusal that the test
// asks for is no fault.
func (p *Page) Expect(statuses ...int) {
	for _, status := range statuses {
		p.expected[status] = true
	}
}

// Visit opens a path and fails unless it is answered with the status.
func (p *Page) Visit(path string, status int) {
	p.t.Helper()
	if status >= 400 {
		p.Expect(status)
	}
	p.must(p.Open(path))
	p.HasStatus(status)
}

// HasStatus fails unless the last document was answered with the status.
func (p *Page) HasStatus(status int) {
	p.t.Helper()
	if got := p.Status(); got != status {
		p.must(fmt.Errorf("answered %d, want %d", got, status))
	}
}

// Location is the page's path with its query.
func (p *Page) Location() string {
	p.t.Helper()
	path, err := browser.Evaluate[string](p.Tab, "location.pathname + location.search")
	if err != nil {
		p.t.Fatal(err)
	}
	return path
}

// eval is the value of a JavaScript expression on the page.
func eval[T any](p *Page, expression string) T {
	p.t.Helper()
	value, err := browser.Evaluate[T](p.Tab, expression)
	p.must(err)
	return value
}

// quoted is text as a JavaScript literal.
func quoted(text string) string {
	literal, _ := json.Marshal(text) // text always encodes
	return string(literal)
}

// text is what a person reads in the first element that matches CSS, without what
// is hidden.
func (p *Page) text(css string) (string, error) {
	return browser.Evaluate[string](p.Tab, "(document.querySelector("+quoted(css)+")?.innerText ?? '')")
}

// Text is what the first element that matches CSS shows; "body" is the page.
func (p *Page) Text(css string) string {
	p.t.Helper()
	text, err := p.text(css)
	p.must(err)
	return text
}

// WaitText waits until the page shows every text.
func (p *Page) WaitText(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.poll(fmt.Sprintf("the page shows %q", text), func() (bool, error) {
			shown, err := p.text("body")
			return strings.Contains(shown, text), err
		})
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
	p.poll(what, func() (bool, error) { return holds(), nil })
}

// poll asks done every 50 ms until it is true; an error counts as not yet, since
// pages are replaced while they are looked at.
func (p *Page) poll(what string, done func() (bool, error)) {
	p.t.Helper()
	for deadline := time.Now().Add(testserver.Timeout); ; time.Sleep(50 * time.Millisecond) {
		ok, err := done()
		if ok && err == nil {
			return
		}
		if p.Context.Err() != nil || time.Now().After(deadline) {
			p.must(fmt.Errorf("waited %v: %s (%v)", testserver.Timeout, what, err))
		}
	}
}

// fields are the roles that Chromium gives to what can be filled in.
var fields = []string{
	"textbox", "searchbox", "combobox", "listbox", "spinbutton", "checkbox", "radio", "slider", "switch",
	"Date", "DateTime", "InputTime", "ColorWell",
}

// find is the one element with an accessible name and role ("": any field) in the
// part of the page that CSS names ("": all of it).
func (p *Page) find(part, role, name string) (runtime.RemoteObjectID, error) {
	if part == "" {
		part = "body"
	}

	root, err := browser.Call(p.Tab, runtime.Evaluate, runtime.EvaluateParams{Expression: "document.querySelector(" + quoted(part) + ")"})
	if err != nil {
		return "", err
	}

	if root.Result == nil || root.Result.ObjectID == "" {
		return "", fmt.Errorf("%s is not on the page", part)
	}

	found, err := browser.Call(p.Tab, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{
		ObjectID: root.Result.ObjectID, Role: role, AccessibleName: name,
	})
	if err != nil {
		return "", err
	}

	nodes := slices.DeleteFunc(found.Nodes, func(n *accessibility.Node) bool {
		return n.Ignored || role == "" && (n.Role == nil || !slices.Contains(fields, strings.Trim(string(n.Role.Value), `"`)))
	})
	if len(nodes) != 1 {
		return "", fmt.Errorf("%s %q is %d times in %s", role, name, len(nodes), part)
	}

	node, err := browser.Call(p.Tab, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: nodes[0].BackendDOMNodeID})
	if err != nil {
		return "", err
	}

	return node.Object.ObjectID, nil
}

// on calls a JavaScript function with the element as this.
func on[T any](p *Page, element runtime.RemoteObjectID, function string, args ...any) (T, error) {
	this := func(params *runtime.CallFunctionOnParams) { params.ObjectID = element }
	return browser.Run(p.Tab, "the element", chromedp.CallFunctionOn[T](function, this, args...))
}

// Has reports whether exactly one element of the role has the accessible name.
func (p *Page) Has(role, name string) bool {
	_, err := p.find("", role, name)
	return err == nil
}

// middle is where a mouse clicks on an element; null: it cannot be seen.
const middle = `function () {
	this.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});
	const box = this.getClientRects()[0];
	return box && [box.x + box.width / 2, box.y + box.height / 2];
}`

// click waits for an element and clicks on its middle, as a mouse does.
func (p *Page) click(part, role, name string) {
	p.t.Helper()
	// A fragment may be replaced between finding and clicking.
	p.poll("click "+role+" "+name, func() (bool, error) {
		element, err := p.find(part, role, name)
		if err != nil {
			return false, err
		}
		at, err := on[[]float64](p, element, middle)
		if err != nil || len(at) != 2 {
			return false, err
		}
		return true, p.Do("click", chromedp.MouseClickXY(at[0], at[1]))
	})
}

// Press presses a button and waits for the page that answers.
func (p *Page) Press(name string) { p.t.Helper(); p.follow("", "button", name) }

// PressIn is Press within the part of the page that CSS names.
func (p *Page) PressIn(part, name string) { p.t.Helper(); p.follow(part, "button", name) }

// Follow clicks on a link and waits for its page.
func (p *Page) Follow(name string) { p.t.Helper(); p.follow("", "link", name) }

func (p *Page) follow(part, role, name string) {
	p.t.Helper()
	p.must(p.Navigate("the page behind "+name, chromedp.Func(func(context.Context, *chromedp.Target) error {
		p.click(part, role, name)
		return nil
	})))
}

// press types keys, such as "\t" or "\r", into what has the focus.
func (p *Page) press(keys string) {
	p.t.Helper()
	p.must(p.Do("press a key", chromedp.KeyEvent(keys)))
}

// fill sets a field. It returns true when the text is still to be typed.
const fill = `function (text) {
	this.focus();
	switch (this.type) {
	case 'checkbox': case 'radio':
		if (this.checked !== (text === 'on')) this.click();
		return false;
	case 'select-one': {
		const option = [...this.options].find(o => o.text.trim() === text || o.value === text);
		if (!option) throw new Error('has no choice ' + text);
		this.value = option.value;
		break;
	}
	case 'date': case 'datetime-local': case 'time': case 'month':
		this.value = text;
		if (this.value !== text) throw new Error('does not take ' + text);
		break;
	default:
		this.select();
		return true;
	}
	this.dispatchEvent(new Event('input', {bubbles: true}));
	this.dispatchEvent(new Event('change', {bubbles: true}));
	return false;
}`

// Fill waits for the field with a label and replaces its content by text. A choice
// is named by its text or value, a tick is "on" or "off".
func (p *Page) Fill(label, text string) {
	p.t.Helper()
	var element runtime.RemoteObjectID
	p.poll("the field "+label, func() (ok bool, err error) {
		element, err = p.find("", "", label)
		return err == nil, err
	})

	typed, err := on[bool](p, element, fill, text)
	if err != nil {
		p.must(fmt.Errorf("fill in %s: %w", label, err))
	}

	switch {
	case typed && text == "":
		p.press("\b")
	case typed:
		_, err = browser.Call(p.Tab, input.InsertText, input.InsertTextParams{Text: text})
		p.must(err)
	}
}

// Download clicks on a link and returns the path of the file that came.
func (p *Page) Download(link string) string {
	p.t.Helper()
	dir, events := p.t.TempDir(), true
	_, err := chromedp.CallBrowser(p.Context, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, EventsEnabled: &events,
		BrowserContextID: chromedp.FromContext(p.Context).BrowserContextID,
	})

	p.must(err)
	ctx, cancel := context.WithTimeout(p.Context, testserver.Timeout)
	defer cancel()
	progress := chromedp.BrowserEvents(ctx, cdpbrowser.DownloadProgress)
	p.click("", "link", link)
	for e, err := range progress {
		p.must(err)
		if e.State == cdpbrowser.DownloadProgressStateInProgress {
			continue
		}

		files, err := os.ReadDir(dir)
		if err != nil || e.State != cdpbrowser.DownloadProgressStateCompleted || len(files) != 1 {
			p.must(fmt.Errorf("download %s: %s, %d files: %v", link, e.State, len(files), err))
		}
		return filepath.Join(dir, files[0].Name())
	}

	p.must(fmt.Errorf("download %s: the browser has gone", link))

	return ""
}

// Width sets the width of the screen in CSS pixels.
func (p *Page) Width(pixels int) { p.t.Helper(); p.must(p.Viewport(pixels, 900)) }

// Language is the browser's from now on, such as "tr".
func (p *Page) Language(tag string) {
	p.t.Helper()
	_, err := browser.Call(p.Tab, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": tag}})
	p.must(err)
}

// Clean fails for every fault of this tab since the last check. What the browser
// itself says is only logged: what its policy refuses shows all the same, as a
// request that failed, an exception, or as inline code, which Usable finds.
func (p *Page) Clean() {
	p.t.Helper()
	for _, fault := range p.Faults() {
		switch {
		case fault.Native:
			p.t.Log(fault.Text)
		case !p.expected[fault.Status]:
			p.t.Error(fault.Text)
		}
	}
}
