// Soak: the same moderate load for as long as DURATION says (ten minutes unless set otherwise; it is
// meant for hours). Nothing may become slower, and nothing may be refused.
//
//   k6 run -e DURATION=8h loadtest/soak.js
//
// One virtual user, the canary, reads an unknown order and creates one, again and again, and compares
// the last third of the time with the first. What leaks, grows or is looked up in ever longer lists
// shows there. If the machine became slower, so did the empty path: the drift is divided by that.
import exec from 'k6/execution';
import { Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { level, plan, quick } from './lib/levels.js';
import { requireLimit } from './lib/limits.js';
import { dice, draw } from './lib/orders.js';
import { accounts, askEmptyPath, expect, open, seconds, vendor } from './lib/vendor.js';

const duration = __ENV.DURATION || '10m';
const length = seconds(duration);

// How many times as long as in the first third it took in the last one.
const readDrift = new Trend('read_drift');
const createDrift = new Trend('create_drift');

const rate = 8; // orders a second and account, of the 10 that the spec allows

const scenarios = {
  canary: { executor: 'per-vu-iterations', exec: 'canary', vus: 1, iterations: 1, maxDuration: `${Math.ceil(length) + 60}s` },
};
accounts().forEach((account, i) => {
  scenarios[`vendor_${account.label}`] = {
    executor: 'constant-arrival-rate',
    rate,
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
    // The limits must be exact after an hour, too.
    level('admitted', 'rate==1', 'a vendor within its limits is never refused'),
    level('read_drift', 'max<2', "the last third's median of a read is less than twice the first third's (below 2 ms counts as 2)"),
    level('create_drift', 'max<2', "the last third's median of a creation is less than twice the first third's (below 2 ms counts as 2)"),
    quick('POST /orders', 99, 100, { status: 201 }),
    // There are few of these, so a single slow fsync would decide p99.
    quick('GET /orders/{id}', 95, 50),
  ],
  scenarios,
});

export function setup() {
  const data = open(2);
  requireLimit(data, rate * 10);
  return data;
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
const warmUp = 1; // seconds at the beginning that do not count

// canary looks at the service every half second, for the whole time, and adds the drifts at the end.
export function canary(data) {
  const v = vendor(data, 0);
  const began = Date.now();
  const thirds = [0, 1, 2].map(() => ({ empty: [], read: [], create: [] })); // ms

  let elapsed = 0;
  for (let turn = 0; elapsed < length; turn++) {
    const third = thirds[Math.min(2, Math.floor((elapsed / length) * 3))];
    const times = look(v, data, turn);
    if (elapsed > warmUp) {
      for (const what of Object.keys(times)) third[what].push(times[what]);
    }
    sleep(0.5);
    elapsed = (Date.now() - began) / 1000;
  }

  addDrift(readDrift, thirds, 'read');
  addDrift(createDrift, thirds, 'create');
}

const leastTimes = 5; // measurements in each third; with fewer no drift is added, so the level fails

// addDrift adds how many times as long something took in the last third as in the first. If the empty
// path took longer, too, the result is divided by how many times as long that took.
function addDrift(trend, [first, , last], what) {
  const isMeasured = Math.min(first[what].length, last[what].length) >= leastTimes;
  if (!isMeasured) return;

  const drift = floor(median(last[what])) / floor(median(first[what]));
  const machine = floor(median(last.empty)) / floor(median(first.empty));
  trend.add(drift / Math.max(1, machine));
}

// look returns how long a request to the empty path, a read and, every other time, a creation took, in
// ms, as {empty, read, create}. A request that was not answered is missing.
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

// median returns the median of the values, which it sorts.
function median(values) {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

// floor returns at least 2 ms: a ratio of shorter times would compare the machine's noise.
function floor(ms) {
  return Math.max(2, ms);
}
