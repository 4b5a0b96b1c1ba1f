// For each line of {secrets, headers, body} on standard input (the body in base64) prints the status that
// is answered and what is known of the orders then.
const { receive } = require('./receive.js');
const state = { seen: new Set(), orders: new Map() };
for (const line of require('node:fs').readFileSync(0, 'utf8').trim().split('\n')) {
  const c = JSON.parse(line);
  const status = receive(state, c.secrets, c.headers, Buffer.from(c.body, 'base64'));
  console.log([status, ...[...state.orders].map(([id, order]) => `${id}=${order.status}`).sort()].join(' '));
}
