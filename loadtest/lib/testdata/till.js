// A till that creates orders in the way that HOW says, and notes each answer.
import exec from 'k6/execution';
import { plan } from '../levels.js';
import { dice, draw } from '../orders.js';
import { expect, open, vendor } from '../vendor.js';

export { handleSummary } from '../levels.js';
export const options = plan({
  title: 'A till',
  proves: 'What the library does with answers.',
  tolerates: __ENV.TOLERATES || 'nothing',
  levels: [],
  scenarios: {
    tills: {
      executor: 'per-vu-iterations', vus: Number(__ENV.VUS || 1), iterations: Number(__ENV.ITERATIONS || 1),
      maxDuration: '20s', gracefulStop: '0s',
    },
  },
});

export function setup() {
  return open(1);
}

// moreOf returns the last argument of call(): EXPECT is the status that is right.
const moreOf = (order) => ({ key: order.externalOrderId, expect: Number(__ENV.EXPECT) || undefined });

const ways = {
  call: (v, order) => v.call('POST', '/orders', 'POST /orders', order, moreOf(order)),
  create: (v, order) => v.create(order, 'Delivered'),
  createOnce: (v, order) => v.createOnce(order, 'Delivered'),
  createUntilAnswered: (v, order) => v.createUntilAnswered(order, 'Delivered', { within: Number(__ENV.WITHIN || 15) }),
};

export default async function (data) {
  const turn = exec.scenario.iterationInTest;
  const v = vendor(data, turn);
  const name = __ENV.SAME === 'yes' ? 'same' : turn; // the same order again and again, or others
  const order = draw(dice(1), data.stores[0], `${data.run}-${name}`, 'SIM:HOLD=Searching');

  let a;
  if (__ENV.HOW === 'callAsync') {
    a = await v.callAsync('POST', '/orders', 'POST /orders', order, moreOf(order));
  } else {
    a = ways[__ENV.HOW || 'createOnce'](v, order);
  }
  note(a);
  expect(a, 'an order is accepted', (r) => r.status === 201 && r.data.status === 'Searching');

  if (__ENV.ABORT === 'yes') exec.test.abort('the account is gone');
  if (__ENV.READ === 'yes') note(v.read(a.data.orderId));
  if (__ENV.CANCEL === 'yes') note(v.cancelUntilAnswered(a.data.orderId));
}

function note(a) {
  const { status, code, error, replayed, headersRight } = a;
  console.log(`NOTE ${JSON.stringify({ status, code, error, replayed, headersRight, text: String(a), orderId: a.data.orderId })}`);
}

export function teardown() {
  if (__ENV.ABORT_IN_TEARDOWN === 'yes') exec.test.abort('the teardown aborts');
}
