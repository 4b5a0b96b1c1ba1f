// Ramp to saturation: ever more orders a second, on accounts whose limits are
// raised so far that only the machine is in the way. Whatever happens to the
// speed, every order is accepted and none is lost.
//
// The knee, the first rate whose p99 exceeds the service level (100 ms, as in
// steady.js), is reported and no service level: it is the machine's, and k6 takes its
// share of that. The orders are held in Searching (SIM:HOLD), so that it is the
// way of an order that is measured, and not couriers and webhooks beside it. A
// sandbox courier (COURIER=auto) looks at every held order again and again;
// `make loadtest` plays this one with COURIER=manual.
import exec from 'k6/execution';
import { level, plan, shown } from './lib/levels.js';
import { dice, draw } from './lib/orders.js';
import { expect, open, seconds, vendor } from './lib/vendor.js';

const rates = (__ENV.RATES || '100,200,400,600,800,1000,1200').split(',').map(Number);
const step = seconds(__ENV.STEP || '4s');
const names = rates.map((r) => `${r}/s`);

const stages = [];
for (const target of rates) stages.push({ target, duration: '0s' }, { target, duration: `${step}s` });

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Ramp to saturation',
  proves: `From ${rates[0]} to ${rates[rates.length - 1]} orders a second every order is accepted; beyond what the machine can do they wait, and none fails.`,
  levels: [
    // Raised limits are limits all the same, far above this load.
    level('refused', 'count==0', 'accounts with raised limits are not refused'),
    // The lowest step is far from any machine's limit.
    level(`http_req_duration{step:${names[0]}}`, 'p(95)<50', `at ${names[0]} creating an order takes less than 50 ms in 95 of 100 cases`),
    // A saturated service answers late, not never.
    level('http_req_duration{name:POST /orders}', 'max<5000', 'even beyond saturation every answer comes within 5 s'),
    ...names.slice(1).map((name) => shown(`http_req_duration{step:${name}}`)),
  ],
  scenarios: {
    ramp: {
      executor: 'ramping-arrival-rate', startRate: rates[0], timeUnit: '1s', stages,
      // As many orders may be in flight as a busy chain's tills; then k6 drops
      // iterations, which the report shows as a rate that is not reached.
      preAllocatedVUs: 100, maxVUs: 100, gracefulStop: '30s',
    },
  },
});

export function setup() {
  const data = open(1);
  const v = vendor(data, 0);
  const a = v.create(draw(dice(1), data.stores[0], `${data.run}-ramp-first`, 'SIM:HOLD=Searching'), 'Searching');
  const needed = Math.ceil((Math.max(...rates) * 10) / data.accounts.length);
  if (a.limit < needed) {
    const limits = { orders: { sustained: { count: needed * 6, seconds: 60 }, burst: { count: needed, seconds: 10 } } };
    exec.test.abort(`an account may send ${a.limit} orders in its tightest window, and this needs ${needed} in 10 s; raise its limits: `
      + '. .data/demo.env; curl -X PATCH $OPS_URL/api/admin/v1/accounts/$ACCOUNT_ID -H "Authorization: Bearer $ADMIN_KEY" '
      + `-H 'Content-Type: application/json' -d '${JSON.stringify({ limits })}'`);
  }
  return data;
}

export default function (data) {
  const turn = exec.scenario.iterationInTest;
  const elapsed = (Date.now() - exec.scenario.startTime) / 1000;
  const v = vendor(data, turn);
  v.tags = { ...v.tags, step: names[Math.min(names.length - 1, Math.floor(elapsed / step))] };
  const order = draw(dice(turn), data.stores[0], `${data.run}-ramp-${turn}`, 'SIM:HOLD=Searching');
  expect(v.create(order, 'Searching'), 'an order is accepted', (r) => r.status === 201);
}
