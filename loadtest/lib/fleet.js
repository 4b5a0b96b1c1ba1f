// A fleet's server, with the fleet API: it confirms stores, takes jobs and reports what its couriers
// do. It needs OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET (settings.js).
import http from 'k6/http';
import exec from 'k6/execution';
import { Answer, listIn } from './answer.js';
import { answered } from './metrics.js';
import { send } from './request.js';
import { fleetAccess } from './settings.js';

export const hasFleet = fleetAccess !== null;

const renewal = 5 * 60 * 1000; // ms before the end of a token
const timeout = '30s';

// The statuses that a courier reports after accepting a job.
export const courierSteps = ['PickingUp', 'PickedUp', 'Delivering', 'Delivered'];

export class Fleet {
  constructor() {
    if (!hasFleet) {
      exec.test.abort('this script plays a fleet, too: set OPS_URL, FLEET_CLIENT_ID and FLEET_CLIENT_SECRET (of FLEET_ID); `make run` writes them to .data/demo.env');
    }
    this.token = '';
    this.expires = 0;
    this.renewNotBefore = 0; // ms since 1970; after a refused renewal
  }

  // call sends one request to the fleet API. `name` is the endpoint, such as 'fleet GET /jobs'.
  call(method, path, name, body) {
    if (this.isRenewalDue()) this.renew();
    return this.exchange(method, path, name, body);
  }

  // isRenewalDue is false while a renewal is refused, as long as the token holds.
  isRenewalDue() {
    const now = Date.now();
    const isRefused = now < this.renewNotBefore && now < this.expires;
    return now > this.expires - renewal && !isRefused;
  }

  renew() {
    const { clientId, clientSecret } = fleetAccess;
    const a = this.exchange('POST', '/token', 'fleet POST /token', { clientId, clientSecret });
    if (a.isOutage) return; // the call fails, too, and says so
    if (a.status === 429 && Date.now() < this.expires) {
      this.renewNotBefore = Date.now() + a.wait(1) * 1000;
      return;
    }
    if (a.ok && !a.givesToken) exec.test.abort(`OPS_URL is ${fleetAccess.origin}, and there is no fleet API: POST /token is answered ${a.status} without a token`);
    if (!a.ok) exec.test.abort(`the fleet ${clientId} gets no token at ${fleetAccess.origin}: ${a}`);
    this.token = a.data.accessToken;
    this.expires = Date.now() + a.data.expiresIn * 1000;
  }

  exchange(...call) {
    const sent = Date.now();
    return settle(new Answer(sent, send(...this.request(...call))), call[2]);
  }

  // callAll sends several requests at once, each [method, path, name, body], and returns their
  // answers in the same order.
  callAll(calls) {
    if (this.isRenewalDue()) this.renew();
    const sent = Date.now();
    const requests = calls.map((call) => {
      const [method, url, body, params] = this.request(...call);
      return { method, url, body, params };
    });
    return http.batch(requests).map((response, i) => settle(new Answer(sent, response), calls[i][2]));
  }

  request(method, path, name, body) {
    const headers = { 'Content-Type': 'application/json' };
    if (this.token && name !== 'fleet POST /token') headers.Authorization = `Bearer ${this.token}`;
    const text = body === undefined ? null : JSON.stringify(body);
    return [method, `${fleetAccess.origin}/api/fleet/v1${path}`, text, { headers, tags: { name }, timeout }];
  }

  // jobs returns every job in a status, page by page, and the last answer.
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

function settle(a, name) {
  answered.add(!a.isOutage, { name });
  return a;
}

let confirming; // the Fleet that confirms this VU's stores

// confirmStore confirms a store that waits for the fleet of the settings, if they name one. Whatever
// another confirms first stays confirmed.
export function confirmStore(externalStoreId) {
  if (!hasFleet) return;
  if (!confirming) confirming = new Fleet();

  let cursor = '';
  do {
    const path = `/stores?status=AwaitingFleetApproval&cursor=${encodeURIComponent(cursor)}`;
    const page = confirming.call('GET', path, 'fleet GET /stores');
    const named = listIn(page.data.stores).filter((store) => store.externalStoreId === externalStoreId);
    for (const { accountId } of named) {
      const confirmation = `/stores/${accountId}/${encodeURIComponent(externalStoreId)}/confirm`;
      confirming.call('POST', confirmation, 'fleet POST /stores/{id}/confirm');
    }
    cursor = page.data.cursor || '';
  } while (cursor !== '');
}
