package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
)

// courierStep is the time between two moves of an order: it lives about a
// second, so that clients, couriers and faults meet on it.
const courierStep = 200 * time.Millisecond

// The shipped settings wait for minutes where a deployment has time; a round has
// seconds. Everything else is as shipped.
var (
	workerEdits = []edit{
		{"claim_after", "3s"}, {"timer_interval", "500ms"}, {"housekeeping_interval", "1s"},
		{"timeout", "1s"}, {"lease", leaseLength.String()},
		// The first failure opens an endpoint's breaker, and what waits is sent as
		// soon as a probe succeeds: retries after 10 s and 30 s would take longer
		// than a round. Both ways are the product's own.
		{"breaker_failures", "1"},
	}
	reportingEdits = []edit{{"interval", "200ms"}, {"claim_after", "3s"}}
)

// leaseLength is how long an event belongs to the worker that took it.
const leaseLength = 3 * time.Second

// edit is another value for a key of the shipped settings, wherever it occurs.
type edit struct{ key, value string }

// What the shipped settings say where a program calls another.
const (
	redisPlace      = "${REDIS_URL:-redis://127.0.0.1:6379}"
	clickHousePlace = "${CLICKHOUSE_URL:-http://127.0.0.1:8123}"
)

// writeSettings writes every program's settings to dir, with its own proxies in
// the place of servers. Each logs in to Redis as the user that it is.
func (l *links) writeSettings(dir string, server *stack.Redis) error {
	root, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	through := func(user string, proxy *failpoint.Proxy) string {
		return strings.Replace(server.URLFor(user), server.Addr, proxy.Addr, 1)
	}
	for name, places := range map[string]map[string]string{
		"gateway.yaml": {redisPlace: through(stack.GatewayUser, l.gatewayRedis)},
		"worker.yaml":  {redisPlace: through(stack.WorkerUser, l.workerRedis)},
		"reporting.yaml": {redisPlace: through(stack.ReportingUser, l.reportingRedis),
			clickHousePlace: "http://" + l.clickHouse.Addr},
	} {
		content, err := os.ReadFile(filepath.Join(root, "configs", name))
		if err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		text, err := replaceAll(string(content), places, map[string][]edit{"worker.yaml": workerEdits, "reporting.yaml": reportingEdits}[name])
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		}
		if err != nil {
			return fmt.Errorf("settings: %s: %w", name, err)
		}
	}
	return nil
}

// replaceAll fails when there is nothing to replace: a setting that has another
// name now would otherwise be left as it is in silence.
func replaceAll(text string, places map[string]string, edits []edit) (string, error) {
	var failed error
	for place, value := range places {
		if !strings.Contains(text, place) {
			failed = errors.Join(failed, fmt.Errorf("%s is not in there", place))
		}
		text = strings.ReplaceAll(text, place, value)
	}
	for _, e := range edits {
		line := regexp.MustCompile(`(?m)^( *` + regexp.QuoteMeta(e.key) + `:).*$`)
		if !line.MatchString(text) {
			failed = errors.Join(failed, fmt.Errorf("%s is not in there", e.key))
		}
		text = line.ReplaceAllString(text, "${1} "+e.value)
	}
	return text, failed
}
