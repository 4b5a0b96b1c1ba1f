// Soak: the same moderate load for as long as DURATION says (ten minutes unless set otherwise; hours
// are what it is for). Nothing may get slower, and nothing refused.
//
//   k6 run -e DURATION=8h loadtest/soak.js
//
// A canary of its own reads an unknown order and creates one, again and again through the whole
// time, and compares the last third with the first. What leaks, grows or is looked up in ever longer
// lists shows there. A machine that others begin to use is no drift: what the empty path became slower
// by is taken off.
import exec from 'k6/execution';
import { Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { level, plan, quick } from './lib/levels.js';
import { dice, draw } from './lib/orders.js';
import { accounts, askEmptyPath, expect, open, seconds, vendor } from './lib/vendor.js';

const duration = __ENV.DURATION || '10m';
const length = seconds(duration);

// How many times longer than in the first third it took in the last one.
const readDrift = new Trend('read_drift');
const createDrift = new Trend('create_drift');

const scenarios = {
  canary: { executor: 'per-vu-iterations', exec: 'canary', vus: 1, iterations: 1, maxDuration: `${Math.ceil(length) + 60}s` },
};
accounts().forEach((account, i) => {
  scenarios[`vendor_${account.label}`] = {
    executor: 'constant-arrival-rate',
    rate: 8, // of the 10 a second that the spec allows
    duration,
    preAllocatedVUs: 8,
    maxVUs: 40, // five seconds' worth
    startTime: `${i * 29}ms`,
    env: { VENDOR: String(i) },
    gracefulStop: '30s',
  };
});

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Soak',
  proves: 'Under the same load the last third is as quick as the first, and nothing is refused.',
  cannot: 'In a minute nothing leaks that can be seen: it takes hours. The memory of the programs is seen only where they run beside it.',
  needs: { accounts: 2 },
  levels: [
    // Within the limits means within the limits, an hour later, too.
    level('admitted', 'rate==1', 'a vendor within its limits is never refused'),
    level('read_drift', 'max<2', "the last third's median of a read is less than twice the first third's (below 2 ms counts as 2)"),
    level('create_drift', 'max<2', "the last third's median of a creation is less than twice the first third's (below 2 ms counts as 2)"),
    quick('POST /orders', 99, 100, { status: 201 }),
    // Of these there are few, and p99 would be the slowest one: a single slow fsync.
    quick('GET /orders/{id}', 95, 50),
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

  const isDue = unread.length > 0 && unread[0].at < Date.now() - 15000;
  if (isDue) {
    expect(v.read(unread.shift().id), 'an order of a quarter minute ago can be read', (r) => r.ok);
  }
}

const unknown = '00000000-0000-8000-8000-000000000000';
const warm = 1; // seconds until the first requests no longer count

export function canary(data) {
  const v = vendor(data, 0);
  const began = Date.now();
  const thirds = [0, 1, 2].map(() => ({ empty: [], read: [], create: [] })); // ms

  let elapsed = 0;
  for (let turn = 0; elapsed < length; turn++) {
    const third = thirds[Math.min(2, Math.floor((elapsed / length) * 3))];
    const times = look(v, data, turn);
    if (elapsed > warm) {
      for (const what of Object.keys(times)) third[what].push(times[what]);
    }
    sleep(0.5);
    elapsed = (Date.now() - began) / 1000;
  }

  addDrift(readDrift, thirds, 'read');
  addDrift(createDrift, thirds, 'create');
}

const leastTimes = 5; // in a third; with fewer there is no drift to tell

// addDrift adds how many times longer something took in the last third than in the first, divided by
// how many times longer the empty path took, if that was longer.
function addDrift(trend, [first, , last], what) {
  const isMeasured = Math.min(first[what].length, last[what].length) >= leastTimes;
  if (!isMeasured) return;

  const own = floor(median(last[what])) / floor(median(first[what]));
  const machine = floor(median(last.empty)) / floor(median(first.empty));
  trend.add(own / Math.max(1, machine));
}

// look returns how long an empty request, a read and, each other time, a creation take, in ms. What was
// not answered took no time.
function look(v, data, turn) {
  const times = {};
  const empty = askEmptyPath();
  if (empty.status !== 0) times.empty = empty.timings.duration;

  const read = v.call('GET', `/orders/${unknown}`, 'GET unknown order');
  expect(read, 'an unknown order is not found', (r) => r.status === 404 && r.code === 'ORDER_NOT_FOUND');
  if (!read.isOutage) times.read = read.took;

  if (turn % 2 === 0) {
    const created = v.create(draw(dice(turn), data.stores[0], `${data.run}-canary-${turn}`), 'Delivered');
    expect(created, 'an order is accepted', (r) => r.status === 201);
    if (!created.isOutage) times.create = created.took;
  }
  return times;
}

function median(values) {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

// Below 2 ms a ratio would compare the machine's noise.
function floor(ms) {
  return Math.max(2, ms);
}
