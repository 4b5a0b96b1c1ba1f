// A level of a metric that nothing is added to: "POST /order" for "POST /orders".
import exec from 'k6/execution';
import { level, plan } from '../../lib/levels.js';
import { dice, draw } from '../../lib/orders.js';
import { expect, open, vendor } from '../../lib/vendor.js';

export { handleSummary } from '../../lib/levels.js';
export const options = plan({
  title: 'A misspelt level',
  proves: 'Nothing: its level names no request.',
  levels: [level('http_req_duration{name:POST /order}', 'p(99)<50', 'creating an order takes less than 50 ms')],
  scenarios: { till: { executor: 'constant-arrival-rate', rate: 5, duration: '2s', preAllocatedVUs: 5 } },
});

export function setup() {
  return open(1);
}

export default function (data) {
  const turn = exec.scenario.iterationInTest;
  const a = vendor(data, turn).create(draw(dice(turn), data.stores[0], `${data.run}-misspelt-${turn}`), 'Delivered');
  expect(a, 'an order is accepted', (r) => r.status === 201);
}
