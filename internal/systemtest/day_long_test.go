//go:build long

package systemtest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/receiver"
)

// A vendor's day adds up, in webhooks and in the reports, wherever the partitions
// are.
//
//rule:make-run/REDIS_URL what-the-service-does/facts-that/payment-handling-the-service-stores
func TestDay_AddsUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cluster bool
		o       stack.Options
		day     day.Options
	}{
		"one Redis":      {false, stack.Options{}, day.Options{Orders: 100, Seed: 7}},
		"a cluster":      {true, stack.Options{}, day.Options{Orders: 50, Seed: 8}},
		"Redis over TLS": {false, stack.Options{RedisTLS: true}, day.Options{Orders: 30, Seed: 11}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.cluster {
				cluster, err := stack.StartCluster(t.Context(), t.TempDir(), 3)
				must(t, err)
				t.Cleanup(cluster.Stop)
				c.o.RedisURL = cluster.URL
			}
			url, handle := listen(t)
			c.o.WebhookURL, c.o.CourierStep, c.o.Reporting = url, 100*time.Millisecond, true
			s := startStack(t, c.o)
			if url := s.RedisURL(stack.GatewayUser); c.o.RedisTLS && !strings.HasPrefix(url, "rediss://"+stack.GatewayUser+":") {
				t.Fatalf("the gateway goes to %s", url)
			}
			playDay(t, s, handle, c.day)
		})
	}
}

// playDay plays a day against s, whose demo webhook handle answers.
func playDay(t *testing.T, s *stackEnv, handle func(http.Handler), o day.Options) {
	t.Helper()
	o.Prefix, o.BaseURL, o.FleetID = "DAY-", s.Demo.BaseURL, s.Demo.Fleet.FleetID
	o.ClientID, o.ClientSecret = s.Demo.Account.ClientID, s.Demo.Account.ClientSecret
	d := day.New(o)
	received, err := receiver.New(receiver.Options{Secrets: []string{s.Demo.Webhook.Secret}, Seen: d.Seen})
	must(t, err)
	handle(received)
	summary, err := d.Play(t.Context(), received)
	must(t, err)
	var text strings.Builder
	summary.Print(&text)
	t.Log(text.String())
	reports := client.New("", 2).As(s.Demo.PanelURL+"/reports", s.Demo.ReportsToken)
	finance, err := d.ReadFinance(t.Context(), reports, s.Demo.Account.AccountID)
	must(t, err)
	for _, problem := range append(summary.Problems, finance.Problems...) {
		t.Error(problem)
	}
}

// Two gateways and two workers. One process of each kind and Redis are killed and
// started again, and a worker is killed for good: tills that repeat what was not
// answered lose nothing, and the dead worker's work is taken over.
func TestKills_LoseNothing(t *testing.T) {
	t.Parallel()
	s := startStack(t, stack.Options{CourierStep: 100 * time.Millisecond})
	_, second, err := s.AddGateway(t.Context())
	must(t, err)
	doomed, err := s.AddWorker(t.Context(), "doomed")
	must(t, err)
	v := s.Vendor(t, stack.Unlimited)
	r := v.Receive(t, receiver.Options{})
	c := openTills(t, v, []string{s.Demo.BaseURL, second}, 8, unavailable(t))

	c.passes(t, 60)
	s.Gateway.Kill()
	c.awaitResets(t)
	must(t, s.Gateway.Start(t.Context()))
	c.passes(t, 60)
	s.Redis.Kill()
	c.awaitRefusal(t)
	must(t, s.Redis.Start(t.Context()))
	c.passes(t, 60)
	doomed.Kill()
	s.Worker.Kill()
	c.passes(t, 20) // which no worker sees
	must(t, s.Worker.Start(t.Context()))
	c.passes(t, 60)
	if lost := c.check(t, r); len(lost) > 0 {
		t.Errorf("%d orders lost, the first %s", len(lost), lost[0].orderID)
	}
	(&streams{[]commander{s.Redis}}).settled(t)
}

// unavailable is what a client has to expect while Redis is away or changes hands,
// with the word when to come back.
func unavailable(t *testing.T) func(*client.Answer) bool {
	return func(a *client.Answer) bool {
		if a.Status != http.StatusServiceUnavailable || a.Code != "SERVICE_UNAVAILABLE" {
			return false
		}
		if a.RetryAfter() < time.Second {
			t.Errorf("503 without Retry-After: %s", a.Raw)
		}
		return true
	}
}
