//go:build long

package systemtest

import (
	_ "embed"
	"strings"

	"vendorapi/internal/testenv/browser"
)

// axe holds the rules of accessibility (WCAG 2.2, levels A and AA, and good
// practice); see axe/README.md.
//
//go:embed axe/axe.min.js
var axe string

//go:embed usable.js
var usable string

// check evaluates a call of a function of usable.js. It begins again when the page
// is replaced meanwhile, as those do that wait for a service.
func check[T any](p *Page, function string) (value T) {
	p.t.Helper()
	p.poll(function, func() (ok bool, err error) {
		err = p.bringAxe()
		if err == nil {
			value, err = browser.Evaluate[T](p.Tab, strings.TrimSpace(usable)+"."+function)
		}
		return err == nil, err
	})
	return value
}

// bringAxe loads axe past the page's policy, which binds pages only.
func (p *Page) bringAxe() error {
	there, err := browser.Evaluate[bool](p.Tab, "'axe' in window")
	if there || err != nil {
		return err
	}

	// It cannot compute contrasts on a gradient, such as that of a table's edge.
	_, err = browser.Evaluate[nothing](p.Tab, axe+`
		const plain = new CSSStyleSheet();
		plain.replaceSync('.table-box { background: none !important; }');
		document.adoptedStyleSheets = [plain];`)

	return err
}

// Usable fails unless everybody can use the page as it is now: with a screen
// reader and a keyboard, on a phone, with a light and a dark screen.
func (p *Page) Usable() {
	p.t.Helper()
	var faults []string
	collect := func(where string, functions ...string) {
		for _, function := range functions {
			for _, fault := range check[[]string](p, function) {
				faults = append(faults, where+fault)
			}
		}
	}

	collect("", "rules()", "structure()", "overflow()", "amounts()", "cut()")
	p.must(p.SetScheme("dark"))
	collect("dark: ", "rules('color-contrast')")
	p.must(p.SetScheme("light"))
	p.Width(390) // the narrowest screen that pages are made for
	collect("on a phone: ", "overflow()", "amounts()", "cut()", "rules()")
	p.Width(1280)
	for _, fault := range append(faults, p.keyboard()...) {
		p.t.Errorf("%s: %s", p.Location(), fault)
	}
}

// keyboard walks through the page with the tab key: whatever gets the focus must
// show it, and the walk must go on.
func (p *Page) keyboard() (faults []string) {
	p.t.Helper()
	eval[nothing](p, `document.activeElement?.blur(); window.scrollTo(0, 0); undefined`)
	last := ""
	for range 60 {
		p.press("\t")
		focus := check[*struct {
			HTML, Path  string
			Shown, Date bool
		}](p, "focus()")
		if focus == nil {
			return faults // through
		}
		if focus.Path == last && !focus.Date { // a date has three stops
			return append(faults, "the tab key does not leave: "+focus.HTML)
		}

		last = focus.Path
		if !focus.Shown {
			faults = append(faults, "does not show that it has the focus: "+focus.HTML)
		}
	}

	return faults
}
