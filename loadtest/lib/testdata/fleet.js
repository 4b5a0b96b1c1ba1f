// A fleet's server that looks for jobs, alone and several times at once, and notes what it finds.
import { plan } from '../levels.js';
import { Fleet } from '../fleet.js';
import { expect } from '../vendor.js';

export { handleSummary } from '../levels.js';
export const options = plan({
  title: 'A fleet', proves: 'What the library does with the answers to a fleet.', levels: [], vus: 1, iterations: 1,
});

export default function () {
  const fleet = new Fleet();
  const { jobs, answer } = fleet.jobs('Searching');
  expect(answer, 'the fleet sees its jobs', (a) => a.ok);

  const calls = [1, 2, 3].map(() => ['GET', '/jobs?status=Assigned', 'fleet GET /jobs']);
  const statuses = fleet.callAll(calls).map((a) => a.status);
  console.log(`NOTE ${JSON.stringify({ jobs: jobs.map((job) => job.orderId), status: answer.status, statuses })}`);
}
