// Service levels: k6 thresholds, each with a sentence for people beside it. A level for which nothing
// was measured is not held.
import exec from 'k6/execution';
import { aligned, megabytes, milliseconds } from './format.js';
import { countOf } from './metrics.js';
import { isPart } from './settings.js';
import { seriesOfSteps, textOfSteps } from './steps.js';
import { ceilingPath, emptyPath, tolerate } from './vendor.js';

// Counters of k6 and of this library. The `rate` of a counter is how many a second; if there were none
// it is 0. That of a Rate is a part of 1; k6 takes it as held if nothing was added.
const counters = ['http_reqs', 'iterations', 'data_sent', 'data_received', 'orders_accepted', 'stores_registered', 'refused', 'resends'];

// The service levels of every script.
const always = [
  level('answered', 'rate==1', 'every request is answered, with no failure that the script does not ask for'),
  level('checks', 'rate==1', 'every answer is what the contract says'),
  level('dropped_iterations', 'count==0', 'k6 offered everything that the rates ask for'),
  level('limit_headers_right', 'rate==1', "every answer's X-RateLimit headers are there and make sense"),
];

// level returns the service level `threshold` of `metric`; `words` say what it means.
//
// k6 takes most thresholds of a metric without samples as held. So a level has a guard: a second
// threshold that holds only if something was measured. A level whose threshold cannot hold without
// samples, such as count>0, needs none. For a count that must be 0 there is no guard: a count of 0 looks
// the same if nothing was measured. level() throws an error for it; use a rate, made by the Rate of
// metrics.js.
export function level(metric, threshold, words) {
  const guard = guardOf(metric, threshold);
  const isRate = aggregateOf(threshold) === 'rate' && !counters.includes(metric.split('{')[0]);
  const isUnguarded = !guard && (isRate || holdsOfNothing(threshold));
  if (isUnguarded) {
    throw new Error(`the level ${threshold} of ${metric} would hold if nothing was measured: state it as a rate of which 1 is good, made by new Rate() of lib/metrics.js`);
  }
  return { metric, threshold, words, guard };
}

// guardOf returns the guard of a level as {metric, threshold}, if there is one.
function guardOf(metric, threshold) {
  const aggregate = aggregateOf(threshold);
  const [name] = metric.split('{');
  const counted = (counter) => ({ metric: metric.replace(name, counter), threshold: 'count>0' });

  if (['avg', 'min', 'med', 'max'].includes(aggregate) || aggregate.startsWith('p(')) return { metric, threshold: 'max>0' };
  if (name === 'dropped_iterations') return counted('iterations');
  if (name === 'http_req_failed') return counted('http_reqs');
  if (aggregate === 'rate' && countOf(name)) return counted(countOf(name));
  return undefined;
}

// aggregateOf returns what a threshold compares, such as rate or p(95).
function aggregateOf(threshold) {
  return threshold.split(/[<>=!]/)[0].trim();
}

// quick returns the service level that `percent` of 100 answers to an endpoint with a status take less
// than `limit` ms. `make loadtest` takes it as held, too, if the time is at most `relative` times that of
// the empty path in the same run: then the machine was slow. `what` names the requests for people.
export function quick(endpoint, percent, limit, { status = 200, relative = 20, what = endpoint } = {}) {
  const metric = `http_req_duration{name:${endpoint},status:${status}}`;
  const words = `${what} takes less than ${limit} ms in ${percent} of 100 cases`;
  return { ...level(metric, `p(${percent})<${limit}`, words), relative };
}

// shown returns an entry for plan()'s levels that is no service level: it only has k6 keep a trend, so
// that the summary can show it.
export function shown(metric) {
  return { metric, threshold: 'max>=0', words: '' };
}

// holdsOfNothing reports whether a threshold would hold for the value 0, or for no value at all.
function holdsOfNothing(threshold) {
  const [, comparison = '', bound] = threshold.match(/([<>=!]+)\s*(-?[\d.]+)/) || [];
  const value = Number(bound);
  if (comparison.startsWith('<')) return true;
  if (comparison.startsWith('=')) return value === 0;
  if (comparison === '!=') return value !== 0;
  return comparison === '>=' ? value <= 0 : value < 0;
}

// Requests that have a line in every summary, if there were any.
const usual = [
  'POST /orders,status:201', 'POST /orders,status:429', 'POST /orders,status:503', 'GET /orders/{id},status:200',
  'POST /orders/{id}/cancel,status:200', 'PUT /stores/{id},status:200', 'POST /token,status:200', emptyPath, ceilingPath,
].map((tags) => shown(`http_req_duration{name:${tags}}`));

let script; // what plan() was given

