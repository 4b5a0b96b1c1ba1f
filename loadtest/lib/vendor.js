// A vendor as the contract asks of one: it keeps its token and renews it before its end, reads
// the limits' headers of every answer and keeps to them, waits as long as a 429 says, gives
// every order an idempotency key, and sends the same bytes again when an answer is lost.
//
// A script signs its accounts in with open() in setup(), and uses vendor() in its VUs. The
// settings are explained in settings.js.
import http from 'k6/http';
import exec from 'k6/execution';
import { check, sleep } from 'k6';
import { setTimeout } from 'k6/timers';
import { Answer, isText, listIn } from './answer.js';
import { confirmStore } from './fleet.js';
import { accepted, admitted, answered, expectations, limitHeaders, refused, registered, resends, waited } from './metrics.js';
import { branch } from './orders.js';
import { send, sendAsync } from './request.js';
import { accounts, fleetId, missingCredentials, origin, seconds } from './settings.js';
import { seal, unseal } from './tokens.js';

export { accounts, seconds };

const api = `${origin}/api/vendor/v1`;

// Tokens are renewed so long before their end (spec, "Authentication"), in milliseconds. VUs that
// share an account spread their renewals over the time before that.
const renewal = 5 * 60 * 1000;
const spread = 20 * 60 * 1000;

const timeout = '30s';

// A request to a path that no route takes is answered without Redis. It shows what of an answer's
// time belongs to the machine, the network and k6 itself: the library sends one before every tenth
// request. `make loadtest` measures by it, and so do the levels' relative limits.
export const emptyPath = 'GET empty path';
const emptyEvery = 10;
let untilEmpty = 1;

// askEmptyPath sends one such request.
export function askEmptyPath(tags = {}) {
  return send('GET', `${api}/empty-path`, null, {
    tags: { ...tags, name: emptyPath }, responseCallback: http.expectedStatuses(404), timeout,
  });
}

// ceilingPath is the name of what rehearse() sends.
export const ceilingPath = 'POST empty path';

// tolerated is which failures the script asks for: 'nothing'; 'busy', a 503 that says when to come
// again; or 'outage', any 5xx and no answer at all. plan() sets it.
let tolerated = 'nothing';

export function tolerate(failures) {
  tolerated = failures;
}

// open signs every account in and registers `stores` branches for each, from setup(). It returns
// what vendor() needs in the VUs: {run, stores, accounts}. It aborts the test, with the reason,
// when the service cannot be used.
export function open(stores = 1) {
  if (missingCredentials()) {
    exec.test.abort('set CLIENT_ID and CLIENT_SECRET, or ACCOUNTS; `make run` writes the former to .data/demo.env');
  }

  const vendors = accounts().map((account) => new Vendor(account));
  const ids = Array.from({ length: stores }, (_, n) => `loadtest-${n + 1}`);
  for (const v of vendors) {
    v.signIn();
    ids.forEach((id, n) => v.register(id, branch(n)));
  }
  for (const v of vendors) {
    for (const id of ids) v.awaitActive(id);
  }

  return { run: Date.now().toString(36), stores: ids, accounts: vendors.map((v) => v.shared()) };
}

const vendors = {}; // of this VU, by label: each keeps its token and connections

// vendor returns number `index` of the accounts that open() returned, counted from 0 and around.
export function vendor(data, index) {
  const shared = data.accounts[index % data.accounts.length];
  if (!vendors[shared.label]) vendors[shared.label] = Vendor.from(shared);
  return vendors[shared.label];
}

export class Vendor {
  constructor({ clientId, clientSecret, label }) {
    this.account = { clientId, clientSecret, label, token: '', expires: 0 };
    this.tags = { account: label };
    this.renewEarlier = Math.random() * spread; // ms
    this.renewNotBefore = 0; // ms since 1970; after a refused renewal
    this.quota = {}; // the last answer by name of request, for its limit's state
  }

  // shared returns what the VUs need of an account that has signed in, without its secrets.
  shared() {
    const { label, token, expires, clientSecret } = this.account;
    return { label, expires, ...seal(token, clientSecret) };
  }

