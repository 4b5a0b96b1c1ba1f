// Notes what expect() returns for a condition that holds, one that does not, and one that throws.
import { plan } from '../levels.js';
import { expect } from '../vendor.js';

export { handleSummary } from '../levels.js';
export const options = plan({ title: 'Conditions', proves: 'Nothing.', levels: [], vus: 1, iterations: 1 });

export default function () {
  const a = { status: 200, body: 'the body' };
  const results = [
    expect(a, 'a condition that is true', () => true),
    expect(a, 'a condition that is false', () => false),
    expect(a, 'a condition that throws an error', (r) => r.data.events.length > 0),
  ];
  console.log(`NOTE ${JSON.stringify(results)}`);
}