// plan returns k6's options for a script.
//
//   title, proves, cannot  what it is called, proves and cannot prove, in words
//   levels                 its own service levels; those of every script come with them
//   needs                  what `make loadtest` has to provide: {accounts, orders, courier, fleet,
//                          outages}; orders is how many an account must be allowed in 10 s, courier
//                          'manual' means that no sandbox courier may deliver the orders
//   tolerates              failures that it asks for: 'busy' or 'outage' (vendor.js)
//   steps                  scenarios of rising rates, see steps.js
//   …                      k6's options, scenarios among them
export function plan({ title, proves, cannot = '', levels, needs = {}, tolerates = 'nothing', steps = [], ...options }) {
  tolerate(tolerates);
  const isLevel = (l) => l.words !== ''; // the others are of shown()

  // Whatever answers during an outage, such as a balancer, sends no limits' headers. Steps drop orders
  // where they break, and a script may have a level of its own for what may be dropped.
  const mayDrop = steps.length > 0 || levels.some((l) => l.metric.startsWith('dropped_iterations'));
  const applies = (l) => {
    if (l.metric === 'limit_headers_right') return tolerates !== 'outage';
    if (l.metric === 'dropped_iterations') return !mayDrop;
    return true;
  };
  script = { title, proves, cannot, steps, levels: [...levels.filter(isLevel), ...always.filter(applies)] };

  const thresholds = {};
  const add = (metric, threshold) => {
    thresholds[metric] = thresholds[metric] || [];
    const isAdded = thresholds[metric].some((t) => t.threshold === threshold);
    if (!isAdded) thresholds[metric].push({ threshold });
  };
  for (const l of [...script.levels, ...levels, ...usual]) {
    add(l.metric, inUse(l.threshold));
    if (l.guard) add(l.guard.metric, inUse(l.guard.threshold));
  }
  for (const [metric, threshold] of seriesOfSteps(steps)) add(metric, threshold);

  return {
    // No url: it holds order ids, and each would be a time series of its own. Without group k6 forgets
    // which checks failed.
    systemTags: ['name', 'method', 'status', 'scenario', 'group', 'check', 'error', 'error_code', 'expected_response'],
    summaryTrendStats: ['count', 'min', 'avg', 'p(50)', 'p(90)', 'p(95)', 'p(99)', 'p(99.9)', 'max'],
    setupTimeout: '3m',
    userAgent: 'loadtest (k6)',
    ...options,
    thresholds,
    ext: { ...options.ext, loadtest: { title, proves, cannot, needs } },
  };
}

// inUse returns a threshold as k6 gets it. In a part of a run, one that only asks whether anything was
// measured always holds: it makes k6 keep the metric.
function inUse(threshold) {
  const asksForAny = /^(count|max) *> *0$/.test(threshold);
  return isPart && asksForAny ? threshold.replace('>', '>=') : threshold;
}

// handleSummary is called by k6 at the end, in each script that exports it. It prints which service
// levels were held and what k6 measured, and writes the same to the file SUMMARY as JSON. With
// SUMMARY=k6 it leaves all of that to k6. When setup() ended the test it prints nothing: k6 has said
// why.
export function handleSummary(data) {
  if (__ENV.SUMMARY === 'k6') return undefined;

  const hasSetupData = data.setup_data !== undefined && data.setup_data !== null;
  const wasAborted = !hasSetupData && countIn(data.metrics, 'iterations') === 0;
  const levels = wasAborted ? [] : script.levels.map((l) => measure(l, data.metrics));
  const steps = wasAborted ? null : textOfSteps(script.steps, data.metrics);

  const out = { stdout: wasAborted ? '' : textOf(levels, steps, data) };
  if (__ENV.SUMMARY) {
    const { title, proves, cannot } = script;
    out[__ENV.SUMMARY] = JSON.stringify({
      title, proves, cannot, aborted: wasAborted, segment: exec.test.options.executionSegment, levels, ...(steps && steps.result), metrics: data.metrics, checks: checksOf(data.root_group),
    }, null, 1);
  }
  return out;
}

// measure returns a level with what k6 measured of it, as handleSummary writes it.
function measure({ metric, threshold, words, guard, relative }, metrics) {
  const found = metrics[metric];
  const decided = found && found.thresholds && found.thresholds[inUse(threshold)];
  const samples = found ? samplesOf(metric, guard, metrics) : 0;
  const held = samples > 0 && Boolean(decided) && decided.ok === true;
  return {
    metric, threshold, words, relative, samples,
    value: valueOf(threshold, found), unit: found && found.contains === 'time' ? 'ms' : '',
    measured: measuredText(threshold, found, samples), held,
  };
}

// samplesOf returns how many samples a metric has. k6 does not keep the number of a counter's samples,
// so its count is used instead.
function samplesOf(metric, guard, metrics) {
  const { values } = metrics[metric];
  if (metric.startsWith('dropped_iterations')) return countIn(metrics, guard.metric) + values.count;
  if (guard) return countIn(metrics, guard.metric);
  return values.count || 0;
}

