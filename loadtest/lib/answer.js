// The answer to a request.

// The longest window of a limit, in seconds.
const longestWindow = 3600;

// Answer is the answer to one request. If there was none, its status is 0, its code NO_ANSWER, and
// error says what happened. The service counted the request between `sent` and `answered`, both in
// milliseconds since 1970. The numbers of headers that are missing are NaN.
export class Answer {
  constructor(sent, response) {
    this.sent = sent;
    this.answered = Date.now() + 1; // Date.now() cuts off the rest of the millisecond
    this.took = response.timings.duration; // ms from the first byte sent to the last received
    this.status = response.status;
    this.error = response.status === 0 ? response.error || 'the connection ended' : '';
    this.body = response.body;

    const headers = response.headers || {};
    const header = (name) => (name in headers ? Number(headers[name]) : NaN);
    this.limit = header('X-Ratelimit-Limit');
    this.remaining = header('X-Ratelimit-Remaining');
    this.reset = header('X-Ratelimit-Reset');
    this.retryAfter = header('Retry-After');
    this.replayed = headers['Idempotent-Replayed'] === 'true';
    this.date = Date.parse(headers.Date); // ms since 1970 by the server's clock, whole seconds
  }

  get ok() { return this.status >= 200 && this.status < 300; }

  // givesToken reports whether an answer to POST /token has a token and its lifetime.
  get givesToken() {
    return this.ok && isText(this.data.accessToken) && this.data.expiresIn > 0;
  }

  // isOutage reports whether the service failed to answer, because a gateway, a balancer or Redis is
  // unavailable.
  get isOutage() { return this.status === 0 || this.status >= 500; }

  // wait returns how long to wait before the request may be sent again, in seconds: as long as the
  // answer says, or `otherwise` if it says nothing sensible.
  wait(otherwise) {
    const isSensible = this.retryAfter >= 1 && this.retryAfter <= longestWindow;
    return isSensible ? this.retryAfter : otherwise;
  }

  // isBusy reports whether the answer is a 503 that says when to send the request again: the service
  // sheds load, or Redis is unavailable.
  get isBusy() { return this.status === 503 && this.retryAfter >= 1; }

  // envelope is the answer's JSON; {} if the body is no object.
  get envelope() {
    if (this.parsed === undefined) this.parsed = objectIn(this.body);
    return this.parsed;
  }

  // data is the envelope's data; {} if there is no object.
  get data() { return orEmpty(this.envelope.data); }

  // code is the error code; '' for a success, and for an error without one.
  get code() {
    if (this.status === 0) return 'NO_ANSWER';
    return this.ok ? '' : this.data.errorCode || '';
  }

  // headersRight reports whether the limits' headers are as the spec says ("Limits", rules 2 and 3):
  // every answer to an account shows a limit, and a 429 says in its header and in its body how long to
  // wait. Reset is in the future (a second less is rounding) and within the longest window.
  get headersRight() {
    const now = this.sent / 1000;
    const numbers = [this.limit, this.remaining, this.reset].every(Number.isInteger);
    const countsMakeSense = this.limit > 0 && this.remaining >= 0 && this.remaining <= this.limit;
    const resetMakesSense = this.reset > now - 1 && this.reset < now + longestWindow + 2;
    if (!numbers || !countsMakeSense || !resetMakesSense) return false;
    if (this.status !== 429) return true;

    const waitIsNamed = Number.isInteger(this.retryAfter) && this.retryAfter >= 1;
    const waitsAgree = this.retryAfter === this.data.retryAfterSeconds;
    return this.remaining === 0 && waitIsNamed && waitsAgree;
  }

  // toString returns the answer in one line, such as "409 DUPLICATE_ORDER …".
  toString() {
    if (this.status === 0) return `no answer (${this.error})`;
    const message = this.envelope.message || String(this.body || '').slice(0, 200);
    return [this.status, this.code, message].filter(Boolean).join(' ');
  }
}

// isText reports whether a value is a string that is not empty.
export function isText(value) {
  return typeof value === 'string' && value !== '';
}

// listIn returns the objects of a list in an answer; [] if there is no list.
export function listIn(value) {
  return Array.isArray(value) ? value.filter((v) => v && typeof v === 'object') : [];
}

function objectIn(body) {
  let value;
  try {
    value = JSON.parse(body);
  } catch (_) {
    value = null;
  }
  return orEmpty(value);
}

function orEmpty(value) {
  return value && typeof value === 'object' ? value : {};
}
