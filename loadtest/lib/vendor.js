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
import { isHeard, send, sendAsync } from './request.js';
import { accounts, fleetId, missingCredentials, origin, seconds } from './settings.js';
import { seal, unseal } from './tokens.js';

export { accounts, seconds };

const api = `${origin}/api/vendor/v1`;

// A token is renewed `renewal` ms before its end at the latest (spec, "Authentication"). VUs that share
// an account renew it at random moments of the `spread` ms before that.
const renewal = 5 * 60 * 1000;
const spread = 20 * 60 * 1000;

const timeout = '30s';

// A request to a path that no route takes (the empty path) is answered without Redis. It shows how much
// of an answer's time is that of the machine, the network and k6 itself. The library sends one before
// every tenth request. `make loadtest` compares latencies with it (quick() in levels.js).
export const emptyPath = 'GET empty path';
const emptyEvery = 10;
let untilEmpty = 1; // requests until the next one to the empty path is due

// askEmptyPath sends one request to the empty path, and returns k6's response.
export function askEmptyPath(tags = {}) {
  return send('GET', `${api}/empty-path`, null, {
    tags: { ...tags, name: emptyPath }, responseCallback: http.expectedStatuses(404), timeout,
  });
}

// ceilingPath is the name of the requests that rehearse() sends.
export const ceilingPath = 'POST empty path';

// tolerated says which failures the script expects: 'nothing'; 'busy', a 503 that says when to send the
// request again; or 'outage', any 5xx and lost answers.
let tolerated = 'nothing';

// tolerate sets which failures the script expects. plan() calls it.
export function tolerate(failures) {
  tolerated = failures;
}

// open signs every account in and registers `stores` branches for each; setup() calls it. It returns
// {run, stores, accounts}: a text that no other run has, for ids of orders; the ids of the branches; and
// what vendor() needs. If the service cannot be used it aborts the test and says why.
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

const vendors = {}; // the vendors of this VU, by label: each keeps its token

// vendor returns the vendor of an account that open() returned. `index` counts from 0, and after the last
// account from the first again. A VU gets the same object each time.
export function vendor(data, index) {
  const shared = data.accounts[index % data.accounts.length];
  if (!vendors[shared.label]) vendors[shared.label] = Vendor.from(shared);
  return vendors[shared.label];
}

class Vendor {
  constructor({ clientId, clientSecret, label }) {
    this.account = { clientId, clientSecret, label, token: '', expires: 0 };
    this.tags = { account: label };
    this.renewEarlier = Math.random() * spread; // ms
    this.renewNotBefore = 0; // ms since 1970; after a refused renewal
    this.lastAnswers = {}; // by name of request; their headers say how much of a limit remains
  }

  // shared returns what the VUs need of an account that has signed in, without its secrets.
  shared() {
    const { label, token, expires, clientSecret } = this.account;
    return { label, expires, ...seal(token, clientSecret) };
  }

  // from returns the vendor of what shared() returned.
  static from(shared) {
    const v = new Vendor(accounts().find((a) => a.label === shared.label));
    v.account.token = unseal(shared, v.account.clientSecret);
    v.account.expires = shared.expires;
    return v;
  }

  // signIn gets the first token, and aborts the test if it gets none. While the service does not answer it
  // tries three times.
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

  // askForToken asks for a token once, keeps it if there is one, and returns the answer.
  askForToken() {
    const { clientId, clientSecret } = this.account;
    const a = this.exchange('POST', '/token', 'POST /token', { clientId, clientSecret });
    if (a.givesToken) {
      this.account.token = a.data.accessToken;
      this.account.expires = Date.now() + a.data.expiresIn * 1000;
    }
    return a;
  }

  // ensureToken renews the token when that is due. An account may get 60 tokens an hour. While a renewal
  // is refused, the old token is used until its end; only after that the vendor waits. It returns
  // undefined, or, if there is no valid token, the answer to the request for one, which is no success.
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
    if (this.hasValidToken()) return undefined;

