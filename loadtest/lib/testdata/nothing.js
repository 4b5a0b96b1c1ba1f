// A script without setup() that asks nothing of anybody.
import { plan } from '../levels.js';

export { handleSummary } from '../levels.js';
export const options = plan({
  title: 'A script without setup()', proves: 'Nothing.', levels: [], vus: 1, iterations: 1,
});

export default function () {}
