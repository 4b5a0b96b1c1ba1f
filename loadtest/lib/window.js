// The limits' windows seen from outside. A vendor does not know when the service
// counted a request, only that it was between sending it and having the answer.
// So only what is certain is claimed:
//
//   beyond     more than `count` requests were admitted within `seconds`, even
//              if the first was counted when it was sent and the last when it
//              was answered
//   wronged    a request was refused although fewer than `count` can have been
//              admitted in the window before it, whenever each was counted
//
// The driver checks the requests of every script by the same rules, those of all VUs together
// (loadtest/k6/results/limits.go).

// The clocks of the vendor and of the service may run apart by this part: NTP slews each by at most 500 ppm.
const skew = 0.001;

// measure takes log, [{sent, answered, admitted}] with times in ms of one clock, and windows,
// [{count, seconds}]. admitted is false for a 429, and null if it is not known, because the answer was
// lost or was a 5xx: such a request counts only where that favours the service. It returns {most, beyond,
// wronged}: for each window the largest number of requests that were certainly admitted in it; how many
// of the windows were broken; and how many requests were wronged.
export function measure(log, windows) {
  const certain = boundsOf(log.filter((r) => r.admitted === true));
  const possible = boundsOf(log.filter((r) => r.admitted !== false));

  const most = windows.map(({ seconds }) => {
    const span = seconds * 1000 * (1 - skew);
    return certain.answered.reduce((top, end, i) => Math.max(top, i + 1 - upTo(certain.sent, end - span)), 0);
  });
  const wronged = log.filter((r) => r.admitted === false && windows.every(({ count, seconds }) => {
    const span = seconds * 1000 * (1 + skew);
    return upTo(possible.sent, r.answered) - upTo(possible.answered, r.sent - span) < count;
  }));
  return { most, beyond: windows.filter(({ count }, i) => most[i] > count).length, wronged: wronged.length };
}

// boundsOf returns both moments of requests, each ascending.
function boundsOf(requests) {
  return {
    sent: Float64Array.from(requests, (r) => r.sent).sort(),
    answered: Float64Array.from(requests, (r) => r.answered).sort(),
  };
}

// upTo returns how many of the ascending values are at most x.
function upTo(values, x) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}
