// Bursts at exactly the limits of POST /orders: 120 in 10 s and 600 in 60 s.
//
// The patient vendor sends all that is allowed at once, gets one refusal, waits
// as long as it says and is admitted. The impatient one keeps asking all the
// time. Seen from outside, nothing within the limits is refused and nothing
// beyond them is accepted; lib/window.js says what can be claimed.
//
// It takes a minute and some seconds; with one account, three minutes, because
// the second vendor waits until the first one's minute is over.
import { Counter, Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { level, plan, shown } from './lib/levels.js';
import { dice, draw } from './lib/orders.js';
import { accounts, expect, open, pause, vendor } from './lib/vendor.js';
import { measure } from './lib/window.js';

// The spec's limits; an account with others needs another script.
const windows = [{ count: 600, seconds: 60 }, { count: 120, seconds: 10 }];
const [minute, burst] = windows;

const wronged = new Counter('within_limits_refused');
const beyond = new Counter('beyond_limits_accepted');
const early = new Counter('retry_after_untrue');
const waits = new Trend('retry_after_seconds');

const alone = accounts().length < 2;

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Bursts at exactly the limits',
  proves: 'A vendor gets all of 120 orders in 10 s and 600 in 60 s, not one more, and is admitted after the wait that a 429 names.',
  levels: [
    // Checked with a client-side exact window: only what is certain counts.
    level('within_limits_refused', 'count==0', 'nothing within the limits is refused'),
    level('beyond_limits_accepted', 'count==0', 'nothing beyond the limits is accepted'),
    level('retry_after_untrue', 'count==0', 'whoever waits for Retry-After is admitted'),
    // Both vendors were refused at least once a burst: the limits were reached.
    level('refused', 'count>=10', 'the limits are reached, and a 429 says so'),
    // A refusal must not cost more than an order.
    level('http_req_duration{name:POST /orders}', 'p(99)<100', 'accepted or refused, 99 of 100 answers take less than 100 ms'),
    shown('retry_after_seconds'),
  ],
  scenarios: {
    patient: { executor: 'per-vu-iterations', exec: 'patient', vus: 1, iterations: 1, maxDuration: '3m' },
    impatient: {
      executor: 'per-vu-iterations', exec: 'impatient', vus: 1, iterations: 1, maxDuration: '2m',
      startTime: alone ? '130s' : '0s',
    },
  },
});

export function setup() {
  return open(1);
}

// One creation. The body is drawn and accepted orders are noted.
function creator(v, data, name) {
  const roll = dice(name.length);
  const log = [];
  const body = () => draw(roll, data.stores[0], `${data.run}-${name}-${log.length}-${Math.floor(roll() * 1e9)}`);
  const settle = (a) => {
    log.push({ sent: a.sent, answered: a.answered, admitted: a.status !== 429 });
    if (a.status !== 429) expect(v.took(a, 'Delivered'), 'an admitted order is accepted', (r) => r.status === 201);
    return a;
  };
  return {
    log,
    now: () => { const o = body(); return settle(v.call('POST', '/orders', 'POST /orders', o, { key: o.externalOrderId })); },
    async: async () => { const o = body(); return settle(await v.callAsync('POST', '/orders', 'POST /orders', o, { key: o.externalOrderId })); },
    measure: () => {
      const found = measure(log, windows);
      wronged.add(found.wronged);
      beyond.add(found.beyond);
      return found;
    },
  };
}

export function patient(data) {
  const v = vendor(data, 0);
  const create = creator(v, data, 'patient');
  if (create.now().remaining !== burst.count - 1) { // the account is in use: let its minute pass
    sleep(minute.seconds + 1);
    create.now();
  }
  for (let used = 1, i = 1; used < minute.count; used++, i++) {
    if (i === burst.count) {
      waitOut(create, burst);
      i = 1;
      used++;
    }
    const a = create.now();
    expect(a, 'Limit and Remaining count every order exactly', (r) => r.status === 201
      && windows.some((w) => r.limit === w.count) && r.remaining === burst.count - 1 - i);
  }
  waitOut(create, minute);
  create.measure();
}

// The window is full: the next order is refused, and the one after the wait is
// admitted: it is the first of the next volley, which goes on when the last of
// this volley has left the window.
function waitOut(create, window) {
  const last = create.log[create.log.length - 1].answered;
  const a = create.now();
  expect(a, 'the first order beyond the limit gets 429 and how long to wait', (r) => r.status === 429
    && r.code === 'RATE_LIMITED' && r.retryAfter <= window.seconds && r.reset <= r.sent / 1000 + window.seconds + 1);
  waits.add(a.retryAfter || 0);
  sleep(Math.max(0, a.retryAfter - (Date.now() - a.answered) / 1000));
  early.add(create.now().status === 429 ? 1 : 0);
  sleep(Math.max(0, last / 1000 + burst.seconds * 1.001 - Date.now() / 1000));
}

// Four clients ask every 40 ms for a minute and two seconds, whatever the
// answer: about every 10 ms one of them learns whether the window has capacity.
export async function impatient(data) {
  const create = creator(vendor(data, 1), data, 'impatient');
  const end = Date.now() + (minute.seconds + 2) * 1000;
  const client = async (n) => {
    await pause(n * 10);
    while (Date.now() < end) {
      await create.async();
      await pause(40);
    }
  };
  await Promise.all([0, 1, 2, 3].map(client));
  const found = create.measure();
  const first = create.log.reduce((least, r) => Math.min(least, r.sent), Infinity);
  const inMinute = create.log.filter((r) => r.admitted && r.answered < first + minute.seconds * 1000).length;
  expect({ status: inMinute, body: JSON.stringify(found) }, 'the first minute admits exactly 600', () => inMinute === minute.count);
}
