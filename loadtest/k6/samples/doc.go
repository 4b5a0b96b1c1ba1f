// Package samples reads what a run of k6 leaves behind: every sample as a line
// of CSV, and the thresholds with what they measured. It turns them into what
// the report shows and the checks need: figures by endpoint, by second and by
// step, every account's requests, and the orders that were accepted.
//
// It owns the forms that k6 v1 writes and the tags that loadtest/lib/vendor.js
// gives. It refuses to judge: it says what was measured.
package samples