  static from(shared) {
    const v = new Vendor(accounts().find((a) => a.label === shared.label));
    v.account.token = unseal(shared, v.account.clientSecret);
    v.account.expires = shared.expires;
    return v;
  }

  // signIn gets the first token, or aborts the test.
  signIn() {
    let a = this.askForToken();
    for (let tries = 1; a.isOutage && tries < 3; tries++) {
      this.wait(1);
      a = this.askForToken();
    }
    if (a.status === 0) exec.test.abort(`nothing answers at ${origin}: ${a.error}`);
    if (a.status === 404) exec.test.abort(`BASE_URL is ${origin}, and there is no Vendor API: ${a}`);
    if (a.ok && !a.givesToken) exec.test.abort(`BASE_URL is ${origin}, and there is no Vendor API: POST /token is answered ${a.status} without a token`);
    if (!a.ok) exec.test.abort(`account ${this.account.label} (${this.account.clientId}) gets no token: ${a}`);
  }

  askForToken() {
    const { clientId, clientSecret } = this.account;
    const a = this.exchange('POST', '/token', 'POST /token', { clientId, clientSecret });
    if (a.givesToken) {
      this.account.token = a.data.accessToken;
      this.account.expires = Date.now() + a.data.expiresIn * 1000;
    }
    return a;
  }

  // ensureToken renews the token when it is due. An account may get 60 an hour: while a renewal is
  // refused the old token is used until its end, and only then is there something to wait for. It
  // returns the answer that left the vendor without a token; otherwise nothing.
  ensureToken() {
    const now = Date.now();
    const due = this.account.expires - renewal - this.renewEarlier;
    const isRefused = now < this.renewNotBefore && this.hasValidToken();
    if (now < due || isRefused) return undefined;

    let a = this.askForToken();
    if (a.status === 429 && this.hasValidToken()) {
      this.renewNotBefore = Date.now() + a.wait(1) * 1000;
      return undefined;
    }
    while (a.status === 429) {
      this.wait(a.wait(1));
      a = this.askForToken();
    }
    if (a.status === 401 || a.status === 403) {
      exec.test.abort(`account ${this.account.label} (${this.account.clientId}) gets no token: ${a}`);
    }
    return this.hasValidToken() ? undefined : a;
  }

  // hasValidToken reports whether the token holds for another five seconds at least.
  hasValidToken() {
    return Date.now() < this.account.expires - 5000;
  }

  // call sends one request. A token that has expired is renewed and the request sent again.
  call(method, path, name, body, more) {
    const failed = this.ensureToken();
    if (failed) return failed;

    let a = this.exchange(method, path, name, body, more);
    if (a.code === 'TOKEN_EXPIRED') {
      this.account.expires = 0;
      const failedAgain = this.ensureToken();
      if (failedAgain) return failedAgain;
      resends.add(1, { ...this.tags, name, reason: a.code });
      a = this.exchange(method, path, name, body, more);
    }
    this.quota[name] = a;
    return a;
  }

  // callAsync is call for several requests of one VU at once; it does not send again.
  async callAsync(method, path, name, body, more) {
    const failed = this.ensureToken();
    if (failed) return failed;

    const sent = Date.now();
    const response = await sendAsync(...this.request(method, path, name, body, more));
    return this.settle(new Answer(sent, response), name);
  }

  // resend is call, not before something of the limit remains, and after a 429 again once the wait
  // is over that it asks for, five times at most.
  resend(...call) {
    const name = call[2];
    const last = this.quota[name];
    const isUsedUp = last && last.remaining === 0 && last.headersRight;
    if (isUsedUp) this.wait(last.reset - Date.now() / 1000);

    let a = this.call(...call);
    for (let tries = 1; a.status === 429 && tries < 5; tries++) {
      this.wait(a.wait(1));
      resends.add(1, { ...this.tags, name, reason: a.code });
      a = this.call(...call);
    }
    return a;
  }

  // create creates an order. `end` is the status that it must stay in at last.
  create(order, end, key = order.externalOrderId) {
    return this.took(this.resend('POST', '/orders', 'POST /orders', order, { key }), end);
  }

  // createOnce is create with a single request, whatever it is answered.
  createOnce(order, end, key = order.externalOrderId) {
    return this.took(this.call('POST', '/orders', 'POST /orders', order, { key }), end);
  }

