// What the library measures besides k6's own metrics. A rate is stated so that 1 is good.
import { Counter, Rate as PlainRate, Trend } from 'k6/metrics';

const countedRates = new Set();

// countOf returns the name of the counter of a rate's samples; undefined if the rate has none.
export function countOf(rate) {
  return countedRates.has(rate) ? `${rate}_samples` : undefined;
}

function newCountOf(rate) {
  countedRates.add(rate);
  return new Counter(countOf(rate));
}

// Rate is k6's Rate with a counter of its samples. k6 takes every threshold of a rate as held if nothing
// was added to the rate, and a threshold cannot ask how much was added. The counter's can.
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

// admitted: of the requests on which the service decided, those that were not answered 429; requests
// for tokens are left out. refused counts the answers 429, those to requests for tokens included.
export const admitted = new Rate('admitted');
export const refused = new Counter('refused');

// limitHeaders: the limits' headers were there and made sense.
export const limitHeaders = new Rate('limit_headers_right');

// resends counts requests that were sent again, and waited is how long the client slept because
// a limit or a lost answer made it: neither shows in the durations of requests.
export const resends = new Counter('resends');
export const waited = new Trend('waited', true);

// One sample for each accepted order and each registered store. Its metadata name the order and the
// status that it must end in, because the driver compares them with the webhooks.
export const accepted = new Counter('orders_accepted');
export const registered = new Counter('stores_registered');
