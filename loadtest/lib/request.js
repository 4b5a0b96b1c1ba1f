// Requests whose answers may be lost.
//
// k6 writes a line to its log for every request that gets no answer, thousands in an outage. So requests
// are sent with `throw`, and what is thrown becomes a response with the status 0. An answer that broke off
// in its middle is no answer, too.
//
// One thing cannot be seen here. When a connection that was kept turns out to be closed before the
// first byte of an answer, k6 (Go's HTTP client) sends a GET, or a request with an X-Idempotency-Key, a
// second time by itself. It counts both as one request.
import http from 'k6/http';
import exec from 'k6/execution';

// send returns the response to a request. If there was none it returns one with the status 0 and the
// error.
export function send(method, url, text, params) {
  const sent = Date.now();
  try {
    return http.request(method, url, text, { ...params, throw: true });
  } catch (e) {
    return lostResponse(sent, e, params);
  }
}

// sendAsync does what send does, without blocking: the VU can go on with other calls.
export async function sendAsync(method, url, text, params) {
  const sent = Date.now();
  try {
    return await http.asyncRequest(method, url, text, { ...params, throw: true });
  } catch (e) {
    return lostResponse(sent, e, params);
  }
}

// Only the first VUs print what is wrong, because hundreds would print the same.
const heardVUs = 10;

// isHeard reports whether this VU prints what is wrong.
export function isHeard() {
  return exec.vu.idInTest <= heardVUs;
}

// Each of them prints so many lost answers at most; the metrics count them all.
const shownLosses = 2;
let losses = 0;

function lostResponse(sent, thrown, params) {
  const error = String(thrown.message || thrown).replace(/^\w+ "[^"]*": /, ''); // without method and URL
  losses++;
  if (losses <= shownLosses && isHeard()) {
    const last = losses === shownLosses ? '; this VU shows no more of these' : '';
    console.warn(`no answer to ${params.tags.name}: ${error}${last}`);
  }
  return { status: 0, error, body: null, headers: {}, timings: { duration: Date.now() - sent } };
}
