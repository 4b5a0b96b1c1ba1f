// Bursts at exactly the limits of POST /orders: 120 in 10 s and 600 in 60 s.
//
// The patient vendor sends all that is allowed at once, is refused once, waits
// as long as the answer says and is admitted. The impatient vendor never waits.
// Seen from outside, nothing within the limits is refused and nothing beyond
// them is accepted; lib/window.js says what is certain.
//
// It takes a minute and some seconds, and with one account three minutes, because the second vendor
// waits until the first one's minute is over.
//
// Orders of the minute before the script count, too, and a vendor cannot see how many there were. So
// the script waits a minute first, unless the accounts are fresh (FRESH=yes).
import { Trend } from 'k6/metrics';
import { sleep } from 'k6';
import exec from 'k6/execution';
import { level, plan, quick, shown } from './lib/levels.js';
import { Rate } from './lib/metrics.js';
import { dice, draw } from './lib/orders.js';
import { fresh } from './lib/settings.js';
import { accounts, expect, open, pause, vendor } from './lib/vendor.js';
import { measure } from './lib/window.js';

// The spec's limits; an account with others needs another script.
const windows = [{ count: 600, seconds: 60 }, { count: 120, seconds: 10 }];
const [minute, burst] = windows;

// Rates of which 1 is good; each account adds one sample for each limit or wait that it tried.
const within = new Rate('within_limits_admitted');
const beyond = new Rate('beyond_limits_refused');
const truthful = new Rate('retry_after_true');
const waits = new Trend('retry_after_seconds');

const alone = accounts().length < 2;
const untilForgotten = fresh ? 0 : minute.seconds + 1; // seconds until earlier orders no longer count

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Bursts at exactly the limits',
  proves: 'A vendor gets all of 120 orders in 10 s and 600 in 60 s, not one more, and is admitted after the wait that a 429 names.',
  cannot: 'It looks at one or two accounts; make loadtest counts the limits of all accounts of every script.',
  needs: { accounts: 2 },
  levels: [
    // Checked with a client-side exact window: only what is certain counts.
    level('within_limits_admitted', 'rate==1', 'nothing within the limits is refused'),
    level('beyond_limits_refused', 'rate==1', 'nothing beyond the limits is accepted'),
    level('retry_after_true', 'rate==1', 'whoever waits for Retry-After is admitted'),
    // Both vendors were refused at least once a burst: the limits were reached.
    level('refused', 'count>=10', 'the limits are reached, and a 429 says so'),
    quick('POST /orders', 99, 100, { status: 201 }),
    // A refusal must not cost more than an order.
    quick('POST /orders', 99, 100, { status: 429, what: 'a refused POST /orders' }),
    shown('retry_after_seconds'),
  ],
  scenarios: {
    patient: { executor: 'per-vu-iterations', exec: 'patient', vus: 1, iterations: 1, maxDuration: '5m' },
    impatient: {
      executor: 'per-vu-iterations', exec: 'impatient', vus: 1, iterations: 1, maxDuration: '4m',
      startTime: alone ? `${130 + untilForgotten}s` : '0s',
    },
  },
});

export function setup() {
  return open(1);
}

// forgetEarlierOrders waits until the account's orders of before the script no longer count. If both
// vendors use one account, the second begins so late that the first one's orders no longer count.
function forgetEarlierOrders() {
  sleep(untilForgotten);
}

// creator returns what a vendor creates orders with: now() and async() send one each and return its
// answer, log has them all as lib/window.js needs them, and measure() adds to the rates what the log
// shows.
function creator(v, data, name) {
  const roll = dice(name.length);
  const log = [];
  const callOfNewOrder = () => {
    const order = draw(roll, data.stores[0], `${data.run}-${name}-${log.length}-${Math.floor(roll() * 1e9)}`);
    return ['POST', '/orders', 'POST /orders', order, { key: order.externalOrderId }];
  };
  const settle = (a) => {
    log.push({ sent: a.sent, answered: a.answered, admitted: a.isOutage ? null : a.status !== 429 });
    if (a.status !== 429) expect(v.took(a, 'Delivered'), 'an admitted order is accepted', (r) => r.status === 201);
    return a;
  };

  return {
    log,
    now: () => settle(v.call(...callOfNewOrder())),
    async: async () => settle(await v.callAsync(...callOfNewOrder())),
    measure: () => {
      const found = measure(log, windows);
      within.add(found.wronged === 0);
      beyond.add(found.beyond === 0);
      return found;
    },
  };
}

// patient sends volleys of as many orders as the burst allows, until the minute is full.
export function patient(data) {
  forgetEarlierOrders();
  const v = vendor(data, 0);
  const create = creator(v, data, 'patient');
  requireContractLimits(create.now());

  const volleys = minute.count / burst.count;
  for (let volley = 1; volley <= volleys; volley++) {
    for (let i = 1; i < burst.count; i++) { // after the first one, which is admitted already
      const a = create.now();
      expect(a, 'Limit and Remaining count every order exactly', (r) => r.status === 201
        && windows.some((w) => r.limit === w.count) && r.remaining === burst.count - 1 - i);
    }
    waitOut(create, volley < volleys ? burst : minute);
  }
  create.measure();
}

// requireContractLimits aborts the test if the account's limits are not those of the contract, which this
// script tests. `first` is the answer to the first order.
function requireContractLimits(first) {
  const isContract = windows.some((w) => w.count === first.limit);
  if (first.status === 201 && !isContract) {
    exec.test.abort(`the account's limit is ${first.limit} orders, and this tests those of the contract, 120 in 10 s and 600 in 60 s: `
      + 'use another account, or give this one its limits back (go run ./loadtest/k6 accounts -restore)');
  }
}

// waitOut expects that the window is full. It sends an order, which is refused, waits as long as the
// answer says, and sends one that is admitted: the first of the next volley. Then it waits until the last
// order of this volley has left the burst's window.
function waitOut(create, window) {
  const last = create.log[create.log.length - 1].answered;
  const a = create.now();
  expect(a, 'the first order beyond the limit gets 429 and how long to wait', (r) => r.status === 429
    && r.code === 'RATE_LIMITED' && r.retryAfter <= window.seconds && r.reset <= r.sent / 1000 + window.seconds + 1);
  const wait = a.retryAfter || 0; // there is none if the expectation above broke
  waits.add(wait);
  sleep(Math.max(0, wait - (Date.now() - a.answered) / 1000));
  truthful.add(create.now().status === 201);
  sleep(Math.max(0, last / 1000 + burst.seconds * 1.001 - Date.now() / 1000));
}

// impatient sends an order from each of four clients 40 ms after the answer to the one before, for a minute
// and two seconds, whatever the answers are. So about every 10 ms an answer shows whether the window has room.
export async function impatient(data) {
  if (!alone) forgetEarlierOrders();
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
