// A vendor as the contract asks of one: it caches its token and renews it five
// minutes before the end, reads the limits' headers of every answer and keeps to
// them, waits as long as a 429 says, and gives every order an idempotency key.
//
// Settings, as environment variables or with -e:
//   BASE_URL                  origin of the Vendor API; http://127.0.0.1:8080
//   CLIENT_ID, CLIENT_SECRET  of one account; several: ACCOUNTS, a JSON list of
//                             {"clientId": …, "clientSecret": …}
//   FLEET_ID                  the fleet that delivers
//   DURATION                  of scripts whose length is free, such as 40s
import http from 'k6/http';
import exec from 'k6/execution';
import { check, sleep } from 'k6';
import { Counter } from 'k6/metrics';
import { setTimeout } from 'k6/timers';
import { branch } from './orders.js';

const base = `${__ENV.BASE_URL || 'http://127.0.0.1:8080'}/api/vendor/v1`;

// Tokens are renewed so long before they end (spec, "Authentication").
const renewal = 5 * 60 * 1000;

// Refusals are answers; failures are 5xx and silence.
const answers = http.expectedStatuses({ min: 200, max: 499 });
http.setResponseCallback(answers);

// Answered 429.
export const refused = new Counter('refused');
// Answers whose X-RateLimit or Retry-After headers are missing or make no sense.
const wrongHeaders = new Counter('limit_headers_wrong');
// One for each order and each store. Metadata names the order and the
// status it must end in, for whoever receives the webhooks.
const accepted = new Counter('orders_accepted');
const registered = new Counter('stores_registered');

// The accounts to play, as given by the settings.
export function accounts() {
  const list = __ENV.ACCOUNTS ? JSON.parse(__ENV.ACCOUNTS) : [{ clientId: __ENV.CLIENT_ID, clientSecret: __ENV.CLIENT_SECRET }];
  return list.map((a, i) => ({ ...a, label: String(i + 1) }));
}

