//go:build long

package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"vendorapi/loadtest/chromium"
)

// axe holds the rules of accessibility (WCAG 2.2, levels A and AA, and good
// practice); see axe/README.md.
//
//go:embed axe/axe.min.js
var axe string

// phone is the narrowest screen that pages are made for, in CSS pixels.
const phone = 390

// Usable fails unless everybody can use the page as it is now: with a screen
// reader and a keyboard, on a phone, with a light and a dark screen.
func (p *Page) Usable() {
	p.t.Helper()
	where := p.Location()
	for _, fault := range p.unusable() {
		p.t.Errorf("%s: %s", where, fault)
	}
}

// unusable are what Usable finds.
func (p *Page) unusable() (faults []string) {
	p.t.Helper()
	faults = append(faults, p.rules("")...)
	faults = append(faults, p.structure()...)
	faults = append(faults, p.overflow(1280)...)
	faults = append(faults, p.amounts()...)
	faults = append(faults, p.cut()...)
	p.Dark(true)
	for _, fault := range p.rules("color-contrast") {
		faults = append(faults, "dark: "+fault)
	}
	p.Dark(false)
	p.Width(phone)
	faults = append(faults, p.overflow(phone)...)
	faults = append(faults, p.amounts()...)
	faults = append(faults, p.cut()...)
	for _, fault := range p.rules("") {
		faults = append(faults, "on a phone: "+fault)
	}
	p.Width(1280)
	return append(faults, p.keyboard()...)
}

// rules runs axe, all rules or one, and names what violates them.
func (p *Page) rules(only string) (faults []string) {
	p.t.Helper()
	// The library is brought in past the page's policy, which binds pages only. It
	// cannot compute contrasts on a gradient, such as that of a table's edge.
	if !Eval[bool](p, "'axe' in window") {
		Eval[chromium.Nothing](p, axe+"\nundefined")
		Eval[chromium.Nothing](p, `const plain = new CSSStyleSheet(); plain.replaceSync('.table-box { background: none !important; }'); document.adoptedStyleSheets = [plain]; undefined`)
	}
	options := `{resultTypes: ['violations'], runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}}`
	if only != "" {
		options = `{resultTypes: ['violations'], runOnly: {type: 'rule', values: [` + quoted(only) + `]}}`
	}
	found := Eval[[]string](p, `axe.run(document, `+options+`).then(result => result.violations.flatMap(v =>
		v.nodes.map(n => v.id + ': ' + v.help + ': ' + n.html.slice(0, 200) +
			(n.any[0]?.data?.contrastRatio ? ' ' + n.any[0].data.contrastRatio + ':1 ' + n.any[0].data.fgColor + ' on ' + n.any[0].data.bgColor : ''))))`)
	return found
}

// structure are faults that axe leaves to people: labels that are placeholders
// only, ids that are there twice, tables whose headings have no scope.
func (p *Page) structure() []string {
	p.t.Helper()
	return Eval[[]string](p, `(() => {
		const faults = [], say = (what, e) => faults.push(what + ': ' + (e?.outerHTML ?? '').slice(0, 200));
		const all = css => [...document.querySelectorAll(css)];
		if (!document.documentElement.lang) say('the page has no language');
		if (!document.title.trim()) say('the page has no title');
		if (!document.querySelector('meta[name=viewport]')?.content.includes('width=device-width')) say('a phone would shrink the page');
		if (all('h1').length !== 1) say(all('h1').length + ' headings of the first rank');
		const seen = new Set();
		for (const e of all('[id]')) seen.has(e.id) ? say('the id is there twice', e) : seen.add(e.id);
		for (const e of all('input:not([type=hidden]):not([type=submit]):not([type=button]), select, textarea'))
			if (!e.labels?.length && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')) say('has no label', e);
		for (const e of all('th:not([scope])')) say('a heading without scope', e);
		for (const e of all('[tabindex]')) if (e.tabIndex > 0) say('jumps the order of tabs', e);
		// Charts size their canvas by script, which the policy allows.
		for (const e of all('[style]:not(canvas), style, script:not([src])')) say('inline style or script', e);
		for (const e of document.querySelectorAll('*')) for (const a of e.attributes) if (a.name.startsWith('on')) say('inline handler', e);
		let rank = 0;
		for (const e of all('h1, h2, h3, h4, h5, h6')) {
			const r = Number(e.localName[1]);
			if (r > rank + 1) say('a heading skips a rank', e);
			rank = r;
		}
		return faults;
	})()`)
}

// overflow tells what is wider than the screen; tables may scroll within a box of
// their own. Charts follow a new width a moment later, so it looks for a while.
func (p *Page) overflow(width int) []string {
	p.t.Helper()
	return Eval[[]string](p, fmt.Sprintf(`(async () => {
		const page = document.scrollingElement, width = %d;
		for (let i = 0; i < 40 && page.scrollWidth > width; i++) await new Promise(done => setTimeout(done, 50));
		if (page.scrollWidth <= width) return [];
		const scrolls = e => e && e !== page && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
		const wide = [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > width + 1 && !scrolls(e.parentElement)).slice(0, 3);
		return ['is ' + page.scrollWidth + ' pixels wide on a screen of ' + width + ': ' + wide.map(e => e.outerHTML.slice(0, 120)).join(' … ')];
	})()`, width))
}

