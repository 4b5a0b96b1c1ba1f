// A restaurant's day, with lunch and dinner, in a minute or in as long as
// DURATION says. The load follows the peaks, and what happens on such a day
// happens: orders are cancelled, fail at the door, are sent again by a till that
// lost the answer, or break a rule; branches change their data; a vendor polls.
import exec from 'k6/execution';
import { Counter } from 'k6/metrics';
import { sleep } from 'k6';
import { level, plan, quick } from './lib/levels.js';
import { requireLimit } from './lib/limits.js';
import { Rate } from './lib/metrics.js';
import { apply, branch, dice, draw, failures, invalid, pick } from './lib/orders.js';
import { accounts, expect, open, seconds, vendor } from './lib/vendor.js';

const length = seconds(__ENV.DURATION || '1m');
const vendors = accounts().length;
const peak = 7 * vendors; // orders a second; some are sent more than once

const identical = new Rate('replays_identical');
const invalids = new Counter('invalid_orders');

// Parts of the day: [part of the whole time, rate at its end as a part of the peak].
const day = [[0.12, 0.15], [0.13, 0.8], [0.13, 0.8], [0.1, 0.25], [0.12, 0.2], [0.12, 1], [0.16, 1], [0.12, 0.1]];

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'A restaurant evening',
  proves: 'Through lunch and dinner peaks with cancellations, failures, repetitions, wrong bodies and polls, every answer is the right one.',
  cannot: 'A minute has no night: what a day leaves behind, in memory and on disk, is not seen (soak.js).',
  needs: { accounts: 4 },
  levels: [
    // The peaks stay within what the spec allows.
    level('admitted', 'rate==1', 'a vendor within its limits is never refused'),
    // Idempotency: the same key and body get the same bytes, marked as replayed.
    level('replays_identical', 'rate==1', 'orders are repeated, and get the bytes of their first answer'),
    level('invalid_orders', 'count>0', 'orders that break a rule are sent'),
    // There are few of each, so a single slow fsync would decide p99.
    quick('POST /orders', 95, 50, { status: 201 }),
    quick('POST /orders/{id}/cancel', 95, 50),
    quick('GET /orders/{id}', 95, 50),
    quick('PUT /stores/{id}', 95, 50),
  ],
  scenarios: {
    tills: {
      executor: 'ramping-arrival-rate', exec: 'till', startRate: 1, timeUnit: '1s',
      stages: day.map(([share, load]) => ({ duration: `${Math.round(length * share)}s`, target: Math.max(1, Math.round(peak * load)) })),
      preAllocatedVUs: 25 * vendors, maxVUs: 75 * vendors, gracefulStop: '30s',
    },
    office: {
      executor: 'constant-arrival-rate', exec: 'office', rate: 1, timeUnit: '2s', duration: `${Math.round(length)}s`,
      preAllocatedVUs: 2, maxVUs: 4, gracefulStop: '30s',
    },
  },
});

export function setup() {
  const data = open(3);
  requireLimit(data, (peak / vendors) * 10);
  return data;
}

// What may happen to an order, as [how many of 100 orders, the function that does it].
const kinds = [
  [64, delivered], [8, failing], [9, cancelled], [6, repeated], [3, mistaken], [6, broken], [2, notifiedTwice], [2, polled],
];

export function till(data) {
  const turn = exec.scenario.iterationInTest;
  const roll = dice(turn);
  const v = vendor(data, turn);
  const order = (note) => draw(roll, pick(roll, data.stores), `${data.run}-evening-${turn}`, note);
  kindFor(roll() * 100)(v, order, roll);
}

// kindFor returns one of the kinds for a random number from 0 to 100.
function kindFor(number) {
  let sum = 0;
  for (const [share, kind] of kinds) {
    sum += share;
    if (number < sum) return kind;
  }
  return delivered;
}

// office changes the data of one branch, which stays Active.
export function office(data) {
  const turn = exec.scenario.iterationInTest;
  const n = turn % data.stores.length;
  const a = vendor(data, turn).put(data.stores[n], { ...branch(n), phone: `0216${String(5550000 + turn)}` });
  expect(a, 'a branch stays Active when its data change', (r) => r.ok && r.data.status === 'Active');
}

// accept creates an order, expects that it is accepted, and returns the answer.
function accept(v, order, end) {
  const a = v.create(order, end);
  expect(a, 'an order is accepted', (r) => r.status === 201 && r.data.status === 'Searching'
    && r.data.externalOrderId === order.externalOrderId && !r.replayed);
  return a;
}

function delivered(v, order) {
  accept(v, order(), 'Delivered');
}

function failing(v, order, roll) {
  accept(v, order(`SIM:FAIL=${pick(roll, failures)}`), 'Failed');
}

// cancelled cancels an order before pickup, and once more: the second answer is the same as the first.
function cancelled(v, order, roll) {
  const a = accept(v, order(`SIM:HOLD=${pick(roll, ['Searching', 'Assigned', 'PickingUp'])}`), 'Cancelled');
  if (!a.ok) return;
  sleep(roll() * 2);
  const first = v.cancel(a.data.orderId);
  expect(first, 'an order is cancelled before pickup', (r) => r.ok && r.data.status === 'Cancelled');
  expect(v.cancel(a.data.orderId), 'a second cancellation answers the same', (r) => r.ok && r.body === first.body);
}

// repeated sends an order twice with the same key, as a till does that lost the answer.
function repeated(v, order, roll) {
  const o = order();
  const first = accept(v, o, 'Delivered');
  if (!first.ok) return;
  sleep(roll());
  const again = v.create(o, 'Delivered');
  identical.add(again.replayed && again.body === first.body);
  expect(again, 'a repeated order is a replay', (r) => r.status === 201 && r.replayed);
}

// mistaken sends another order with the same key or the same external id, as a till
// does that numbers its orders wrongly.
function mistaken(v, order, roll) {
  const o = order();
  const first = accept(v, o, 'Delivered');
  if (!first.ok) return;
  const key = roll() < 0.5 ? o.externalOrderId : `again-${o.externalOrderId}`;
  const a = v.create({ ...o, orderAmount: 1 }, 'Delivered', key);
  expect(a, 'another order under the same key or id is a duplicate', (r) => r.status === 409 && r.code === 'DUPLICATE_ORDER');
}

// broken sends an order that breaks a rule.
function broken(v, order, roll) {
  const { status, code, change } = pick(roll, invalid);
  const o = order();
  apply(change, o);
  const a = v.resend('POST', '/orders', 'POST /orders', o, { key: o.externalOrderId, expect: status });
  invalids.add(1);
  expect(a, 'an order that breaks a rule is refused with its code', (r) => r.status === status && r.code === code);
}

// notifiedTwice creates an order whose webhooks are all sent twice, as at-least-once
// delivery may do.
function notifiedTwice(v, order) {
  accept(v, order('SIM:DUPLICATE her olay iki kez'), 'Delivered');
}

// polled reads an order twice, 10 s apart. If it is delivered then, it is too late to
// cancel it.
function polled(v, order) {
  const a = accept(v, order(), 'Delivered');
  if (!a.ok) return;

  const { orderId } = a.data;
  const read = () => {
    const r = v.read(orderId);
    expect(r, 'an order can be read once in 10 s', (x) => x.ok);
    return r;
  };
  const first = read();
  sleep(Math.max(0, first.answered / 1000 + 10.01 - Date.now() / 1000));
  const second = read();

  if (second.data.status === 'Delivered') {
    expect(v.cancel(orderId), 'a delivered order cannot be cancelled', (x) => x.status === 409 && x.code === 'ORDER_NOT_CANCELLABLE');
  }
}