  // createUntilAnswered is the till that lost its answer: it sends the same bytes with the same key
  // again until the service has decided, for the last time within `within` seconds. The order is
  // created once, whether or not the request whose answer was lost had created it.
  createUntilAnswered(order, end, { within = 60, key = order.externalOrderId } = {}) {
    const bytes = JSON.stringify(order);
    const a = this.untilAnswered(within, 'POST', '/orders', 'POST /orders', bytes, { key });
    if (a.status === 201) this.noteAccepted(a, end);
    return a;
  }

  // cancelUntilAnswered cancels an order; a second cancellation is answered like the first.
  cancelUntilAnswered(orderId, { within = 60 } = {}) {
    return this.untilAnswered(within, 'POST', `/orders/${orderId}/cancel`, 'POST /orders/{id}/cancel', { reason: 'CustomerRequest', note: 'vazgeçti' });
  }

  // untilAnswered sends a request that may be repeated until the service has decided on it, and
  // returns the last answer. It sends it for the last time within `within` seconds.
  untilAnswered(within, ...call) {
    const deadline = Date.now() + within * 1000;
    const name = call[2];

    let a = this.call(...call);
    for (let pause = 0.1; isUndecided(a); pause = Math.min(2, pause * 2)) {
      const time = a.wait(pause * (0.5 + Math.random()));
      if (Date.now() + time * 1000 > deadline) return a;

      this.wait(time);
      resends.add(1, { ...this.tags, name, reason: a.code || String(a.status) });
      a = this.call(...call);
    }
    return a;
  }

  // rehearse does what creating an order asks of k6, on the empty path, which asks next to nothing of
  // the service: as often as k6 can do that, it can create orders at most.
  rehearse(order) {
    const sent = Date.now();
    const response = send(...this.request('POST', '/empty-path', ceilingPath, order, { key: order.externalOrderId }));
    return new Answer(sent, response).code;
  }

  // took notes an order whose creation is answered, unless it is a replay of an earlier one.
  took(a, end) {
    const isNew = a.status === 201 && !a.replayed;
    if (isNew) this.noteAccepted(a, end);
    return a;
  }

