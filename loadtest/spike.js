// Spike: from an ordinary load to ten times as much at once, and back. While it lasts the service may
// answer late, or 503 with the time after which to send again; it must not fail in any other way, and
// must be as before once the spike is over.
//
// Each order is created and then cancelled, so that none is left.
//
//   RATE      orders a second before and after
//   SPIKE     orders a second during the spike
//   DURATION  of the parts before, during and after the spike together
import exec from 'k6/execution';
import { level, plan } from './lib/levels.js';
import { requireLimit } from './lib/limits.js';
import { Rate } from './lib/metrics.js';
import { dice, draw } from './lib/orders.js';
import { rateOf } from './lib/settings.js';
import { expect, open, seconds, vendor } from './lib/vendor.js';

const rate = rateOf('RATE', 30);
const spike = rateOf('SPIKE', 10 * rate);
const length = Math.max(3, Math.round(seconds(__ENV.DURATION || '40s') / 3)); // of each part
const settle = 5; // seconds after the spike that do not count
const longestWait = 1; // seconds; k6 starts every order as long as answers take no longer (Little's law)

// An order that was refused because the service is busy is not lost: it is sent again.
const inTheEnd = new Rate('accepted_in_the_end');

const scenario = (offered, start) => ({
  executor: 'constant-arrival-rate', rate: offered, timeUnit: '1s', duration: `${length}s`, startTime: `${start}s`,
  preAllocatedVUs: Math.ceil(offered * longestWait), maxVUs: Math.ceil(offered * longestWait), gracefulStop: '30s',
});
const quickIn = (name, limit) => ({
  ...level(`http_req_duration{name:POST /orders,status:201,scenario:${name}}`, `p(95)<${limit}`,
    `${name} the spike POST /orders takes less than ${limit} ms in 95 of 100 cases`),
  relative: 20,
});

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Spike',
  proves: `${spike} orders a second at once, after ${rate}, are accepted or asked to come again; afterwards all is as before.`,
  cannot: 'On a machine that k6 shares, part of the delay during the spike is k6\'s own.',
  needs: { accounts: 8, orders: 1200 },
  tolerates: 'busy',
  levels: [
    level('admitted', 'rate==1', 'accounts with raised limits are not refused'),
    level('accepted_in_the_end', 'rate==1', 'every order that k6 started is accepted, though perhaps not at once'),
    quickIn('before', 50),
    quickIn('after', 50),
    level('dropped_iterations{scenario:after}', 'count==0', 'after the spike k6 offers every order again'),
  ],
  scenarios: {
    before: scenario(rate, 0),
    during: scenario(spike, length),
    after: scenario(rate, 2 * length + settle),
  },
});

export function setup() {
  const data = open(1);
  requireLimit(data, Math.ceil((spike * 10) / data.accounts.length));
  return data;
}

export default function (data) {
  const turn = exec.scenario.iterationInTest;
  const v = vendor(data, exec.vu.idInTest);
  const id = `${data.run}-spike-${exec.scenario.name}-${turn}`;

  const a = v.createUntilAnswered(draw(dice(turn), data.stores[0], id, 'SIM:HOLD=Searching'), 'Cancelled', { within: 25 });
  inTheEnd.add(a.status === 201);
  expect(a, 'an order is accepted in the end', (r) => r.status === 201);
  if (a.status === 201) {
    expect(v.cancelUntilAnswered(a.data.orderId), 'an order is cancelled', (r) => r.ok);
  }
}
