// Steps: the same work offered at rising rates, each for some seconds, to find the knee: the last
// rate before the first that breaks. A step breaks when fewer than 999 of 1,000 offered orders were
// accepted or when p99 of the answers is above kneeP99. What k6 did not start, because all of its
// virtual users were waiting, was not accepted.
//
// k6 has a limit of its own, the ceiling, which is often lower than the service's. It is measured in
// the same run, with requests that cost the service next to nothing. A knee near it is k6's.
import { aligned, milliseconds } from './format.js';
import { emptyPath } from './vendor.js';

// kneeP99 is the p99 in ms above which a step breaks, and enoughAccepted the part of its orders that
// have to be accepted.
const kneeP99 = 100;
const enoughAccepted = 0.999;

// ceilingScenario is the name of the scenario that sends requests to the empty path as fast as k6 can.
export const ceilingScenario = 'ceiling';
const ceilingSeconds = 4;

// requestsPerOrder is how many requests a step sends for an order: it is created and cancelled.
const requestsPerOrder = 2;

// pauseBetween is how long a step may wait for its last answers before the next one begins, in seconds.
const pauseBetween = 5;

// stepsOf returns a step for each rate, as {scenario, offered, seconds}. Rates are in orders a second.
export function stepsOf(rates, seconds) {
  return rates.map((offered) => ({ scenario: `step_${String(offered).padStart(5, '0')}`, offered, seconds }));
}

// scenariosOf returns the k6 scenarios of steps: first the ceiling, then one rate after another. By
// Little's law a step needs its rate times the longest wait in virtual users, so with `longestWait`
// seconds k6 starts every order as long as answers take no longer than that.
export function scenariosOf(steps, { exec, longestWait }) {
  const vus = Math.max(...steps.map((s) => Math.ceil(s.offered * longestWait)));
  const scenarios = {
    [ceilingScenario]: { executor: 'constant-vus', exec: 'ceiling', vus: Math.min(vus, 50), duration: `${ceilingSeconds}s`, gracefulStop: '1s' },
  };

  let start = ceilingSeconds + 1;
  for (const { scenario, offered, seconds } of steps) {
    const needed = Math.ceil(offered * longestWait);
    scenarios[scenario] = {
      executor: 'constant-arrival-rate', exec, rate: offered, timeUnit: '1s', duration: `${seconds}s`, startTime: `${start}s`,
      preAllocatedVUs: needed, maxVUs: needed, gracefulStop: `${pauseBetween}s`,
    };
    start += seconds + pauseBetween;
  }
  return scenarios;
}

const durationIn = (scenario) => `http_req_duration{name:POST /orders,scenario:${scenario}}`;
const acceptedIn = (scenario) => `orders_accepted{scenario:${scenario}}`;
const emptyIn = (scenario) => `http_req_duration{name:${emptyPath},scenario:${scenario}}`;
const startedIn = (scenario) => `iterations{scenario:${scenario}}`;
const droppedIn = (scenario) => `dropped_iterations{scenario:${scenario}}`;

// seriesOfSteps returns the series that k6 has to keep for steps, as [metric, threshold]. The thresholds
// always hold: k6 keeps a series only if it has one.
export function seriesOfSteps(steps) {
  if (steps.length === 0) return [];
  const series = steps.flatMap(({ scenario }) => [
    [durationIn(scenario), 'max>=0'], [acceptedIn(scenario), 'count>=0'], [startedIn(scenario), 'count>=0'], [droppedIn(scenario), 'count>=0'], [emptyIn(scenario), 'max>=0'],
  ]);
  return [...series, [startedIn(ceilingScenario), 'count>=0']];
}

// textOfSteps returns the result of steps as {lines, result}: lines for people, and {steps, knee,
// kneeP99, ceiling}. It returns null for a script without steps.
export function textOfSteps(steps, metrics) {
  if (steps.length === 0) return null;

  const count = (metric) => (metrics[metric] ? metrics[metric].values.count || 0 : 0);
  const measured = steps.map((step) => {
    const started = count(startedIn(step.scenario));
    const dropped = count(droppedIn(step.scenario));
    const offered = offeredIn(step, started + dropped);
    const accepted = count(acceptedIn(step.scenario));
    const { values } = metrics[durationIn(step.scenario)] || { values: {} };
    const isAccepted = accepted >= enoughAccepted * offered;
    const isQuick = values.count > 0 && values['p(99)'] <= kneeP99;
    const isHeld = isAccepted && isQuick;
    const empty = (metrics[emptyIn(step.scenario)] || { values: {} }).values;
    return { ...step, total: offered, accepted, dropped, values, empty, isHeld };
  });

  const firstBroken = measured.findIndex((s) => !s.isHeld);
  const knee = kneeOf(steps, firstBroken);
  const ceiling = count(startedIn(ceilingScenario)) / ceilingSeconds / requestsPerOrder; // orders a second

  const rows = [['offered/s', 'orders', 'accepted', 'dropped', 'p50 ms', 'p95', 'p99', 'p99.9', 'max', 'empty p99', '']];
  for (const s of measured) {
    const quantiles = ['p(50)', 'p(95)', 'p(99)', 'p(99.9)', 'max'].map((q) => milliseconds(s.values[q]));
    rows.push([String(s.offered), String(s.total), String(s.accepted), String(s.dropped), ...quantiles, milliseconds(s.empty['p(99)']), s.isHeld ? 'held' : 'BROKEN']);
  }
  const lines = [
    ...aligned(rows),
    `  Durations are of the orders that k6 started; make loadtest counts those that it did not start as the slowest.`,
    `  Knee, the last rate before the first that breaks (fewer than 999 of 1,000 accepted, or p99 above ${kneeP99} ms): ${kneeText(steps, firstBroken)}.`,
    `  k6 itself can send ${ceiling.toFixed(0)} such orders a second at most on this machine, measured on an empty path.`,
  ];
  if (firstBroken >= 0) lines.push(`  ${causeOf(measured[firstBroken])}.`);
  return { lines, result: { steps, knee, kneeP99, ceiling } };
}

// offeredIn returns how many orders a step offered; begun is how many k6 started or dropped. k6 may begin
// one more or less than the rate asks for, because a step ends between two of them.
function offeredIn({ offered, seconds }, begun) {
  const asked = offered * seconds;
  return begun >= asked - 1 ? begun : asked;
}

// kneeOf returns the rate of the last step before the first that breaks. It is null if the first step
// breaks, and if none does (firstBroken is -1).
function kneeOf(steps, firstBroken) {
  return firstBroken > 0 ? steps[firstBroken - 1].offered : null;
}

// causeOf says whose limit broke a step, in words.
function causeOf({ values, empty, dropped }) {
  const isSlowEverywhere = empty.count > 0 && empty['p(99)'] >= values['p(99)'] / 2;
  if (isSlowEverywhere) {
    return `In the first step that breaks the empty path took p99 ${milliseconds(empty['p(99)'])} ms, too: k6, the machine or the network is at its limit, not the service`;
  }
  const hasFewUsers = dropped > 0 && values['p(99)'] <= kneeP99;
  if (hasFewUsers) return 'k6 had too few virtual users for the first step that breaks (LONGEST_WAIT)';
  return 'The first step that breaks is at the limit of the service';
}

// kneeText returns the knee for people.
function kneeText(steps, firstBroken) {
  if (firstBroken < 0) return `not reached at ${steps[steps.length - 1].offered}/s, the highest rate`;
  if (firstBroken === 0) return `below ${steps[0].offered}/s, the lowest rate`;
  return `${steps[firstBroken - 1].offered}/s`;
}
