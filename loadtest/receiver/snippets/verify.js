const { createHmac, timingSafeEqual } = require('node:crypto');

const equal = (a, b) => a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));

// Tells whether a webhook is the service's and fresh. `body` is the raw Buffer, before any
// JSON parsing (Express: express.raw({ type: 'application/json' })); header names in lower case.
function verify(secret, headers, body, now = Date.now()) {
  // 1. The service's own signature: HMAC of the body, keyed with the text of the secret.
  const own = 'sha256=' + createHmac('sha256', secret).update(body).digest('hex');
  if (!equal(own, headers['x-service-signature'] ?? '')) return false;

  // 2. Standard Webhooks: id, time and body, keyed with the decoded secret. It protects against replays.
  const id = headers['webhook-id'], timestamp = headers['webhook-timestamp'];
  if (!(Math.abs(now / 1000 - Number(timestamp)) <= 300)) return false;
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  const want = 'v1,' + createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64');
  return (headers['webhook-signature'] ?? '').split(' ').some((got) => equal(want, got)); // two after a rotation
}

module.exports = { verify };
