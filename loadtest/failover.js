// Failover under load: tills that lose answers send the same bytes with the same key again, until the
// service has decided. Kill programs while it runs: a gateway, a worker, Redis's master. Every order is
// accepted once, and the webhooks are those of the orders.
//
// `make loadtest` kills the gateway, the worker and Redis of its own system. Against another system
// you have to; without an outage the script holds as well, and proves little. `make run` ends when one
// of its programs is killed: stop one for some seconds instead (kill -STOP, then kill -CONT).
//
//   RATE            orders a second, of all accounts
//   DURATION        how long
//   LONGEST_OUTAGE  how long an order is sent again
import exec from 'k6/execution';
import { Trend } from 'k6/metrics';
import { level, plan } from './lib/levels.js';
import { Rate } from './lib/metrics.js';
import { dice, draw } from './lib/orders.js';
import { rateOf } from './lib/settings.js';
import { accounts, expect, open, seconds, vendor } from './lib/vendor.js';

const perAccount = 5;
const rate = rateOf('RATE', perAccount * accounts().length);
const duration = __ENV.DURATION || '40s';
const longestOutage = seconds(__ENV.LONGEST_OUTAGE || '30s');

const inTheEnd = new Rate('accepted_in_the_end');
const identical = new Rate('replays_identical');
const untilAccepted = new Trend('until_accepted', true);

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Failover under load',
  proves: `Whatever fails while it runs, every order is accepted once, if the same bytes are sent again for ${longestOutage} s.`,
  cannot: 'It does not know what failed: where nothing did, it has proved nothing about failover.',
  needs: { accounts: 4, outages: true },
  tolerates: 'outage',
  levels: [
    level('accepted_in_the_end', 'rate==1', 'every order is accepted in the end'),
    level('replays_identical', 'rate==1', 'an order that is sent again after it was accepted gets the bytes of its acceptance'),
    // The last request, too, may take up to its timeout of 30 s.
    level('until_accepted', `max<${(longestOutage + 30) * 1000}`, `no order that is accepted takes ${longestOutage + 30} s until it is`),
  ],
  scenarios: {
    tills: {
      executor: 'constant-arrival-rate', rate, timeUnit: '1s', duration,
      preAllocatedVUs: Math.ceil((rate * longestOutage) / 2), maxVUs: Math.ceil(rate * longestOutage), gracefulStop: `${longestOutage + 30}s`,
    },
  },
});

export function setup() {
  return open(1);
}

export default function (data) {
  const turn = exec.scenario.iterationInTest;
  const v = vendor(data, turn);
  const order = draw(dice(turn), data.stores[0], `${data.run}-failover-${turn}`);

  const began = Date.now();
  const a = v.createUntilAnswered(order, 'Delivered', { within: longestOutage });
  inTheEnd.add(a.status === 201);
  if (a.status === 201) untilAccepted.add(Date.now() - began);
  expect(a, 'an order is accepted in the end', (r) => r.status === 201);

  const isRepeated = a.status === 201 && turn % 5 === 0;
  if (isRepeated) {
    const again = v.untilAnswered(longestOutage, 'POST', '/orders', 'POST /orders', order, { key: order.externalOrderId });
    const isReplay = again.status === 201 && again.replayed;
    identical.add(isReplay && again.body === a.body);
  }
}
