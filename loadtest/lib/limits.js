// The limits that a script needs its accounts to have.
import exec from 'k6/execution';
import { dice, draw } from './orders.js';
import { vendor } from './vendor.js';

// requireLimit aborts the test unless the limit that an answer shows each account is at least `orders`
// orders. It creates and cancels one order for each account, because only answers show limits.
export function requireLimit(data, orders) {
  for (let i = 0; i < data.accounts.length; i++) {
    const { label } = data.accounts[i];
    const limit = limitOf(data, i);
    if (Number.isNaN(limit)) {
      exec.test.abort(`the answer to an order shows account ${label} no limit: there is no header X-RateLimit-Limit`);
    }
    if (limit < orders) {
      exec.test.abort(`account ${label} may send ${limit} orders in its tightest window, and this needs ${orders} in 10 s: `
        + `go run ./loadtest/k6 accounts -orders ${orders} raises the limits of accounts, and gives them back afterwards`);
    }
  }
}

// limitOf returns the limit that the answer to an order shows an account: that of its tightest window.
function limitOf(data, index) {
  const v = vendor(data, index);
  const a = v.create(draw(dice(1), data.stores[0], `${data.run}-limit-${v.account.label}`, 'SIM:HOLD=Searching'), 'Cancelled');
  if (a.status !== 201) exec.test.abort(`account ${v.account.label} cannot create an order: ${a}`);
  v.cancel(a.data.orderId);
  return a.limit;
}
