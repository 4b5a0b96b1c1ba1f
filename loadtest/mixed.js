// Mixed traffic: vendors create orders, and the fleet's server takes them and reports what its
// couriers do and where they are, for each order from Searching to Delivered. All of this costs the
// service many times as much as the creation of an order.
//
// It needs OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET. The orders are held in Searching
// (SIM:HOLD), so that a sandbox courier leaves them to this fleet.
//
//   RATE      orders a second, of all accounts
//   DURATION  how long
import exec from 'k6/execution';
import { Trend } from 'k6/metrics';
import { sleep } from 'k6';
import { courierSteps, Fleet } from './lib/fleet.js';
import { level, plan, quick } from './lib/levels.js';
import { requireLimit } from './lib/limits.js';
import { dice, draw } from './lib/orders.js';
import { rateOf } from './lib/settings.js';
import { accounts, expect, open, seconds, vendor } from './lib/vendor.js';

const perAccount = 3;
const rate = rateOf('RATE', perAccount * accounts().length);
const length = seconds(__ENV.DURATION || '30s');
const betweenSteps = 1000; // ms between a courier's reports
const betweenRounds = 0.25; // seconds between two rounds of the fleet's server
const wholeWay = (courierSteps.length * betweenSteps) / 1000 + 5; // seconds from an order's creation to its delivery, about

// How long an order waits in Searching until the fleet has it, to a second.
const untilTaken = new Trend('until_taken', true);

export { handleSummary } from './lib/levels.js';
export const options = plan({
  title: 'Vendors and their fleet',
  proves: 'Vendors, a fleet and couriers use the service at the same time: every order is delivered, and no vendor is refused.',
  cannot: 'One fleet with one server takes the orders; what many fleets do to each other is tested by make faults SUITE=overload.',
  needs: { accounts: 4, courier: 'manual', fleet: true },
  levels: [
    level('admitted', 'rate==1', 'a vendor within its limits is never refused'),
    level('until_taken', 'p(95)<5000', '95 of 100 orders have a courier within 5 s'),
    quick('POST /orders', 95, 50, { status: 201 }),
    quick('fleet POST /jobs/{id}/accept', 95, 100),
    quick('fleet POST /jobs/{id}/status', 95, 100, { status: 202 }),
    quick('fleet POST /locations', 95, 100),
  ],
  scenarios: {
    vendors: {
      executor: 'constant-arrival-rate', rate, timeUnit: '1s', duration: `${length}s`,
      preAllocatedVUs: Math.ceil(rate), maxVUs: Math.ceil(5 * rate), gracefulStop: '10s',
    },
    fleet: { executor: 'per-vu-iterations', exec: 'fleet', vus: 1, iterations: 1, maxDuration: `${Math.ceil(length + 4 * wholeWay)}s` },
  },
});

export function setup() {
  const data = open(1);
  requireLimit(data, Math.ceil((rate * 10) / data.accounts.length));
  return data;
}

export default function (data) {
  const turn = exec.scenario.iterationInTest;
  const v = vendor(data, turn);
  const a = v.create(draw(dice(turn), data.stores[0], `${data.run}-mixed-${turn}`, 'SIM:HOLD=Searching'), 'Delivered');
  expect(a, 'an order is accepted', (r) => r.status === 201);
}

// fleet plays the fleet's server, until the vendors have ended and the orders of this run are delivered.
export function fleet(data) {
  const server = new Fleet();
  const underWay = new Map(); // by orderId: {step, due, position}
  const end = Date.now() + (length + wholeWay) * 1000;
  const lastMoment = end + wholeWay * 1000;

  const isGoingOn = () => Date.now() < end || (underWay.size > 0 && Date.now() < lastMoment);
  while (isGoingOn()) {
    takeJobs(server, data.run, underWay);
    report(server, underWay);
    sleep(betweenRounds);
  }
  expect({ status: underWay.size, body: 'orders under way' }, 'every order that was taken is delivered', () => underWay.size === 0);
}

// takeJobs accepts the jobs of this run's orders that wait for a courier.
function takeJobs(server, run, underWay) {
  const { jobs, answer } = server.jobs('Searching');
  expect(answer, 'the fleet sees its jobs', (r) => r.ok);

  const waiting = jobs.filter((job) => job.externalOrderId.startsWith(`${run}-mixed-`) && !underWay.has(job.orderId));
  const courier = { name: 'Mehmet Yılmaz', phone: '05321234567', vehicleType: 'Motorcycle' };
  const answers = server.callAll(waiting.map((job) => ['POST', `/jobs/${job.orderId}/accept`, 'fleet POST /jobs/{id}/accept', { courier }]));
  answers.forEach((a, i) => {
    const job = waiting[i];
    const isTaken = expect(a, 'a job is accepted', (r) => r.status === 200);
    if (!isTaken) return;
    untilTaken.add(Math.max(1, a.date - Date.parse(job.createdAt))); // both by the service's clock
    underWay.set(job.orderId, { step: 0, due: Date.now() + betweenSteps, position: job.dropoff });
  });
}

// report sends the reports that are due, and the positions of all couriers.
function report(server, underWay) {
  const now = Date.now();
  const due = [...underWay].filter(([, courier]) => courier.due <= now);
  const answers = server.callAll(due.map(([orderId, { step }]) => [
    'POST', `/jobs/${orderId}/status`, 'fleet POST /jobs/{id}/status', { status: courierSteps[step] },
  ]));
  answers.forEach((a, i) => {
    const [orderId, courier] = due[i];
    const isReported = expect(a, 'a report is taken', (r) => r.status === 202);
    if (!isReported) return;
    courier.step++;
    courier.due += betweenSteps;
    if (courier.step === courierSteps.length) underWay.delete(orderId);
  });

  if (underWay.size === 0) return;
  const positions = [...underWay].map(([orderId, { position }]) => ({ orderId, latitude: position.latitude, longitude: position.longitude }));
  const a = server.call('POST', '/locations', 'fleet POST /locations', positions);
  expect(a, 'positions are taken', (r) => r.ok && r.data.rejectedCount === 0);
}
