// Soak: the same moderate load for as long as DURATION says (ten minutes unless
// set otherwise; hours are fine). Nothing may get slower, and nothing refused.
//
// A canary reads an unknown order twice a second through the whole time, with
// nothing else of the script in its way, and compares the last third with the
// first: what leaks, grows or is looked up in ever longer lists shows there.
import exec from 'k6/execution';
import { Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { level, plan } from './lib/levels.js';
import { dice, draw } from './lib/orders.js';
import { accounts, expect, open, seconds, vendor } from './lib/vendor.js';

const duration = __ENV.DURATION || '10m';

const drift = new Trend('latency_drift');

const scenarios = {
  canary: { executor: 'per-vu-iterations', exec: 'canary', vus: 1, iterations: 1, maxDuration: `${seconds(duration) + 60}s` },
};
accounts().forEach((account, i) => {
  scenarios[`vendor_${account.label}`] = {
    executor: 'constant-arrival-rate',
    rate: 8, // of the 10 a second that the spec allows
    duration,
    preAllocatedVUs: 6,
    startTime: `${i * 29}ms`,
    env: { VENDOR: String(i) },
    gracefulStop: '30s',
  };
});

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Soak',
  proves: 'Under the same load the last third is as quick as the first, and nothing is refused meanwhile.',
  levels: [
    // Within the limits means within the limits, an hour later, too.
    level('refused', 'count==0', 'a vendor within its limits is never refused'),
    // The ratio of two medians, each taken as at least 5 ms: below that it would
    // compare the machine's own noise.
    level('latency_drift', 'max<2', "the last third's median is less than twice the first third's (below 5 ms counts as 5)"),
    // With k6, the courier and the webhooks on the same processors.
    level('http_req_duration{name:POST /orders}', 'p(99)<100', 'creating an order takes less than 100 ms in 99 of 100 cases'),
    // Of these there are few, and p99 would be the slowest one: a single slow fsync.
    level('http_req_duration{name:GET /orders/{id}}', 'p(95)<50', 'reading an order takes less than 50 ms in 95 of 100 cases'),
    // The load was really offered: k6 did not fall behind.
    level('dropped_iterations', 'count==0', 'k6 offered every order that the rate asks for'),
  ],
  scenarios,
});

export function setup() {
  return open(2);
}

// The orders of this VU that have not been read yet, oldest first.
const unread = [];

export default function (data) {
  const v = vendor(data, Number(__ENV.VENDOR));
  const turn = exec.scenario.iterationInTest;
  const order = draw(dice(turn * 7919 + Number(__ENV.VENDOR)), data.stores[turn % 2], `${data.run}-soak-${v.account.label}-${turn}`);
  const a = v.create(order, 'Delivered');
  expect(a, 'an order is accepted', (r) => r.status === 201);
  if (a.ok) unread.push({ id: a.data.orderId, at: a.answered });
  if (unread.length > 0 && unread[0].at < Date.now() - 15000) {
    expect(v.read(unread.shift().id), 'an order of a quarter minute ago can be read', (r) => r.ok);
  }
}

const unknown = '00000000-0000-8000-8000-000000000000';

export function canary(data) {
  const v = vendor(data, 0);
  const length = seconds(duration);
  const began = Date.now();
  const parts = [[], [], []];
  for (let elapsed = 0; elapsed < length; elapsed = (Date.now() - began) / 1000) {
    const a = v.call('GET', `/orders/${unknown}`, 'GET unknown order');
    expect(a, 'an unknown order is not found', (r) => r.status === 404 && r.code === 'ORDER_NOT_FOUND');
    if (elapsed > 1) parts[Math.min(2, Math.floor(elapsed / length * 3))].push(a.answered - a.sent); // warm by then
    sleep(0.5);
  }
  drift.add(floor(median(parts[2])) / floor(median(parts[0])));
}

function median(values) {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)] || 0;
}

function floor(ms) {
  return Math.max(5, ms);
}
