// A script with the levels that LEVELS says, as a list of [metric, threshold, words]. It measures
// each kind of metric, unless MEASURE is no.
import { Counter, Trend } from 'k6/metrics';
import { level, plan, shown } from '../levels.js';
import { Rate } from '../metrics.js';
import { dice, draw } from '../orders.js';
import { expect, open, vendor } from '../vendor.js';

const rate = new Rate('some_rate');
const trend = new Trend('some_trend');
const shownTrend = new Trend('shown_trend');
const counter = new Counter('some_counter');

export { handleSummary } from '../levels.js';
export const options = plan({
  title: 'Levels',
  proves: 'What levels do.',
  levels: [...JSON.parse(__ENV.LEVELS || '[]').map((l) => level(...l)), shown('shown_trend')],
  scenarios: {
    only: { executor: 'per-vu-iterations', vus: 1, iterations: __ENV.MEASURE === 'no' ? 1 : 3, maxDuration: '10s' },
  },
});

export function setup() {
  return open(1);
}

export default function (data) {
  if (__ENV.MEASURE === 'no') return;

  rate.add(__ITER !== 0 || __ENV.BREAK !== 'yes', { kind: 'right' });
  trend.add(7, { kind: 'right' });
  shownTrend.add(3);
  counter.add(1, { kind: 'right' });
  const a = vendor(data, 0).create(draw(dice(1), data.stores[0], `${data.run}-${__ITER}`), 'Delivered');
  expect(a, 'an order is accepted', (r) => r.status === 201);
}
