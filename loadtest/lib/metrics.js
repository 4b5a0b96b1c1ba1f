// What the library measures besides k6's own metrics. A rate is stated so that 1 is good, because
// a rate that nothing was added to is 0: what was never measured cannot hold.
import { Counter, Rate, Trend } from 'k6/metrics';

// answered: there was an answer, and it was no 5xx that the script had not asked for.
export const answered = new Rate('answered');

// admitted: the answer was not 429. refused counts those that were.
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
