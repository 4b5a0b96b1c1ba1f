// A fleet's server, with the fleet API: it confirms stores, takes jobs and reports what its couriers
// do. It needs OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET (settings.js).
import http from 'k6/http';
import exec from 'k6/execution';
import { Answer, listIn } from './answer.js';
import { answered } from './metrics.js';
import { send } from './request.js';
import { fleetAccess } from './settings.js';

const hasFleet = fleetAccess !== null;

// A token is renewed so long before its end, in ms.
const renewal = 5 * 60 * 1000;

const timeout = '30s';

// The statuses that a courier reports after accepting a job.
export const courierSteps = ['PickingUp', 'PickedUp', 'Delivering', 'Delivered'];

export class Fleet {
  constructor() {
    if (!hasFleet) {
      exec.test.abort('this script plays a fleet, too: set OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET (of FLEET_ID); `make run` writes them to .data/demo.env');
    }
    this.token = '';
    this.expires = 0; // ms since 1970
    this.renewNotBefore = 0; // ms since 1970; after a refused renewal
  }

  // call sends one request to the fleet API. `name` is the endpoint, such as 'fleet GET /jobs'.
  call(method, path, name, body) {
    if (this.isRenewalDue()) this.renew();
    return this.exchange(method, path, name, body);
  }

  // isRenewalDue reports whether the token has to be renewed before the next request. After a refused
  // renewal it is false until the wait is over, as long as the token is valid.
  isRenewalDue() {
    const now = Date.now();
    const isRefused = now < this.renewNotBefore && now < this.expires;
    return now > this.expires - renewal && !isRefused;
  }

  // renew gets a token. During an outage, and after a 429 while the old token is valid, it leaves the
  // old one; every other refusal aborts the test.
  renew() {
    const { clientId, clientSecret } = fleetAccess;
    const a = this.exchange('POST', '/token', 'fleet POST /token', { clientId, clientSecret });
    if (a.isOutage) return; // the request that follows fails, too
    if (a.status === 429 && Date.now() < this.expires) {
      this.renewNotBefore = Date.now() + a.wait(1) * 1000;
      return;
    }
    if (a.ok && !a.givesToken) exec.test.abort(`OPS_URL is ${fleetAccess.origin}, and there is no fleet API: POST /token is answered ${a.status} without a token`);
    if (!a.ok) exec.test.abort(`the fleet ${clientId} gets no token at ${fleetAccess.origin}: ${a}`);
    this.token = a.data.accessToken;
    this.expires = Date.now() + a.data.expiresIn * 1000;
  }

  // exchange sends one request with the token that there is, and counts its answer.
  exchange(method, path, name, body) {
    const sent = Date.now();
    const response = send(...this.request(method, path, name, body));
    return settle(new Answer(sent, response), name);
  }

  // callAll sends several requests at once, each [method, path, name, body], and returns their
  // answers in the same order. k6 logs every one that is lost: with `throw`, as send() has it, http.batch
  // would return none of the answers.
  callAll(calls) {
    if (this.isRenewalDue()) this.renew();
    const sent = Date.now();
    const requests = calls.map((call) => {
      const [method, url, body, params] = this.request(...call);
      return { method, url, body, params };
    });
    const responses = http.batch(requests);
    return responses.map((response, i) => {
      const [, , name] = calls[i];
      return settle(new Answer(sent, response), name);
    });
  }

  // request returns the arguments of send().
  request(method, path, name, body) {
    const headers = { 'Content-Type': 'application/json' };
    if (this.token && name !== 'fleet POST /token') headers.Authorization = `Bearer ${this.token}`;
    const text = body === undefined ? null : JSON.stringify(body);
    return [method, `${fleetAccess.origin}/api/fleet/v1${path}`, text, { headers, tags: { name }, timeout }];
  }

  // jobs returns {jobs, answer}: every job in a status, and the answer with the last page of them. If
  // that answer is no success, jobs are missing.
  jobs(status) {
    const found = [];
    let cursor = '';
    let a;
    do {
      a = this.call('GET', `/jobs?status=${status}&cursor=${encodeURIComponent(cursor)}`, 'fleet GET /jobs');
      found.push(...listIn(a.data.jobs));
      cursor = a.data.cursor || '';
    } while (a.ok && cursor !== '');
    return { jobs: found, answer: a };
  }
}

// settle counts an answer, and returns it.
function settle(a, name) {
  answered.add(!a.isOutage, { name });
  return a;
}

let confirming; // the Fleet that confirms this VU's stores

// confirmStore confirms a store that waits for the fleet of the settings, for every account that has
// one of this id. Without a fleet in the settings it does nothing. It does no harm if someone else
// confirms the store first.
export function confirmStore(externalStoreId) {
  if (!hasFleet) return;
  if (!confirming) confirming = new Fleet();

  let cursor = '';
  do {
    const path = `/stores?status=AwaitingFleetApproval&cursor=${encodeURIComponent(cursor)}`;
    const page = confirming.call('GET', path, 'fleet GET /stores');
    const waiting = listIn(page.data.stores).filter((store) => store.externalStoreId === externalStoreId);
    for (const { accountId } of waiting) {
      const confirmation = `/stores/${accountId}/${encodeURIComponent(externalStoreId)}/confirm`;
      confirming.call('POST', confirmation, 'fleet POST /stores/{id}/confirm');
    }
    cursor = page.data.cursor || '';
  } while (cursor !== '');
}
