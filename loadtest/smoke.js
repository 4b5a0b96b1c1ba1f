// Smoke: each account does once what a vendor does: an order that is delivered, one that is repeated, one
// that is cancelled and one that is refused. It is a first look at a deployment, before any load, and
// takes 10 s, or as long as a delivery.
import exec from 'k6/execution';
import { sleep } from 'k6';
import { plan } from './lib/levels.js';
import { apply, dice, draw, invalid } from './lib/orders.js';
import { accounts, expect, open, vendor } from './lib/vendor.js';

const longestDelivery = 90; // seconds; a sandbox courier makes a step each COURIER_STEP, 5 s unless set
const betweenReads = 10.1; // seconds; an order may be read once in 10 s (spec, "Limits")

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Smoke',
  proves: 'Each account registers branches, creates an order that is delivered, repeats one, cancels one and is refused a wrong one.',
  cannot: 'It proves nothing about load, limits or speed.',
  needs: { accounts: 2 },
  levels: [],
  scenarios: {
    vendor: { executor: 'per-vu-iterations', vus: accounts().length, iterations: 1, maxDuration: '3m' },
  },
});

export function setup() {
  return open(1);
}

export default function (data) {
  const v = vendor(data, exec.vu.idInTest - 1);
  const name = (what) => `${data.run}-smoke-${v.account.label}-${what}`;
  const order = (what, note) => draw(dice(exec.vu.idInTest), data.stores[0], name(what), note);

  const first = v.create(order('delivered'), 'Delivered');
  expect(first, 'an order is accepted', (a) => a.status === 201 && a.data.status === 'Searching');

  const again = v.create(order('delivered'), 'Delivered');
  expect(again, 'a repeated order gets the bytes of its first answer', (a) => a.status === 201 && a.replayed && a.body === first.body);

  const held = v.create(order('cancelled', 'SIM:HOLD=Assigned'), 'Cancelled');
  const isHeld = expect(held, 'an order is accepted', (a) => a.status === 201);
  if (isHeld) {
    expect(v.cancel(held.data.orderId), 'an order is cancelled before pickup', (a) => a.ok && a.data.status === 'Cancelled');
  }

  const { change, status, code } = invalid.find((kind) => kind.code === 'INVALID_PHONE');
  const wrong = order('wrong');
  apply(change, wrong);
  const refusal = v.resend('POST', '/orders', 'POST /orders', wrong, { key: wrong.externalOrderId, expect: status });
  expect(refusal, 'an order that breaks a rule is refused with its code', (a) => a.status === status && a.code === code);

  if (first.ok) awaitDelivery(v, first.data.orderId);
}

const ends = ['Delivered', 'Failed', 'Cancelled'];
const longestSearch = 30; // seconds

// awaitDelivery reads an order, as often as the contract allows, until it has ended. It aborts the test
// if nobody takes the order.
function awaitDelivery(v, orderId) {
  const began = Date.now();
  const elapsed = () => (Date.now() - began) / 1000;

  let a = v.read(orderId);
  while (!ends.includes(a.data.status) && elapsed() < longestDelivery) {
    const isUnwanted = a.data.status === 'Searching' && elapsed() > longestSearch;
    if (isUnwanted) {
      v.cancel(orderId);
      exec.test.abort(`no courier has taken an order for ${longestSearch} s: nobody delivers here (a sandbox's courier does, with COURIER=auto)`);
    }
    sleep(betweenReads);
    a = v.read(orderId);
  }
  expect(a, 'an order is delivered', (r) => r.data.status === 'Delivered');
}
