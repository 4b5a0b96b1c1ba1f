// Checks of the page that is shown. Each returns its faults as texts.
(() => {
  const all = (css) => [...document.querySelectorAll(css)];
  const start = (e, length) => (e?.outerHTML ?? '').slice(0, length);

  return {
    // What axe leaves to people: labels that are placeholders only, ids that are
    // there twice, tables whose headings have no scope.
    structure() {
      const faults = [];
      const fault = (what, e) => faults.push(`${what}: ${start(e, 200)}`);
      if (!document.documentElement.lang) fault('the page has no language');
      if (!document.title.trim()) fault('the page has no title');
      if (!document.querySelector('meta[name=viewport]')?.content.includes('width=device-width')) fault('a phone would shrink the page');
      if (all('h1').length !== 1) fault(`${all('h1').length} headings of the first rank`);
      const seen = new Set();
      for (const e of all('[id]')) seen.has(e.id) ? fault('the id is there twice', e) : seen.add(e.id);
      for (const e of all('input:not([type=hidden]):not([type=submit]):not([type=button]), select, textarea')) {
        if (!e.labels?.length && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')) fault('has no label', e);
      }
      for (const e of all('th:not([scope])')) fault('a heading without scope', e);
      for (const e of all('[tabindex]')) if (e.tabIndex > 0) fault('jumps the order of tabs', e);
      // Charts size their canvas by script, which the policy allows.
      for (const e of all('[style]:not(canvas), style, script:not([src])')) fault('inline style or script', e);
      for (const e of all('*')) for (const a of e.attributes) if (a.name.startsWith('on')) fault('inline handler', e);
      let rank = 0;
      for (const e of all('h1, h2, h3, h4, h5, h6')) {
        const r = Number(e.localName[1]);
        if (r > rank + 1) fault('a heading skips a rank', e);
        rank = r;
      }
      return faults;
    },

    // What is wider than the screen; tables may scroll within a box of their own.
    // Charts follow a new width a moment later, so it looks for a while.
    async overflow() {
      const page = document.scrollingElement;
      for (let i = 0; i < 40 && page.scrollWidth > innerWidth; i++) await new Promise((done) => setTimeout(done, 50));
      if (page.scrollWidth <= innerWidth) return [];
      const scrolls = (e) => e && e !== page && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
      const wide = all('body *').filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e.parentElement)).slice(0, 3);
      return [`is ${page.scrollWidth} pixels wide on a screen of ${innerWidth}: ${wide.map((e) => start(e, 120)).join(' … ')}`];
    },

    // Figures that are not to be seen without scrolling to the side: a table may
    // scroll, but amounts (class money) and what sums them up come first in it,
    // and none is cut off in its own cell.
    amounts() {
      const faults = [];
      const fault = (what, e) => faults.push(`${innerWidth} pixels: ${what}: ${e.textContent.trim().slice(0, 60)} in ${start(e, 120)}`);
      for (const box of all('.table-box')) box.scrollLeft = 0;
      for (const e of all('main .money')) {
        const seen = e.getBoundingClientRect();
        if (!seen.width || !e.textContent.trim()) continue; // closed, or without an amount
        const box = e.closest('.table-box')?.getBoundingClientRect() ?? { left: 0, right: innerWidth };
        if (seen.left < Math.max(box.left, 0) - 1 || seen.right > Math.min(box.right, innerWidth) + 1) fault('an amount is beyond the edge', e);
        else if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') fault('an amount is cut off', e);
      }
      for (const table of all('table.report')) {
        if (table.querySelector('.money') && !table.querySelector('.sums .money') && table.dataset.sums !== 'none') fault('a table of amounts without its totals', table);
      }
      return faults.slice(0, 6);
    },

    // What is hidden beyond an edge or broken within a word: lists fit the screen,
    // whatever names hold (charts' figures and reports may scroll), tabs show all of
    // their names, and words of up to 16 letters stay whole.
    cut() {
      const faults = [];
      const fault = (what, e) => faults.push(`${innerWidth} pixels: ${what}: ${e.textContent.trim().slice(0, 60)} in ${start(e, 120)}`);
      for (const box of all('.table-box:not(:has(.report)):not(.chart .table-box)')) {
        if (box.scrollWidth > box.clientWidth + 1) fault(`a list of ${box.scrollWidth} pixels in ${box.clientWidth}`, box);
      }
      for (const tabs of all('.tabs')) if (tabs.scrollWidth > tabs.clientWidth + 1) fault('tabs are cut off', tabs);
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      const range = document.createRange();
      for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        if (!text.parentElement.closest('td, th, dd, .tabs') || text.parentElement.closest('pre, .unseen, .report')) continue;
        for (const word of text.data.matchAll(/[^\s\-]+/g)) {
          if (!/^[\p{L}\p{N}]{1,16}$/u.test(word[0])) continue;
          range.setStart(text, word.index);
          range.setEnd(text, word.index + word[0].length);
          const lines = new Set([...range.getClientRects()].filter((r) => r.width).map((r) => Math.round(r.top)));
          if (lines.size > 1) fault(`the word ${word[0]} is broken`, text.parentElement);
        }
      }
      return faults.slice(0, 6);
    },

    // What axe finds, with all rules or one.
    async rules(only) {
      const runOnly = only ? { type: 'rule', values: [only] }
        : { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] };
      const { violations } = await axe.run(document, { resultTypes: ['violations'], runOnly });
      return violations.flatMap((v) => v.nodes.map((n) => {
        const contrast = n.any[0]?.data?.contrastRatio ? ` ${n.any[0].data.contrastRatio}:1 ${n.any[0].data.fgColor} on ${n.any[0].data.bgColor}` : '';
        return `${v.id}: ${v.help}: ${n.html.slice(0, 200)}${contrast}`;
      }));
    },

    // The element that has the focus, with its place on the page, and whether it
    // shows that; null: the page itself.
    focus() {
      const e = document.activeElement;
      if (!e || e === document.body) return null;
      let path = '';
      for (let n = e; n.parentElement; n = n.parentElement) path += `/${[...n.parentElement.children].indexOf(n)}`;
      const s = getComputedStyle(e);
      // The browser itself marks the part of a date that has the focus.
      const date = /^date/.test(e.type);
      const shown = date || s.boxShadow !== 'none' || (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0);
      return { html: start(e, 200), path, shown, date };
    },
  };
})()
