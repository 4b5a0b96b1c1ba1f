// What the library measures besides k6's own metrics. A rate is stated so that 1 is good.
import { Counter, Rate as PlainRate, Trend } from 'k6/metrics';

const countedRates = new Set();

// countOf returns the counter of a rate's samples, if the rate has one.
export function countOf(rate) {
  return countedRates.has(rate) ? `${rate}_samples` : undefined;
}

function newCountOf(rate) {
  countedRates.add(rate);
  return new Counter(countOf(rate));
}

// Rate is k6's Rate with a counter of its samples beside it. k6 takes every threshold of a rate that
// nothing was added to as held, and has no threshold of how much was added; the counter has one.
export class Rate {
  constructor(name) {
    this.rate = new PlainRate(name);
    this.samples = newCountOf(name);
  }

  add(value, tags) {
    this.rate.add(value, tags);
    this.samples.add(1, tags);
  }
}

// expectations counts what expect() has checked: it is the counter of k6's own rate `checks`.
export const expectations = newCountOf('checks');

// answered: there was an answer, and it was no 5xx that the script had not asked for.
export const answered = new Rate('answered');

// admitted: the service decided on the request, and the answer was not 429. refused counts those that
// were, also of tokens.
export const admitted = new Rate('admitted');
export const refused = new Counter('refused');

// limitHeaders: the limits' headers were there and made sense.
export const limitHeaders = new Rate('limit_headers_right');

// resends counts requests that were sent again, and waited is how long the client slept because
// a limit or a lost answer made it: neither shows in the durations of requests.
export const resends = new Counter('resends');
export const waited = new Trend('waited', true);

// One for each order and each store. The metadata name the order and the status that it must
// stay in, for whoever compares them with webhooks.
export const accepted = new Counter('orders_accepted');
export const registered = new Counter('stores_registered');
