// Package observability holds what operators are given to watch the system with
// against the system that runs: every metric that a rule or a panel names is
// exposed by a program, every expression can be read, every alert has its section
// in the runbook, and one order can be followed by its trace.
//
// It owns no promise of the service itself, and refuses to judge thresholds:
// what rules do is played by promtool (configs/prometheus/alerts_test.yml).
package observability
