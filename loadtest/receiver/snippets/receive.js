const { createHmac, timingSafeEqual } = require('node:crypto');

const RANK = { Searching: 1, Assigned: 2, PickingUp: 3, PickedUp: 4, Delivering: 5, Delivered: 6, Failed: 6, Cancelled: 6 };

// Takes one webhook and returns the status to answer. `body` is the raw Buffer, before any parsing (Express:
// express.raw({ type: 'application/json' })); header names in lower case. `state` belongs in your database, eventId
// as a unique key, written in one transaction with the order: { seen: new Set(), orders: new Map() }.
function receive(state, secrets, headers, body) {
  if (!verify(secrets, headers, body)) return 401;
  let event, at;
  try {
    event = JSON.parse(body); // only now
    at = Date.parse(event.occurredAt);
    if (typeof event.eventId !== 'string' || Number.isNaN(at)) return 400;
  } catch {
    return 400;
  }
  if (state.seen.has(event.eventId)) return 204; // has arrived before
  if (event.event === 'delivery.status_changed') { // others: nothing to do, and 2xx
    const { orderId, status } = event.data;
    const known = state.orders.get(orderId);
    // Events may overtake each other; steps that were skipped have the same time.
    const newer = !known || at > known.at || (at === known.at && RANK[status] > RANK[known.status]);
    if (newer) state.orders.set(orderId, { status, at });
  }
  state.seen.add(event.eventId);
  return 204;
}

// Reports whether a webhook is the service's and at most five minutes old. `secrets` are whole, "whsec_…"; after a
// rotation the new one beside the old for 24 h, then POST /webhook/test.
function verify(secrets, headers, body) {
  const id = headers['webhook-id'], timestamp = headers['webhook-timestamp'];
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= 300)) return false;
  // The service's signature: of the body, keyed with the text of the secret.
  const own = secrets.some((secret) => {
    const want = 'sha256=' + createHmac('sha256', secret).update(body).digest('hex');
    return equal(want, headers['x-service-signature'] ?? '');
  });
  // Standard Webhooks: of id, time and body, keyed with the secret's bytes.
  const standard = secrets.some((secret) => {
    const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
    const want = 'v1,' + createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64');
    return (headers['webhook-signature'] ?? '').split(' ').some((got) => equal(want, got)); // two after a rotation
  });
  return own && standard;
}

function equal(a, b) {
  const [x, y] = [Buffer.from(a), Buffer.from(b)];
  return x.length === y.length && timingSafeEqual(x, y);
}

module.exports = { receive, verify };
