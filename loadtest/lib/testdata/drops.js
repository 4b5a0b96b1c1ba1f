// A rate that one virtual user cannot offer, and no level that says so.
import { sleep } from 'k6';
import { plan } from '../levels.js';
import { expect, open, vendor } from '../vendor.js';

export { handleSummary } from '../levels.js';
export const options = plan({
  title: 'Drops',
  proves: 'Nothing.',
  levels: [],
  scenarios: { till: { executor: 'constant-arrival-rate', rate: 50, duration: '1s', preAllocatedVUs: 1, maxVUs: 1, gracefulStop: '1s' } },
});

export function setup() {
  return open(1);
}

export default function (data) {
  expect(vendor(data, 0).put('store', {}), 'a store is there', (a) => a.ok);
  sleep(0.2);
}
