// Notes what measure() finds in each log of CASES, for the limits of WINDOWS, or for a limit of 2 in a
// second. A log is a list of [sent, answered, admitted].
import { measure } from '../window.js';

export const options = { vus: 1, iterations: 1 };

export default function () {
  const windows = JSON.parse(__ENV.WINDOWS || '[{"count": 2, "seconds": 1}]');
  const logs = JSON.parse(__ENV.CASES).map((log) => log.map(([sent, answered, admitted]) => ({ sent, answered, admitted })));
  console.log(`NOTE ${JSON.stringify(logs.map((log) => measure(log, windows)))}`);
}
