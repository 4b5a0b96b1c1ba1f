// Notes what the settings are read as: the origin, the accounts, the rates RATE and RATES, and what
// originOf() and seconds() make of the lists ORIGINS and DURATIONS.
import { accounts, origin, originOf, rateOf, ratesOf, seconds } from '../settings.js';

export const options = { vus: 1, iterations: 1 };

function outcome(f) {
  try {
    return { value: f() };
  } catch (e) {
    return { error: e.message };
  }
}

export default function () {
  const list = (text) => JSON.parse(text || '[]');
  console.log(`NOTE ${JSON.stringify({
    origin,
    accounts: accounts().map((a) => ({ clientId: a.clientId, label: a.label, length: a.clientSecret.length })),
    origins: list(__ENV.ORIGINS).map((text) => outcome(() => originOf(text))),
    rate: outcome(() => rateOf('RATE', 30)),
    rates: outcome(() => ratesOf('RATES', '25,50')),
    durations: list(__ENV.DURATIONS).map((text) => outcome(() => seconds(text))),
  })}`);
}