export function seconds(duration) {
  const units = { ms: 0.001, s: 1, m: 60, h: 3600 };
  return [...duration.matchAll(/([\d.]+)(ms|s|m|h)/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}

// For setup(): signs every account in and registers `stores` branches for each.
// What it returns is what vendor() needs in the VUs.
export function open(stores = 1) {
  const list = accounts();
  if (!list.every((a) => a.clientId && a.clientSecret) || !__ENV.FLEET_ID) {
    exec.test.abort('set CLIENT_ID, CLIENT_SECRET and FLEET_ID; `make run` writes them to .data/demo.env');
  }
  const vendors = list.map((account) => new Vendor(account));
  const ids = [...Array(stores).keys()].map((n) => `loadtest-${n + 1}`);
  for (const v of vendors) {
    v.renew();
    ids.forEach((id, n) => v.register(id, branch(n)));
  }
  for (const v of vendors) for (const id of ids) v.awaitActive(id);
  return { run: Date.now().toString(36), stores: ids, accounts: vendors.map((v) => v.account) };
}

const known = {}; // one Vendor per account and VU

// The vendor number `index` of what open() returned, with this VU's connections.
export function vendor(data, index) {
  const account = data.accounts[index % data.accounts.length];
  return (known[account.label] = known[account.label] || new Vendor(account));
}

export class Vendor {
  constructor(account) {
    this.account = { ...account };
    this.tags = { account: account.label };
    this.quota = {}; // the last answer of each endpoint, for its bucket's state
  }

  // Gets a token. It counts against 60 per hour and account, so at most some
  // dozen VUs may share an account in a run of more than 55 minutes.
  renew() {
    const { clientId, clientSecret } = this.account;
    const a = this.settle(this.send('POST', '/token', 'POST /token', { clientId, clientSecret }));
    if (!a.ok) exec.test.abort(`no token: answered ${a.status} ${a.code}`);
    this.account.token = a.data.accessToken;
    this.account.expires = Date.now() + a.data.expiresIn * 1000;
  }

  // One call. An expired token is renewed and the call sent once more.
  call(method, path, name, body, more) {
    if (Date.now() > this.account.expires - renewal) this.renew();
    let a = this.settle(this.send(method, path, name, body, more));
    if (a.code === 'TOKEN_EXPIRED') {
      this.renew();
      a = this.settle(this.send(method, path, name, body, more));
    }
    this.quota[name] = a;
    return a;
  }

  // The same without waiting, for several calls of one VU at once.
  async callAsync(method, path, name, body, more) {
    if (Date.now() > this.account.expires - renewal) this.renew();
    const sent = Date.now();
    return this.settle({ sent, response: await http.asyncRequest(...this.request(method, path, name, body, more)) });
  }

  // call, not before something remains, and after a 429 again once the wait is
  // over that it asks for.
  resend(...call) {
    const last = this.quota[call[2]];
    if (last && last.remaining === 0) sleep(Math.max(0, last.reset - Date.now() / 1000));
    let a = this.call(...call);
    for (let tries = 1; a.status === 429 && tries < 5; tries++) {
      sleep(a.retryAfter);
      a = this.call(...call);
    }
    return a;
  }

  // Creates an order. `end` is the status that it must stay in at last.
  create(order, end, key = order.externalOrderId) {
    return this.took(this.resend('POST', '/orders', 'POST /orders', order, { key }), end);
  }

  // Notes an order whose creation is answered.
  took(a, end) {
    const fresh = a.status === 201 && !a.replayed;
    if (fresh) this.note(accepted, { order: a.data.orderId, end });
    return a;
  }

  read(orderId) {
    return this.call('GET', `/orders/${orderId}`, 'GET /orders/{id}');
  }

  cancel(orderId) {
    return this.resend('POST', `/orders/${orderId}/cancel`, 'POST /orders/{id}/cancel', { reason: 'CustomerRequest', note: 'vazgeçti' });
  }

  put(storeId, store) {
    return this.resend('PUT', `/stores/${storeId}`, 'PUT /stores/{id}', store);
  }

  // Registers a branch in the two steps of the spec.
  register(id, store) {
    const fleetId = __ENV.FLEET_ID;
    const first = this.put(id, store);
    if (first.ok && first.data.status === 'Active') return;
    const offered = first.ok && (first.data.availableFleets || []).some((f) => f.fleetId === fleetId);
    const second = this.put(id, { ...store, fleetId });
    if (!offered || !second.ok) exec.test.abort(`store ${id} cannot have the fleet: ${first.body} ${second.body}`);
    this.note(registered, { store: id });
  }

  // Asks until the fleet has confirmed the branch, at most half a minute.
  awaitActive(id) {
    for (let i = 0; i < 60; i++) {
      const a = this.put(id, {});
      if (a.ok && a.data.status === 'Active') return;
      sleep(0.5);
    }
    exec.test.abort(`no fleet has confirmed store ${id}; the sandbox courier does (COURIER=auto)`);
  }

  // Adds one to a counter, with metadata: that costs no time series.
  note(counter, metadata) {
    const there = exec.vu.metrics.metadata;
    for (const name of Object.keys(metadata)) there[name] = metadata[name];
    counter.add(1, this.tags);
    for (const name of Object.keys(metadata)) delete there[name];
  }

  request(method, path, name, body, { key, expect } = {}) {
    const headers = { 'Content-Type': 'application/json' };
    if (this.account.token && name !== 'POST /token') headers.Authorization = `Bearer ${this.account.token}`;
    if (key) headers['X-Idempotency-Key'] = key;
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const responseCallback = expect ? http.expectedStatuses(expect) : answers;
    return [method, base + path, text, { headers, responseCallback, tags: { ...this.tags, name }, timeout: '30s' }];
  }

  send(...call) {
    const sent = Date.now();
    return { sent, response: http.request(...this.request(...call)) };
  }

  // What an answer says, checked for what holds of every answer.
  settle({ sent, response }) {
    const a = new Answer(sent, response);
    if (a.status === 429) refused.add(1, this.tags);
    wrongHeaders.add(a.status === 0 || a.headersRight() ? 0 : 1, this.tags);
    return a;
  }
}

// One answer. `sent` and `answered` bound the moment at which the service
// counted the request, in ms.
class Answer {
  constructor(sent, response) {
    this.sent = sent;
    this.answered = Date.now() + 1; // Date.now() cuts off the rest of the millisecond
    this.status = response.status;
    this.body = response.body;
    const header = (name) => (name in response.headers ? Number(response.headers[name]) : NaN);
    this.limit = header('X-Ratelimit-Limit');
    this.remaining = header('X-Ratelimit-Remaining');
    this.reset = header('X-Ratelimit-Reset');
    this.retryAfter = header('Retry-After');
    this.replayed = response.headers['Idempotent-Replayed'] === 'true';
  }

  get ok() { return this.status >= 200 && this.status < 300; }

  get envelope() {
    if (this.parsed === undefined) {
      try { this.parsed = JSON.parse(this.body); } catch (_) { this.parsed = { data: {} }; }
    }
    return this.parsed;
  }

  get data() { return this.envelope.data || {}; }

  get code() { return this.ok ? '' : this.data.errorCode || ''; }

  // Spec, "Limits", rules 2 and 3. Every answer to an authenticated request
  // shows its bucket. Reset lies in the future, up to a second for its rounding,
  // and within the longest window, an hour.
  headersRight() {
    if (this.status === 401) return true; // nobody's bucket
    const whole = [this.limit, this.remaining, this.reset].every(Number.isInteger);
    const now = this.sent / 1000;
    const sane = whole && this.limit > 0 && this.remaining >= 0 && this.remaining < this.limit + 1
      && this.reset > now - 1 && this.reset < now + 3602;
    if (this.status !== 429) return sane;
    return sane && this.remaining === 0 && Number.isInteger(this.retryAfter) && this.retryAfter >= 1
      && this.retryAfter === this.data.retryAfterSeconds;
  }
}

// Waits without holding up the VU's other calls.
export function pause(ms) {
  return new Promise((resume) => setTimeout(resume, ms));
}

// Checks what an answer must be, and says on the console what it was instead.
export function expect(a, what, holds) {
  const ok = check(a, { [what]: holds });
  if (!ok) console.warn(`not so: ${what}: answered ${a.status} ${String(a.body).slice(0, 300)}`);
  return ok;
}
