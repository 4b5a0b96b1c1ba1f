// Notes what textOfSteps() makes of each run of RUNS, and the scenarios of two steps. A run is a list of
// steps of one second, each as {offered, started, dropped, accepted, p99, emptyP99}.
import { ceilingScenario, scenariosOf, stepsOf, textOfSteps } from '../steps.js';

export const options = { vus: 1, iterations: 1 };

// metricsOf returns the metrics of a run as k6 gives them to handleSummary.
function metricsOf(steps, measured) {
  const metrics = { [`iterations{scenario:${ceilingScenario}}`]: { values: { count: 8000 } } };
  steps.forEach(({ scenario }, i) => {
    const { started, dropped, accepted, p99, emptyP99 } = measured[i];
    metrics[`iterations{scenario:${scenario}}`] = { values: { count: started } };
    metrics[`dropped_iterations{scenario:${scenario}}`] = { values: { count: dropped } };
    metrics[`orders_accepted{scenario:${scenario}}`] = { values: { count: accepted } };
    metrics[`http_req_duration{name:POST /orders,scenario:${scenario}}`] = { values: { count: started, 'p(99)': p99 } };
    metrics[`http_req_duration{name:GET empty path,scenario:${scenario}}`] = { values: { count: 10, 'p(99)': emptyP99 } };
  });
  return metrics;
}

export default function () {
  const runs = JSON.parse(__ENV.RUNS).map((measured) => {
    const steps = stepsOf(measured.map((m) => m.offered), 1);
    const { lines, result } = textOfSteps(steps, metricsOf(steps, measured));
    return { text: lines.join('\n'), knee: result.knee, ceiling: result.ceiling };
  });
  const scenarios = scenariosOf(stepsOf([100, 200], 5), { exec: 'offer', longestWait: 0.5 });
  console.log(`NOTE ${JSON.stringify({ runs, scenarios })}`);
}
