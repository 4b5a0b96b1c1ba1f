// Notes an order as it was drawn, the same order drawn again, and what a change made of it.
import { apply, dice, draw } from '../orders.js';

export const options = { vus: 1, iterations: 1 };

export default function () {
  const drawn = draw(dice(7), 'store', 'order', 'SIM:HOLD=Searching');
  const again = draw(dice(7), 'store', 'order', 'SIM:HOLD=Searching');
  const changed = draw(dice(7), 'store', 'order', 'SIM:HOLD=Searching');
  apply({ recipient: { phone: 'wrong' }, orderAmount: 12.345, readyAt: 'late', payment: { type: 'Barter' } }, changed);
  console.log(`NOTE ${JSON.stringify({ drawn, again, changed })}`);
}