// countIn returns the count of a metric; 0 if k6 has none.
function countIn(metrics, name) {
  return metrics[name] ? metrics[name].values.count || 0 : 0;
}

// valueOf returns the value that a threshold compares; null if k6 has none.
function valueOf(threshold, metric) {
  if (!metric) return null;
  const value = metric.values[aggregateOf(threshold).replace('med', 'p(50)')];
  return value === undefined ? null : value;
}

function measuredText(threshold, metric, samples) {
  if (samples === 0) return 'not measured';
  const value = valueOf(threshold, metric);
  if (value === null) return 'see the threshold';
  if (metric.type === 'rate') return percent(value);
  if (metric.contains === 'time') return `${milliseconds(value)} ms`;
  return String(Number(value.toFixed(3)));
}

// percent returns a rate as text. It rounds down, so that 99.9999 % does not look like 100 %.
function percent(rate) {
  if (rate === 0 || rate === 1) return `${100 * rate} %`;
  return `${(Math.floor(1e5 * rate) / 1e3).toFixed(3)} %`;
}

function textOf(levels, steps, data) {
  const { metrics } = data;
  const broken = levels.filter((l) => markOf(l) === '✗').length;
  const outcome = broken === 0 ? 'held' : `NOT HELD, ${broken} of ${levels.length} service levels`;

  const lines = ['', `${script.title}: ${outcome}`, script.proves];
  if (script.cannot) lines.push(script.cannot);
  lines.push('');
  for (const l of levels) {
    lines.push(`${markOf(l)} ${l.words}: ${l.measured} (${l.threshold} of ${l.metric}, ${l.samples} samples)`);
  }
  if (steps) lines.push('', ...steps.lines);
  lines.push('', ...durations(metrics), '', ...counts(data));
  return `${lines.join('\n')}\n`;
}

// markOf returns the sign before a level: held, not held, or "-" if this is a part of a run that did not
// measure it.
function markOf({ held, samples }) {
  if (held) return '✓';
  return isPart && samples === 0 ? '-' : '✗';
}

const statistics = ['p(50)', 'p(90)', 'p(95)', 'p(99)', 'p(99.9)', 'max'];

// durations returns the lines of a table: how long requests took, and the script's other trends.
function durations(metrics) {
  const rows = [['ms', 'count', ...statistics]];
  const names = Object.keys(metrics).filter((name) => metrics[name].type === 'trend' && isShown(name)).sort();
  for (const name of names) {
    const { values } = metrics[name];
    if (values.count > 0) rows.push([labelOf(name), String(values.count), ...statistics.map((s) => milliseconds(values[s]))]);
  }
  return aligned(rows);
}

// isShown reports whether a trend has a line in the table of durations.
function isShown(name) {
  const isPartOfRequest = /^http_req_(?!duration)/.test(name);
  const isOfIterations = /^(iteration_duration|group_duration)/.test(name);
  const isOfStep = name.includes('scenario:step_'); // steps have a table of their own
  const isDuplicate = name === 'http_req_duration{expected_response:true}';
  return !(isPartOfRequest || isOfIterations || isOfStep || isDuplicate);
}

// labelOf returns how the table names a trend.
function labelOf(name) {
  const [, tags] = name.match(/^http_req_duration\{(?:name:)?(.*)\}$/) || [];
  return tags ? tags.replace(/,status:/, ' ') : name;
}

// counts returns lines with what else k6 counted, in the same order in each run.
function counts({ metrics, state, root_group: root }) {
  const value = (name, key = 'count') => (metrics[name] ? metrics[name].values[key] || 0 : 0);
  const seconds = state.testRunDurationMs / 1000;
  const perSecond = (count) => `${count} (${(count / seconds).toFixed(1)}/s)`;

  const rows = [
    ['iterations', perSecond(value('iterations'))],
    ['dropped iterations', String(value('dropped_iterations'))],
    ['requests', `${perSecond(value('http_reqs'))}, with those to the empty path`],
    ['orders accepted', perSecond(value('orders_accepted'))],
    ['refused with 429', String(value('refused'))],
    ['sent again', String(value('resends'))],
    ['waited for limits and answers', `${(value('waited') * (value('waited', 'avg') / 1000)).toFixed(1)} s`],
    ['virtual users', `${value('vus_max', 'max')} at most`],
    ['data', `${megabytes(value('data_sent'))} sent, ${megabytes(value('data_received'))} received`],
    ['took', `${seconds.toFixed(1)} s`],
  ];
  for (const c of checksOf(root).filter((c) => c.fails > 0)) rows.push(['failed check', `${c.name}: ${c.fails} of ${c.passes + c.fails}`]);
  return aligned(rows);
}

// checksOf returns the checks of a group and of the groups in it.
function checksOf(group) {
  return [...group.checks.map(({ name, passes, fails }) => ({ name, passes, fails })), ...group.groups.flatMap(checksOf)];
}