    // The answer may hold a token, so it is not printed, and not taken for that to another request.
    if (a.ok) {
      exec.test.abort(`account ${this.account.label} (${this.account.clientId}): POST /token is answered ${a.status} without a token that is valid for five seconds`);
    }
    return a;
  }

  // hasValidToken reports whether the token is valid for at least five more seconds.
  hasValidToken() {
    return Date.now() < this.account.expires - 5000;
  }

  // call sends one request and returns its answer. `name` is the endpoint, such as 'GET /orders/{id}'.
  // `more` may have the idempotency key as `key`, and as `expect` the status that is right, whatever it
  // is. If the token has expired it is renewed and the request sent again.
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
    this.lastAnswers[name] = a;
    return a;
  }

  // callAsync does what call does, for several requests of one VU at once. It sends no request again.
  async callAsync(method, path, name, body, more) {
    const failed = this.ensureToken();
    if (failed) return failed;

    const sent = Date.now();
    const response = await sendAsync(...this.request(method, path, name, body, more));
    return this.settle(new Answer(sent, response), name, more);
  }

  // resend takes the arguments of call. If the last answer said that nothing of the limit remains, it
  // waits first. After a 429 it waits as long as the answer says and sends the request again, five
  // requests at most.
  resend(...call) {
    const name = call[2];
    const last = this.lastAnswers[name];
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

  // create creates an order, as resend does. `end` is the status that it must end in, and `key` its
  // idempotency key.
  create(order, end, key = order.externalOrderId) {
    return this.took(this.resend('POST', '/orders', 'POST /orders', order, { key }), end);
  }

  // createOnce creates an order as create does, but with a single call, whatever the answer is.
  createOnce(order, end) {
    return this.took(this.call('POST', '/orders', 'POST /orders', order, { key: order.externalOrderId }), end);
  }

  // createUntilAnswered creates an order as a till does that loses answers: it sends the same bytes with
  // the same key again until the service has decided, for the last time within `within` seconds. The
  // order is created once, whether or not the request whose answer was lost had created it.
  createUntilAnswered(order, end, { within = 60 } = {}) {
    const bytes = JSON.stringify(order);
    const a = this.untilAnswered(within, 'POST', '/orders', 'POST /orders', bytes, { key: order.externalOrderId });
    if (a.status === 201) this.noteAccepted(a, end);
    return a;
  }

  // cancelUntilAnswered cancels an order, and repeats the request as createUntilAnswered does, for the last
  // time within 60 s. A second cancellation is answered like the first.
  cancelUntilAnswered(orderId) {
    return this.untilAnswered(60, 'POST', `/orders/${orderId}/cancel`, 'POST /orders/{id}/cancel', { reason: 'CustomerRequest', note: 'vazgeçti' });
  }

  // untilAnswered sends a request that may be repeated until the service has decided on it, and
  // returns the last answer. It sends it for the last time within `within` seconds.
  untilAnswered(within, ...call) {
    const deadline = Date.now() + within * 1000;
    const name = call[2];

    let a = this.call(...call);
    for (let pause = 0.1; isUndecided(a); pause = Math.min(2, pause * 2)) {
      const needed = a.wait(pause * (0.5 + Math.random())); // seconds
      if (Date.now() + needed * 1000 > deadline) return a;

      this.wait(needed);
      resends.add(1, { ...this.tags, name, reason: a.code || String(a.status) });
      a = this.call(...call);
    }
    return a;
  }

  // rehearse sends the request that creates an order to the empty path instead, which costs k6 as much
  // and the service next to nothing. So k6 can create no more orders a second than it can rehearse.
  rehearse(order) {
    send(...this.request('POST', '/empty-path', ceilingPath, order, { key: order.externalOrderId }));
  }

  // took counts an order if the answer says that it was created, and returns the answer. A replay of an
  // earlier answer does not count.
  took(a, end) {
    const isNew = a.status === 201 && !a.replayed;
    if (isNew) this.noteAccepted(a, end);
    return a;
  }

  // noteAccepted counts an accepted order.
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

  // register registers a branch in the two steps of the spec: first without a fleet, then with the one of
  // the settings, or the only one that serves it. If there is no such fleet it aborts the test.
  register(id, store) {
    const first = this.put(id, store);
    if (!first.ok) exec.test.abort(`store ${id} cannot be registered: ${first}`);

    const chosen = fleetFor(id, first.data);
    const isRegistered = first.data.status === 'Active' && (!fleetId || servedBy(first.data) === fleetId);
    if (isRegistered) return;

    const second = this.put(id, { ...store, fleetId: chosen });
    if (!second.ok) exec.test.abort(`store ${id} cannot have the fleet ${chosen}: ${second}`);
    this.note(registered, { store: id });
  }

  // awaitActive waits until a fleet has confirmed the branch. After 60 tries, about half a minute, it
  // aborts the test.
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

  // wait sleeps so many seconds and adds them to the metric `waited`. A negative time counts as 0.
  wait(time) {
    const needed = Math.max(0, time);
    waited.add(needed * 1000, this.tags);
    sleep(needed);
  }

  // note adds 1 to a counter, with metadata. Unlike a tag, metadata make no time series of their own.
  note(counter, metadata) {
    const shown = exec.vu.metrics.metadata;
    for (const name of Object.keys(metadata)) shown[name] = metadata[name];
    counter.add(1, this.tags);
    for (const name of Object.keys(metadata)) delete shown[name];
  }

  // request returns the arguments of send().
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

  // exchange sends one request with the token that there is, and returns its answer. Before every tenth
  // request of the VU it sends one to the empty path.
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

  // settle counts whether an answer is as every answer must be, and returns it.
  settle(a, name, { expect: expected } = {}) {
    const tags = { ...this.tags, name };
    const isTolerated = tolerated === 'outage' || (tolerated === 'busy' && a.isBusy);
    const isExpected = !a.isOutage || isTolerated || a.status === expected;
    answered.add(isExpected, tags);

    const isRefused = a.status === 429;
    const isDecided = !a.isOutage && name !== 'POST /token'; // a refused renewal refuses no work
    if (isDecided) admitted.add(!isRefused, tags);
    if (isRefused) refused.add(1, tags);

    const showsLimit = !a.isOutage && a.status !== 401; // otherwise no account is known, so no limit is shown
    if (showsLimit) limitHeaders.add(a.headersRight, tags);
    return a;
  }
}

