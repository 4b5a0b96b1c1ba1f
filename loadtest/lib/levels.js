// Service levels: k6 thresholds, each with a sentence for people. The sentence
// stands beside the threshold in the script, and `k6 inspect` hands it to the
// report (options.ext).

// What every script keeps to, whatever it does besides.
const always = [
  // The service never fails: no 5xx, and no request without an answer.
  level('http_req_failed', 'rate==0', 'no request ends in a 5xx or without an answer'),
  // Whatever is answered is what the contract says.
  level('checks', 'rate==1', 'every answer is what the contract says'),
  // Limit, Remaining and Reset on every answer, and a 429 that tells its wait twice.
  level('limit_headers_wrong', 'count==0', "every answer's X-RateLimit headers are there and make sense"),
];

// The service level `threshold` of `metric`, in words.
export function level(metric, threshold, words) {
  return { metric, threshold, words };
}

// A trend to show in k6's own summary, by a threshold that always holds; no
// service level.
export function shown(metric) {
  return { metric, threshold: 'max>=0', words: '' };
}

// The options of a script: its title, the sentence that says what it proves,
// its own service levels, and k6's options.
export function plan({ title, proves, levels, ...options }) {
  const all = [...levels, ...always];
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
    ext: { loadtest: { title, proves, levels: all } },
  };
}
