// Load: vendors that send a little less than their limit allows, for as long as DURATION says. Nothing is
// refused, and everything is quick.
//
//   k6 run -e DURATION=10m loadtest/steady.js
import exec from 'k6/execution';
import { level, plan, quick } from './lib/levels.js';
import { requireLimit } from './lib/limits.js';
import { dice, draw } from './lib/orders.js';
import { accounts, expect, open, vendor } from './lib/vendor.js';

// The spec allows 600 per minute and 120 per 10 s; 9 a second is 90 % of the first and leaves room
// for the scheduler's jitter.
const rate = 9;
const duration = __ENV.DURATION || '1m';

const scenarios = {};
accounts().forEach((account, i) => {
  scenarios[`vendor_${account.label}`] = {
    executor: 'constant-arrival-rate',
    rate,
    duration,
    preAllocatedVUs: 9,
    maxVUs: 45, // five seconds' worth
    startTime: `${i * 13}ms`, // not all in the same millisecond
    env: { VENDOR: String(i) },
    gracefulStop: '30s',
  };
});

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Steady state',
  proves: `Vendors that keep to ${rate} orders a second each are never refused, and their orders are answered quickly.`,
  cannot: 'It does not say how much more would be possible (ramp.js), nor what hours change (soak.js).',
  needs: { accounts: 8 },
  levels: [
    level('admitted', 'rate==1', 'a vendor within its limits is never refused'),
    quick('POST /orders', 95, 50, { status: 201 }),
    quick('POST /orders', 99, 100, { status: 201 }),
    // There are few of these, so a single slow fsync would decide p99.
    quick('GET /orders/{id}', 95, 50),
    quick('POST /orders/{id}/cancel', 95, 50),
  ],
  scenarios,
});

export function setup() {
  const data = open(2);
  requireLimit(data, rate * 10);
  return data;
}

export default function (data) {
  const v = vendor(data, Number(__ENV.VENDOR));
  const turn = exec.scenario.iterationInTest;
  const roll = dice(turn * 1000 + Number(__ENV.VENDOR));
  const cancels = turn % 10 === 3;

  const order = draw(roll, data.stores[turn % 2], `${data.run}-steady-${v.account.label}-${turn}`, cancels && 'SIM:HOLD=Assigned');
  const a = v.create(order, cancels ? 'Cancelled' : 'Delivered');
  expect(a, 'an order is accepted', (r) => r.status === 201 && r.data.status === 'Searching' && r.data.externalOrderId === order.externalOrderId);
  if (!a.ok) return;

  if (cancels) {
    expect(v.cancel(a.data.orderId), 'an order is cancelled before pickup', (r) => r.ok && r.data.status === 'Cancelled');
  } else if (turn % 4 === 0) {
    expect(v.read(a.data.orderId), 'an order can be read at once', (r) => r.ok && r.data.orderId === a.data.orderId && r.data.events.length > 0);
  }
}
