// Requests whose answers may be lost.
//
// k6 writes a line to its log for every request that gets no answer, thousands in an outage, and
// shows an answer that broke off in its middle with its status and without its body. So requests are
// sent with `throw`, and what is thrown becomes a response with the status 0.
//
// What nobody can see here: k6 (Go's HTTP client) sends a request a second time by itself when a
// kept connection turns out to be closed before the first byte of an answer, if the request has an
// X-Idempotency-Key or is a GET. It counts that as one request.
import http from 'k6/http';

// send returns the response to a request; one with the status 0 and the error if none came.
export function send(method, url, text, params) {
  const sent = Date.now();
  try {
    return http.request(method, url, text, { ...params, throw: true });
  } catch (e) {
    return lostResponse(sent, e, params);
  }
}

// sendAsync is send, and the VU goes on with its other calls until the response comes.
export async function sendAsync(method, url, text, params) {
  const sent = Date.now();
  try {
    return await http.asyncRequest(method, url, text, { ...params, throw: true });
  } catch (e) {
    return lostResponse(sent, e, params);
  }
}

// Each VU says twice that an answer was lost; the metrics count them all.
const shownLosses = 2;
let losses = 0;

function lostResponse(sent, thrown, params) {
  const error = String(thrown.message || thrown).replace(/^\w+ "[^"]*": /, ''); // without method and URL
  losses++;
  if (losses <= shownLosses) {
    const last = losses === shownLosses ? '; this VU shows no more of these' : '';
    console.warn(`no answer to ${params.tags.name}: ${error}${last}`);
  }
  return { status: 0, error, body: null, headers: {}, timings: { duration: Date.now() - sent } };
}
