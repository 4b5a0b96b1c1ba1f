// Renews the page: every few seconds while somebody looks at it, less often
// while it fails, and no longer once the order has ended.
'use strict';
(() => {
  const often = 5000, seldom = 60000, timeout = 10000;
  const live = document.getElementById('live');
  const said = document.getElementById('said');
  const lost = document.getElementById('lost');
  const url = live.dataset.live;
  let wait = often, timer = 0, asking = false;

  const state = () => live.querySelector('.state');
  const over = () => state().hasAttribute('data-ended');

  function later(milliseconds) {
    clearTimeout(timer);
    if (!document.hidden && !over()) {
      // Pages that lost the connection together do not come back together.
      timer = setTimeout(look, milliseconds * (0.9 + 0.2 * Math.random()));
    }
  }

  function show(text) {
    const next = new DOMParser().parseFromString(text, 'text/html').querySelector('.state');
    if (!next) throw new Error('not one of our pages');
    const before = state();
    before.replaceWith(document.adoptNode(next));
    document.title = next.dataset.title;
    if (next.dataset.said !== before.dataset.said) said.textContent = next.dataset.said;
  }

  async function ask() {
    const stop = new AbortController();
    const alarm = setTimeout(() => stop.abort(), timeout);
    try {
      const answer = await fetch(url, {cache: 'no-store', credentials: 'omit', signal: stop.signal});
      if (answer.status !== 200 && answer.status !== 404) {
        return 1000 * (Number(answer.headers.get('Retry-After')) || 1);
      }
      show(await answer.text());
      return 0;
    } catch {
      return 1;
    } finally {
      clearTimeout(alarm);
    }
  }

  // look asks once; whatever comes of it, it asks again later.
  async function look() {
    if (asking || over()) return;
    asking = true;
    const failed = await ask();
    asking = false;
    lost.hidden = !failed;
    wait = failed ? Math.min(Math.max(2 * wait, failed), seldom) : often;
    later(wait);
  }

  if (live.dataset.again) {
    // There was no order to show, and that may be over soon.
    setTimeout(() => location.reload(), 1000 * live.dataset.again);
    return;
  }
  document.addEventListener('visibilitychange', () => document.hidden ? clearTimeout(timer) : look());
  window.addEventListener('online', look);
  window.addEventListener('pageshow', (e) => { if (e.persisted) look(); });
  later(often);
})();