  noteAccepted(a, end) {
    const { orderId } = a.data;
    if (!isText(orderId)) {
      expect(a, 'an accepted order has an id', () => false); // only then: a check of every order would cost much
      return;
    }
    this.note(accepted, { order: orderId, end });
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

  // register registers a branch in the two steps of the spec, with the fleet of the settings. It
  // aborts the test when that fleet does not serve the branch.
  register(id, store) {
    const first = this.put(id, store);
    if (!first.ok) exec.test.abort(`store ${id} cannot be registered: ${first}`);

    const chosen = fleetFor(id, first.data);
    const hasFleet = first.data.status === 'Active' && (!fleetId || servedBy(first.data) === fleetId);
    if (hasFleet) return;

    const second = this.put(id, { ...store, fleetId: chosen });
    if (!second.ok) exec.test.abort(`store ${id} cannot have the fleet ${chosen}: ${second}`);
    this.note(registered, { store: id });
  }

  // awaitActive asks until the fleet has confirmed the branch, for half a minute at most.
  awaitActive(id) {
    for (let i = 0; i < 60; i++) {
      const a = this.put(id, {});
      if (a.ok && a.data.status === 'Active') return;
      confirmStore(id);
      sleep(0.5);
    }
    exec.test.abort(`no fleet has confirmed store ${id} of account ${this.account.label}: the sandbox courier does (COURIER=auto), `
      + 'and so do the scripts themselves with OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET');
  }

  // wait sleeps, and shows it.
  wait(time) {
    const needed = Math.max(0, time) || 0;
    waited.add(needed * 1000, this.tags);
    sleep(needed);
  }

  // note adds one to a counter with metadata, which k6 makes no time series of.
  note(counter, metadata) {
    const shown = exec.vu.metrics.metadata;
    for (const name of Object.keys(metadata)) shown[name] = metadata[name];
    counter.add(1, this.tags);
    for (const name of Object.keys(metadata)) delete shown[name];
  }

  request(method, path, name, body, { key, expect: expected } = {}) {
    const headers = { 'Content-Type': 'application/json' };
    if (this.account.token && name !== 'POST /token') headers.Authorization = `Bearer ${this.account.token}`;
    if (key) headers['X-Idempotency-Key'] = key;

    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const statuses = expected ? [expected] : expectedStatuses();
    return [method, api + path, text, {
      headers, responseCallback: http.expectedStatuses(...statuses), tags: { ...this.tags, name }, timeout,
    }];
  }

  // exchange sends a request and returns its answer, which has been held against the contract.
  exchange(method, path, name, body, more) {
    untilEmpty--;
    if (untilEmpty === 0) {
      untilEmpty = emptyEvery;
      askEmptyPath();
    }

    const sent = Date.now();
    const response = send(...this.request(method, path, name, body, more));
    return this.settle(new Answer(sent, response), name, more);
  }

  // settle counts what holds of every answer.
  settle(a, name, { expect: expected } = {}) {
    const tags = { ...this.tags, name };
    const isExpected = a.status === expected || !a.isOutage
      || (tolerated === 'busy' && a.isBusy) || tolerated === 'outage';
    answered.add(isExpected, tags);

    const isRefused = a.status === 429;
    const isDecided = !a.isOutage && name !== 'POST /token'; // a refused renewal refuses no work
    if (isDecided) admitted.add(!isRefused, tags);
    if (isRefused) refused.add(1, tags);

    const belongsToNobody = a.isOutage || a.status === 401; // then there is no limit to show
    if (!belongsToNobody) limitHeaders.add(a.headersRight, tags);
    return a;
  }
}

// isUndecided reports that nobody knows whether the service has taken a request, or that it asks to
// send it again.
function isUndecided(a) {
  return a.isOutage || a.status === 429;
}

// expectedStatuses are those that k6 does not count as failed.
function expectedStatuses() {
  if (tolerated === 'outage') return [{ min: 0, max: 599 }];
  if (tolerated === 'busy') return [{ min: 200, max: 499 }, 503];
  return [{ min: 200, max: 499 }];
}

// servedBy returns the id of the fleet that a store has, as far as the answer names it.
function servedBy(store) {
  return (store.fleet && store.fleet.fleetId) || store.fleetId || '';
}

// fleetFor returns the fleet of the settings, or the only one that serves the store.
function fleetFor(id, store) {
  const offered = listIn(store.availableFleets).map((f) => f.fleetId);
  const has = servedBy(store);
  if (fleetId) {
    const serves = offered.includes(fleetId) || has === fleetId;
    if (!serves) {
      const others = offered.length > 0 ? offered : [has];
      exec.test.abort(`FLEET_ID is ${fleetId}, which does not serve store ${id}; these do: ${others.filter(Boolean).join(', ') || 'none'}`);
    }
    return fleetId;
  }

  if (has) return has;
  if (offered.length === 0) exec.test.abort(`no fleet serves store ${id}`);
  if (offered.length > 1) exec.test.abort(`several fleets serve store ${id}, set FLEET_ID to one of them: ${offered.join(', ')}`);
  return offered[0];
}

// pause waits without holding up the VU's other calls, ms.
export function pause(ms) {
  return new Promise((resume) => setTimeout(resume, ms));
}

// Each VU says twice how an answer differed from what was expected; k6's checks count them all.
const shownPerCheck = 2;
const differences = {};

// expect checks what an answer must be, and says on the console what it was instead. A condition
// that throws does not hold.
export function expect(a, what, holds) {
  const ok = check(a, { [what]: () => holdsFor(a, holds) });
  expectations.add(1, { check: what });
  if (ok) return true;

  differences[what] = (differences[what] || 0) + 1;
  if (differences[what] <= shownPerCheck) {
    const last = differences[what] === shownPerCheck ? '; this VU shows no more of these' : '';
    console.warn(`not so: ${what}: answered ${a instanceof Answer ? a : `${a.status} ${a.body}`}${last}`);
  }
  return false;
}

function holdsFor(a, holds) {
  try {
    return Boolean(holds(a));
  } catch (_) {
    return false;
  }
}