// amounts tells which figures are not to be seen without scrolling to the side: a
// table may scroll, but amounts (class money) and what sums them up come first in
// it, and none is cut off in its own cell.
func (p *Page) amounts() []string {
	p.t.Helper()
	return Eval[[]string](p, `(() => {
		const faults = [], say = (what, e) => faults.push(innerWidth + ' pixels: ' + what + ': ' + e.textContent.trim().slice(0, 60) + ' in ' + e.outerHTML.slice(0, 120));
		for (const box of document.querySelectorAll('.table-box')) box.scrollLeft = 0;
		for (const e of document.querySelectorAll('main .money')) {
			const seen = e.getBoundingClientRect();
			if (!seen.width || !e.textContent.trim()) continue; // closed, or without an amount
			const box = e.closest('.table-box')?.getBoundingClientRect() ?? {left: 0, right: innerWidth};
			if (seen.left < Math.max(box.left, 0) - 1 || seen.right > Math.min(box.right, innerWidth) + 1) say('an amount is beyond the edge', e);
			else if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') say('an amount is cut off', e);
		}
		for (const table of document.querySelectorAll('table.report'))
			if (table.querySelector('.money') && !table.querySelector('.sums .money') && table.dataset.sums !== 'none') say('a table of amounts without its totals', table);
		return faults.slice(0, 6);
	})()`)
}

// cut tells what is hidden beyond an edge or broken within a word: lists fit the
// screen, whatever names hold (charts' figures and reports may scroll), tabs show
// all of their names, and words of up to keptWhole letters stay whole.
func (p *Page) cut() []string {
	p.t.Helper()
	return Eval[[]string](p, fmt.Sprintf(`(() => {
		const faults = [], say = (what, e) => faults.push(innerWidth + ' pixels: ' + what + ': ' + e.textContent.trim().slice(0, 60) + ' in ' + e.outerHTML.slice(0, 120));
		for (const box of document.querySelectorAll('.table-box:not(:has(.report)):not(.chart .table-box)'))
			if (box.scrollWidth > box.clientWidth + 1) say('a list of ' + box.scrollWidth + ' pixels in ' + box.clientWidth, box);
		for (const tabs of document.querySelectorAll('.tabs'))
			if (tabs.scrollWidth > tabs.clientWidth + 1) say('tabs are cut off', tabs);
		const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
		for (let text = texts.nextNode(); text; text = texts.nextNode()) {
			if (!text.parentElement.closest('td, th, dd, .tabs') || text.parentElement.closest('pre, .unseen, .report')) continue;
			for (const word of text.data.matchAll(/[^\s\-]+/g)) {
				if (!/^[\p{L}\p{N}]{1,%d}$/u.test(word[0])) continue;
				range.setStart(text, word.index);
				range.setEnd(text, word.index + word[0].length);
				if (new Set([...range.getClientRects()].filter(r => r.width).map(r => Math.round(r.top))).size > 1) say('the word ' + word[0] + ' is broken', text.parentElement);
			}
		}
		return faults.slice(0, 6);
	})()`, keptWhole))
}

// keptWhole is how many letters a word has that no page breaks.
const keptWhole = 16

// maxStops bounds the walk through a page with the tab key.
const maxStops = 60

// keyboard walks through the page with the tab key: whatever gets the focus must
// show it, and the walk must go on.
func (p *Page) keyboard() (faults []string) {
	p.t.Helper()
	Eval[chromium.Nothing](p, `document.activeElement?.blur(); window.scrollTo(0, 0); undefined`)
	last := ""
	for range maxStops {
		p.must(p.tab.Press("\t"))
		stop := Eval[struct {
			HTML, Path string
			Shown      bool
		}](p, `(() => {
			const e = document.activeElement;
			if (!e || e === document.body) return {HTML: '', Path: '', Shown: true};
			let path = '';
			for (let n = e; n.parentElement; n = n.parentElement) path += '/' + [...n.parentElement.children].indexOf(n);
			const s = getComputedStyle(e), ring = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0;
			// The browser itself marks the part of a date that has the focus.
			return {HTML: e.outerHTML.slice(0, 200), Path: path, Shown: ring || s.boxShadow !== 'none' || /^date/.test(e.type)};
		})()`)
		if stop.Path == "" {
			return faults // through
		}
		if stop.Path == last && !strings.Contains(stop.HTML, `type="date`) { // a date has three stops
			return append(faults, "the tab key does not leave: "+stop.HTML)
		}
		last = stop.Path
		if !stop.Shown {
			faults = append(faults, "does not show that it has the focus: "+stop.HTML)
		}
	}
	return faults
}

// quoted is text as a JavaScript literal.
func quoted(text string) string {
	literal, err := json.Marshal(text)
	if err != nil {
		panic(err) // text always encodes
	}
	return string(literal)
}
