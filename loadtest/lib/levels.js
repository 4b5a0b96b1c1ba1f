// Service levels: k6 thresholds, each with a sentence for people, which stands beside
// the threshold in the script.

// What every script keeps to, whatever it does besides.
const always = [
  // The service never fails: no 5xx, and no request without an answer.
  level('http_req_failed', 'rate==0', 'no request ends in a 5xx or without an answer'),
  // Whatever is answered is what the contract says.
  level('checks', 'rate==1', 'every answer is what the contract says'),
  // Limit, Remaining and Reset on every answer, and a 429 that gives its wait twice.
  level('limit_headers_wrong', 'count==0', "every answer's X-RateLimit headers are there and make sense"),
];

// The service level `threshold` of `metric`, in words.
export function level(metric, threshold, words) {
  return { metric, threshold, words };
}

// A trend to show in the summary, by a threshold that always holds; no service
// level.
export function shown(metric) {
  return { metric, threshold: 'max>=0', words: '' };
}

let script; // what plan was given

// The options of a script: its title, the sentence that says what it proves,
// its own service levels, and k6's options.
export function plan({ title, proves, levels, ...options }) {
  const all = [...levels, ...always];
  script = { title, proves, levels: all };
  const thresholds = {};
  for (const l of all) (thresholds[l.metric] = thresholds[l.metric] || []).push(l.threshold);
  return {
    // No url: it holds order ids, and every one would be a time series of its own.
    systemTags: ['name', 'method', 'status', 'scenario', 'check', 'error', 'error_code', 'expected_response'],
    summaryTrendStats: ['avg', 'min', 'med', 'p(90)', 'p(95)', 'p(99)', 'max', 'count'],
    setupTimeout: '60s',
    userAgent: 'loadtest (k6)',
    ...options,
    thresholds,
  };
}

// k6 calls it at the end, in each script that exports it. It prints which service
// levels were held and how long requests took, and writes the former to the file
// SUMMARY for `make loadtest`. What was not measured was not held.
export function handleSummary({ metrics }) {
  const levels = script.levels.filter((l) => l.words).map((l) => {
    const metric = metrics[l.metric];
    const held = metric?.thresholds?.[l.threshold]?.ok === true;
    return { ...l, held, measured: metric ? measured(l, metric) : 'not measured' };
  });
  const lines = levels.map((l) => `${l.held ? '✓' : '✗'} ${l.words} (${l.threshold} of ${l.metric}): ${l.measured}`);
  for (const name of Object.keys(metrics).filter((n) => n.startsWith('http_req_duration')).sort()) {
    const values = Object.entries(metrics[name].values).map(([key, value]) => `${key} ${Number(value.toFixed(2))}`);
    lines.push(`  ${name}: ${values.join(', ')}`);
  }
  const out = { stdout: `\n${script.title}: ${script.proves}\n\n${lines.join('\n')}\n` };
  if (__ENV.SUMMARY) out[__ENV.SUMMARY] = JSON.stringify({ ...script, levels });
  return out;
}

// The value that the threshold bounds, with its unit.
function measured({ threshold }, { type, contains, values }) {
  if (type === 'rate') return `${(100 * values.rate).toFixed(values.rate % 1 ? 3 : 0)} %`; // 99.999 % is not 100 %
  const value = values[threshold.match(/^[^<>=!]+/)[0].trim()];
  if (value === undefined) return 'not measured';
  return contains === 'time' ? `${value.toFixed(value < 100 ? 1 : 0)} ms` : String(value);
}
