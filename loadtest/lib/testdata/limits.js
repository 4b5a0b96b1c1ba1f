// A script whose accounts need limits of ORDERS orders in 10 s.
import { plan } from '../levels.js';
import { requireLimit } from '../limits.js';
import { open } from '../vendor.js';

export const options = plan({ title: 'Limits', proves: 'Nothing.', levels: [], vus: 1, iterations: 1 });

export function setup() {
  const data = open(1);
  requireLimit(data, Number(__ENV.ORDERS));
  return data;
}

export default function () {}
