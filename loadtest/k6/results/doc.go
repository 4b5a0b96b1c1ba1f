// Package results turns what k6 leaves behind into the result of a load test.
//
// k6 writes, for each script, its samples (--out json=FILE) and the script's summary
// (handleSummary in loadtest/lib/levels.js). Build reads these files and makes a Script of
// them: service levels, latencies, limits, steps of a ramp and curves over time. The driver
// adds what only it can know, such as the webhooks that arrived, and puts all scripts into a
// Run. A Run is stored as result.json; the page, the JUnit file and comparisons are made from
// that file alone, so they can be made again at any time.
//
//	samples, summary ──Build──▶ Script ──▶ Run ◀──▶ result.json
//	                              ▲         ├──▶ report.html (WritePage)
//	               driver: webhooks,        ├──▶ junit.xml (WriteJUnit)
//	               programs                 └──▶ regressions (Compare)
//
// The package starts no process and opens no connection.
package results