// isUndecided reports whether a request has to be sent again: it is not known whether the service has
// taken it, or the service asks for it.
function isUndecided(a) {
  return a.isOutage || a.status === 429;
}

// expectedStatuses returns the statuses that k6 does not count as failed.
function expectedStatuses() {
  if (tolerated === 'outage') return [{ min: 0, max: 599 }];
  if (tolerated === 'busy') return [{ min: 200, max: 499 }, 503];
  return [{ min: 200, max: 499 }];
}

// servedBy returns the id of the fleet that a store has; '' if the answer names none.
function servedBy(store) {
  return (store.fleet && store.fleet.fleetId) || store.fleetId || '';
}

// fleetFor returns the id of the fleet of the settings, or else of the one that the store has, or of the
// only one that serves it. If there is none, or several, it aborts the test.
function fleetFor(id, store) {
  const offered = listIn(store.availableFleets).map((f) => f.fleetId);
  const current = servedBy(store);
  if (fleetId) {
    const serves = offered.includes(fleetId) || current === fleetId;
    if (!serves) {
      const others = offered.length > 0 ? offered : [current];
      exec.test.abort(`FLEET_ID is ${fleetId}, which does not serve store ${id}; these do: ${others.filter(Boolean).join(', ') || 'none'}`);
    }
    return fleetId;
  }

  if (current) return current;
  if (offered.length === 0) exec.test.abort(`no fleet serves store ${id}`);
  if (offered.length > 1) exec.test.abort(`several fleets serve store ${id}, set FLEET_ID to one of them: ${offered.join(', ')}`);
  return offered[0];
}

// pause returns a promise that resolves after so many ms. The VU's other calls go on.
export function pause(ms) {
  return new Promise((resume) => setTimeout(resume, ms));
}

// Each of the first VUs prints so many answers that differ from what a check expects; k6's checks count
// them all.
const shownPerCheck = 2;
const differences = {};

// expect checks whether `holds` is true of an answer, prints the answer if it is not, and returns the
// result. `what` names the check. If `holds` throws an error it does not hold.
export function expect(a, what, holds) {
  const ok = check(a, { [what]: () => holdsFor(a, holds) });
  expectations.add(1, { check: what });
  if (ok) return true;

  differences[what] = (differences[what] || 0) + 1;
  if (differences[what] <= shownPerCheck && isHeard()) {
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
