// One order whose answer never comes. The iteration is interrupted when its time is over, so no
// iteration ends.
import { level, plan } from '../levels.js';
import { dice, draw } from '../orders.js';
import { expect, open, vendor } from '../vendor.js';

export { handleSummary } from '../levels.js';
export const options = plan({
  title: 'A stall',
  proves: 'Nothing: the answer never comes.',
  levels: [level('dropped_iterations', 'count==0', 'every iteration was started')],
  scenarios: {
    till: { executor: 'per-vu-iterations', vus: 1, iterations: 1, maxDuration: '1s', gracefulStop: '0s' },
  },
});

export function setup() {
  return open(1);
}

export default function (data) {
  const a = vendor(data, 0).createOnce(draw(dice(1), data.stores[0], `${data.run}-1`), 'Delivered');
  expect(a, 'an order is accepted', (r) => r.status === 201);
}
