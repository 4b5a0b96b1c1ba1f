// The settings of a run: environment variables, or -e NAME=value.
//
//   BASE_URL        where the Vendor API is: http://127.0.0.1:8080 unless set. A trailing slash,
//                   the path /api/vendor/v1 and a missing scheme are all right; the scheme is then
//                   http for private addresses and names without a dot, and https for others.
//   CLIENT_ID, CLIENT_SECRET
//                   the credentials of one account; of several:
//   ACCOUNTS        a file with a JSON list of {"clientId": …, "clientSecret": …}, or that list
//                   itself. `go run ./loadtest/k6 accounts` makes such accounts and such a file.
//   FLEET_ID        the fleet that delivers; needed only where several serve the stores.
//   DURATION        how long a script takes, if that can be chosen, such as 40s, 90m or 1d.
//   OPS_URL, FLEET_CLIENT_ID, FLEET_CLIENT_SECRET
//                   a fleet and its API: with them the scripts confirm their stores themselves.
//                   mixed.js needs them.
//   FRESH           yes: the accounts have not been used during the last minute.
//   PART            yes: this is one part of a distributed run. A level that this part does not
//                   measure does not fail it; another part may measure it.
//   SUMMARY         a file for the results, in JSON; or the word k6, for k6's own summary instead of the
//                   library's.
//
// k6 writes down what setup() returns, so there are no secrets in that (see tokens.js).
import { isText } from './answer.js';

// privateHost matches the beginning of a URL without a scheme whose host is private, or has no dot.
const privateHost = /^([^.:/[\]]+|\[::1\]|127\.[\d.]+|10\.[\d.]+|192\.168\.[\d.]+|172\.(1[6-9]|2\d|3[01])\.[\d.]+)(:|\/|$)/;

// originOf returns the part of a URL before /api/vendor/v1 or /api/fleet/v1, without a slash at its
// end. There may be a password in the URL, so the error that it throws for a wrong one does not repeat it.
export function originOf(text, setting = 'BASE_URL') {
  const given = text.trim();
  const scheme = privateHost.test(given) ? 'http://' : 'https://';
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(given) ? given : scheme + given;

  const parts = url.match(/^(https?:\/\/(?:\[[0-9a-f:.]+\]|[^/?#@:\s]+)(?::\d+)?)(\/[^?#@\s]*)?$/i);
  if (!parts) {
    throw new Error(`${setting} must be like https://api.example.com, without credentials, query or fragment`);
  }
  const [, host, path = ''] = parts;
  return host + path.replace(/\/api\/(vendor|fleet)(\/.*)?$/, '').replace(/\/+$/, '');
}

export const origin = originOf(__ENV.BASE_URL || 'http://127.0.0.1:8080');
export const fleetId = __ENV.FLEET_ID || '';
export const fresh = __ENV.FRESH === 'yes';
export const isPart = __ENV.PART === 'yes';

export const fleetAccess = __ENV.OPS_URL && __ENV.FLEET_CLIENT_ID && __ENV.FLEET_CLIENT_SECRET
  ? { origin: originOf(__ENV.OPS_URL, 'OPS_URL'), clientId: __ENV.FLEET_CLIENT_ID, clientSecret: __ENV.FLEET_CLIENT_SECRET }
  : null;

const list = readAccounts();

// readAccounts returns the accounts of ACCOUNTS, or the one of CLIENT_ID and CLIENT_SECRET, which may be
// empty.
function readAccounts() {
  const given = (__ENV.ACCOUNTS || '').trim();
  if (given === '') {
    return [{ clientId: __ENV.CLIENT_ID || '', clientSecret: __ENV.CLIENT_SECRET || '' }];
  }

  const isJSON = /^[[{"]/.test(given);
  const accounts = parsed(isJSON ? given : textOfFile(given));
  const isComplete = (a) => a && isText(a.clientId) && isText(a.clientSecret);
  if (!Array.isArray(accounts) || accounts.length === 0 || !accounts.every(isComplete)) {
    throw new Error('ACCOUNTS must be a JSON list of {"clientId": …, "clientSecret": …}, or a file with one');
  }
  return accounts;
}

// textOfFile returns the text of a file. The error that it throws does not name the file, because what
// was given as its name may be a secret.
function textOfFile(path) {
  try {
    return open(absolute(path));
  } catch (_) {
    throw new Error('ACCOUNTS must be a JSON list of {"clientId": …, "clientSecret": …}, or a file with one: '
      + 'it is no such list, and no file that can be read, counted from the folder where k6 is started');
  }
}

// parsed returns the value of a JSON text; null if it is none.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (_) {
    return null;
  }
}

// absolute returns a path from the root. A relative path begins at the working directory, as in a
// shell; k6 itself would begin at the script's folder.
function absolute(path) {
  return path.startsWith('/') || !__ENV.PWD ? path : `${__ENV.PWD}/${path}`;
}

// accounts returns the accounts to play as {clientId, clientSecret, label}. The label is the account's
// place in the list, from 1; k6's figures have it as a tag. Without credentials there is one account,
// which cannot sign in, so that `k6 inspect` can read the script.
export function accounts() {
  return list.map(({ clientId, clientSecret }, i) => ({ clientId, clientSecret, label: String(i + 1) }));
}

// missingCredentials reports whether the settings name no account.
export function missingCredentials() {
  return !list.every((a) => a.clientId && a.clientSecret);
}

// rateOf returns a setting as a rate, a whole number above 0.
export function rateOf(name, otherwise) {
  const rates = ratesOf(name, String(otherwise));
  if (rates.length > 1) throw new Error(`${name} is "${__ENV[name]}": it must be one whole number above 0`);
  return rates[0];
}

// ratesOf returns a setting that is a list of at least one rate, separated by commas.
export function ratesOf(name, otherwise) {
  const given = __ENV[name] || otherwise;
  const rates = given.split(',').map(Number);
  if (!rates.every((rate) => Number.isInteger(rate) && rate > 0)) {
    throw new Error(`${name} is "${given}": it must be a whole number above 0, or a list of them where the script takes several`);
  }
  return rates;
}

const units = { d: 86400, h: 3600, m: 60, s: 1, ms: 1e-3, us: 1e-6, 'µs': 1e-6, ns: 1e-9 };

// seconds reads a duration as k6 does: 1h30m, 1d, 500ms, or a number of milliseconds.
export function seconds(duration) {
  const text = String(duration).trim();
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) / 1000;
  if (!/^(\d+(\.\d+)?(d|h|ms|us|µs|ns|m|s))+$/.test(text)) {
    throw new Error(`"${duration}" is no duration: write 90s, 30m, 1h30m or 1d`);
  }

  let sum = 0;
  for (const [, count, unit] of text.matchAll(/(\d+(?:\.\d+)?)(d|h|ms|us|µs|ns|m|s)/g)) {
    sum += Number(count) * units[unit];
  }
  return sum;
}
