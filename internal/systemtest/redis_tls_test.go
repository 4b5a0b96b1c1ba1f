package systemtest

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/day"
)

// All programs with their users over TLS: a short day that has to add up, with its
// reports. What is wrong with certificates stands in package redisaccess.
//
//rule:make-run/REDIS_URL
func TestDay_AddsUpOverTLS(t *testing.T) {
	t.Parallel()
	l := listen(t)
	s := start(t, stack.Options{RedisTLS: true, WebhookURL: l.url, CourierStep: 100 * time.Millisecond, Reporting: true})
	for _, user := range []string{stack.GatewayUser, stack.WorkerUser, stack.ReportingUser} {
		if !strings.HasPrefix(s.RedisURL(user), "rediss://"+user+":") {
			t.Fatalf("%s goes to %s", user, s.RedisURL(user))
		}
	}
	playDay(t, s, l, day.Options{Orders: 30, Seed: 11, Prefix: "TLS-"})
}
