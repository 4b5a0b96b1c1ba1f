// Stress and breakpoint: ever more orders a second, to find the knee (lib/steps.js). The accounts' limits
// are raised, so that only the machine can be too slow. Beyond the knee the service may answer late, or
// 503 with the time after which to send again, as its contract says; no order is lost.
//
// Each order is created and then cancelled, so that none is left. It is held in Searching
// (SIM:HOLD), so that no sandbox courier comes in between.
//
//   RATES         orders a second, rising
//   STEP          how long each is offered
//   LONGEST_WAIT  how long an answer may take until k6 has no virtual user free for the next order
import exec from 'k6/execution';
import { level, plan, quick } from './lib/levels.js';
import { requireLimit } from './lib/limits.js';
import { dice, draw } from './lib/orders.js';
import { ratesOf } from './lib/settings.js';
import { scenariosOf, stepsOf } from './lib/steps.js';
import { expect, open, seconds, vendor } from './lib/vendor.js';

const rates = ratesOf('RATES', '25,50,100,200,300,400,500');
const stepSeconds = seconds(__ENV.STEP || '5s');
const longestWait = seconds(__ENV.LONGEST_WAIT || '1s');
const steps = stepsOf(rates, stepSeconds);

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Ramp to saturation',
  proves: `From ${rates[0]} to ${rates[rates.length - 1]} orders a second every order is accepted, or refused as the contract says; the rate from which on they are not is the knee.`,
  cannot: 'The knee is that of this machine and of k6 on it, which needs more of it than the service does: what the service can do is measured by make bench.',
  needs: { accounts: 16, orders: 1200 },
  tolerates: 'busy',
  steps,
  levels: [
    // The raised limits are far above this load.
    level('admitted', 'rate==1', 'accounts with raised limits are not refused'),
    // The lowest step is far from any machine's limit.
    { ...level(`http_req_duration{name:POST /orders,scenario:${steps[0].scenario}}`, 'p(95)<50', `at ${rates[0]} a second creating an order takes less than 50 ms in 95 of 100 cases`), relative: 20 },
    // A saturated service answers late, not never.
    level('http_req_duration{name:POST /orders}', 'max<5000', 'even beyond saturation every answer comes within 5 s'),
  ],
  scenarios: scenariosOf(steps, { exec: 'offer', longestWait }),
});

export function setup() {
  const data = open(1);
  requireLimit(data, Math.ceil((Math.max(...rates) * 10) / data.accounts.length));
  return data;
}

// ceiling sends one request with which k6's own limit is measured.
export function ceiling(data) {
  const turn = exec.scenario.iterationInTest;
  vendor(data, exec.vu.idInTest).rehearse(draw(dice(turn), data.stores[0], `${data.run}-ceiling-${turn}`));
}

// offer creates an order and cancels it.
export function offer(data) {
  const turn = exec.scenario.iterationInTest;
  const v = vendor(data, exec.vu.idInTest);
  const id = `${data.run}-ramp-${exec.scenario.name}-${turn}`;

  const a = v.createOnce(draw(dice(turn), data.stores[0], id, 'SIM:HOLD=Searching'), 'Cancelled');
  expect(a, 'an order is accepted, or refused because the service is busy', (r) => r.status === 201 || r.isBusy);
  if (a.status === 201) {
    expect(v.cancelUntilAnswered(a.data.orderId), 'an order is cancelled', (r) => r.ok);
  }
}
