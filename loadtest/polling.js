// Vendors that poll: an order may be read once in 10 s, whatever else the account
// may read. Whoever keeps to that is never refused. Whoever reads it earlier gets
// 429 with a message that points to webhooks. Such a read takes nothing from the
// account's quota, and does not delay the moment from which the order may be read.
import { sleep } from 'k6';
import exec from 'k6/execution';
import { level, plan } from './lib/levels.js';
import { Rate } from './lib/metrics.js';
import { dice, draw } from './lib/orders.js';
import { accounts, expect, open, vendor } from './lib/vendor.js';

const gap = 10; // seconds between two reads of one order (spec, "Limits")

// Rates of which 1 is good.
const polite = new Rate('polite_poll_answered');
const early = new Rate('early_poll_refused');
const untouched = new Rate('account_quota_untouched');

const alone = accounts().length < 2;

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Polling vendors',
  proves: 'An order may be read once in 10 s and not more often; a read that comes early costs nothing but its answer.',
  cannot: 'It reads few orders, many at the same moment: how quick reads are is measured by steady.js.',
  needs: { accounts: 4 },
  levels: [
    // One read per order in 10 s: not one less, not one more.
    level('polite_poll_answered', 'rate==1', 'whoever reads an order once in 10 s is never refused'),
    level('early_poll_refused', 'rate==1', 'whoever reads it earlier is always refused'),
    // Rule 1 of the spec's limits: the order's limit is its own.
    level('account_quota_untouched', 'rate==1', "an early read takes nothing from the account's quota"),
  ],
  scenarios: {
    quota: { executor: 'per-vu-iterations', exec: 'quota', vus: 1, iterations: 1, maxDuration: '1m' },
    pollers: {
      executor: 'per-vu-iterations', exec: 'poller', vus: 45, iterations: 1, maxDuration: '2m',
      startTime: alone ? '15s' : '0s', // the first one counts the account's reads
    },
  },
});

export function setup() {
  return open(1);
}

// newOrder creates an order and returns {id, politeRead}; politeRead() waits until the order may be read,
// reads it and returns the answer. It returns undefined if the order was not accepted.
function newOrder(v, data, name, note, end) {
  const order = draw(dice(name.length), data.stores[0], `${data.run}-polling-${name}`, note);
  const a = v.create(order, end);
  const isAccepted = expect(a, 'an order is accepted', (r) => r.status === 201);
  if (!isAccepted) return undefined;

  let last = 0; // when the last read that was admitted was answered, in ms since 1970
  return {
    id: a.data.orderId,
    // The gap is measured from the answer, because a vendor does not know when the service counted
    // the request.
    politeRead: () => {
      sleep(Math.max(0, last / 1000 + gap * 1.001 - Date.now() / 1000));
      const r = v.read(a.data.orderId);
      polite.add(r.ok);
      if (r.status !== 429) last = r.answered;
      expect(r, 'a read has status and history', (x) => x.ok && x.data.events.length > 0
        && x.data.events[x.data.events.length - 1].status === x.data.status);
      return r;
    },
  };
}

// earlyRead reads an order that has been read less than 10 s ago, and returns the answer.
function earlyRead(v, id) {
  const r = v.read(id);
  early.add(r.status === 429);
  expect(r, 'an early read is sent to the webhooks', (x) => x.status === 429 && x.code === 'RATE_LIMITED'
    && /webhook/i.test(x.envelope.message) && x.retryAfter <= gap && x.limit === 1);
  return r;
}

// quota reads the orders B, A, five times A too early, and C. The account's Remaining falls by one for
// each of the three, and not for the five.
export function quota(data) {
  const v = vendor(data, 0);
  const orders = ['A', 'B', 'C'].map((name) => newOrder(v, data, `quota-${name}`, 'SIM:HOLD=Assigned', 'Cancelled'));
  if (!orders.every(Boolean)) return;

  const [a, b, c] = orders;
  const before = b.politeRead().remaining;
  a.politeRead();
  let wait = 0;
  for (let i = 0; i < 5; i++) wait = earlyRead(v, a.id).retryAfter;
  const after = c.politeRead().remaining;
  untouched.add(after >= before - 2); // larger only if older reads have left the minute
  sleep(wait || 0); // there is none if the early reads were not refused
  const r = v.read(a.id);
  polite.add(r.ok);
  expect(r, 'after Retry-After the order can be read', (x) => x.ok);
  for (const order of orders) expect(v.cancel(order.id), 'an order is cancelled before pickup', (x) => x.ok);
}

const ranks = ['Searching', 'Assigned', 'PickingUp', 'PickedUp', 'Delivering', 'Delivered'];

// poller reads an order three times, or until it is delivered. Every second poller reads it once too early.
// Every third order is held before its pickup, and cancelled in the end.
export function poller(data) {
  const turn = exec.scenario.iterationInTest;
  const v = vendor(data, alone ? 0 : 1 + (turn % (data.accounts.length - 1)));
  sleep((turn % 15) / 5);
  const held = turn % 3 === 0;
  const order = newOrder(v, data, `poller-${turn}`, held && 'SIM:HOLD=PickingUp', held ? 'Cancelled' : 'Delivered');
  if (!order) return;

  let rank = 0;
  for (let i = 0; i < 3; i++) {
    const r = order.politeRead();
    expect(r, 'an order never goes back', (x) => ranks.indexOf(x.data.status) >= rank);
    rank = ranks.indexOf(r.data.status);
    const readsEarly = turn % 2 === 1 && i === 0;
    if (readsEarly) {
      sleep(gap / 2);
      earlyRead(v, order.id);
    }
    if (r.data.status === 'Delivered') return;
  }
  if (held) expect(v.cancel(order.id), 'an order is cancelled before pickup', (x) => x.ok);
}
