//go:build long

package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/receiver"
)

// playDay plays a day against s, whose demo webhook is l, and returns the
// summary. progress may disturb. When s has reporting, the day's reports must tie
// with what the vendor sent.
func playDay(t *testing.T, s *stack.Stack, l *listener, o day.Options) *day.Summary {
	t.Helper()
	o.BaseURL, o.FleetID = s.Demo.BaseURL, s.Demo.Fleet.FleetID
	o.ClientID, o.ClientSecret = s.Demo.Account.ClientID, s.Demo.Account.ClientSecret
	d := day.New(o)
	r := l.serve(t, receiver.Options{Secrets: []string{s.Demo.Webhook.Secret}, Seen: d.Seen})
	summary, err := d.Play(t.Context(), r)
	must(t, err)
	var text strings.Builder
	summary.Print(&text)
	t.Log(text.String())
	if len(summary.Problems) > 0 {
		t.Error("the day does not add up")
	}
	if s.Reporting != nil {
		reports := client.New(s.Demo.PanelURL+"/reports", 2)
		finance, err := d.ReadFinance(t.Context(), reports.As(reports.Base, s.Demo.ReportsToken), s.Demo.Account.AccountID)
		must(t, err)
		for _, problem := range finance.Problems {
			t.Error(problem)
		}
	}
	return summary
}

//rule:what-the-service-does/facts-that/payment-handling-the-service-stores
func TestDay_AddsUp(t *testing.T) {
	t.Parallel()
	l := listen(t)
	s := start(t, stack.Options{WebhookURL: l.url, CourierStep: 100 * time.Millisecond, Reporting: true})
	summary := playDay(t, s, l, day.Options{Orders: 100, Seed: 7, Prefix: "DAY-"})
	if summary.RateLimited+summary.Unavailable+summary.Unanswered > 0 {
		t.Errorf("on a quiet day %d tries were limited, %d found the service away, %d got no answer",
			summary.RateLimited, summary.Unavailable, summary.Unanswered)
	}
}

// The same code against Redis Cluster, where every partition may live on
// another master.
//
//rule:make-run/REDIS_URL
func TestDay_AddsUpOnACluster(t *testing.T) {
	t.Parallel()
	c, err := stack.StartCluster(t.Context(), t.TempDir(), 3)
	must(t, err)
	t.Cleanup(c.Stop)
	l := listen(t)
	s := start(t, stack.Options{RedisURL: c.URL, WebhookURL: l.url, CourierStep: 100 * time.Millisecond, Reporting: true})
	playDay(t, s, l, day.Options{Orders: 50, Seed: 8, Prefix: "CLUSTER-"})
}

// Gateway, worker and Redis are killed with SIGKILL, each once, in the middle
// of the day. A vendor that repeats what was not answered loses nothing.
func TestDay_LosesNothingWhenEveryProcessIsKilledOnce(t *testing.T) {
	t.Parallel()
	l := listen(t)
	s := start(t, stack.Options{WebhookURL: l.url, CourierStep: 200 * time.Millisecond})
	const orders = 160
	var faults sync.WaitGroup
	t.Cleanup(faults.Wait)
	kill := func(kill func(), restart func(context.Context) error) {
		faults.Go(func() {
			kill()
			time.Sleep(time.Second) // the outage: long enough for requests to meet it
			if err := restart(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	summary := playDay(t, s, l, day.Options{
		Orders: orders, Seed: 9, Prefix: "KILL-",
		Patience: 30 * time.Second,
		Settle:   3 * time.Minute, // a killed worker's leases have to expire first
		Progress: func(done, _ int) {
			switch done {
			case orders / 4:
				kill(s.Gateway.Kill, s.Gateway.Start)
			case orders / 2:
				kill(s.Worker.Kill, s.Worker.Start)
			case orders * 3 / 4:
				kill(s.Redis.Kill, s.Redis.Start)
			}
		},
	})
	faults.Wait()
	if summary.Unanswered == 0 || summary.Unavailable == 0 {
		t.Errorf("%d tries met no gateway, %d no Redis: the faults came at the wrong time", summary.Unanswered, summary.Unavailable)
	}
}

// What was ordered before a restart is known after it, and its webhooks, which
// nobody took at the time, arrive.
//
//rule:make-run/DATA_DIR make-run/ctrl-c-stops-everything-cleanly-started
func TestRestart_KnowsTheSameOrdersAndGoesOnDelivering(t *testing.T) {
	t.Parallel()
	l := listen(t)
	o := stack.Options{DataDir: t.TempDir(), WebhookURL: l.url, CourierStep: 50 * time.Millisecond}
	s := start(t, o)
	// Down: every webhook is refused until the system was started again.
	var mu sync.Mutex
	down := true
	r := l.serve(t, receiver.Options{Secrets: []string{s.Demo.Webhook.Secret}, Refuse: func(receiver.Event) int {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return http.StatusServiceUnavailable
		}
		return 0
	}})
	v := newHouse(t, s).login(t, s.Demo.Account)
	must(t, v.Call(t.Context(), http.MethodPut, "/stores/"+v.store, storeBody(s.Demo.Fleet.FleetID), nil))
	var body map[string]any
	eventually(t, 10*time.Second, "the sandbox courier confirms the store", func() bool {
		body = v.order(nil)
		a, err := v.Do(t.Context(), http.MethodPost, "/orders", body, "X-Idempotency-Key", "restart")
		must(t, err)
		return a.OK()
	})
	first, err := v.Do(t.Context(), http.MethodPost, "/orders", body, "X-Idempotency-Key", "restart")
	must(t, err)
	eventually(t, 10*time.Second, "a webhook of the order is refused", func() bool { return r.Counts().Refused > 1 })
	s.Stop()

	mu.Lock()
	down = false
	mu.Unlock()
	again := start(t, o)
	if again.Demo.Account != s.Demo.Account || again.Demo.Fleet != s.Demo.Fleet || *again.Demo.Webhook != *s.Demo.Webhook || again.Demo.AdminKey != s.Demo.AdminKey {
		t.Errorf("demo.json changed:\n%+v\n%+v", s.Demo, again.Demo)
	}
	v.Client = v.As(again.Demo.BaseURL+"/api/vendor/v1", v.Bearer) // the old token: keys are kept
	replay, err := v.Do(t.Context(), http.MethodPost, "/orders", body, "X-Idempotency-Key", "restart")
	must(t, err)
	if string(replay.Raw) != string(first.Raw) || replay.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("after the restart: %s, before: %s", replay.Raw, first.Raw)
	}
	var created struct{ OrderID string }
	must(t, replay.Into(&created))
	eventually(t, 90*time.Second, "every webhook arrives after the restart", func() bool {
		return fmt.Sprint(statuses(r.Timeline(created.OrderID))) == "[Assigned PickingUp PickedUp Delivering Delivered]" &&
			r.Counts().Events["store.activated"] == 1
	})
	if c := r.Counts(); len(c.Invalid) > 0 {
		t.Errorf("%+v", c)
	}
}

func statuses(timeline []receiver.Entry) (names []string) {
	for _, e := range timeline {
		names = append(names, e.Status)
	}
	return names
}

// Two gateways take the vendor's requests in turn, two workers share the rest,
// and one of the workers is killed for good: no program keeps what another
// replica needs, and the dead one's work is taken over.
func TestDay_ReplicasShareItAndOutliveEachOther(t *testing.T) {
	t.Parallel()
	l := listen(t)
	s := start(t, stack.Options{WebhookURL: l.url, CourierStep: 200 * time.Millisecond})
	_, second, err := s.AddGateway(t.Context())
	must(t, err)
	doomed, err := s.AddWorker(t.Context(), "doomed")
	must(t, err)
	inTurn := alternate(t, s.Demo.BaseURL, second)
	s.Demo.BaseURL = inTurn
	const orders = 80
	var killed sync.WaitGroup
	t.Cleanup(killed.Wait)
	playDay(t, s, l, day.Options{
		Orders: orders, Seed: 10, Prefix: "TWO-",
		Settle: 3 * time.Minute, // what the dead worker had taken is taken over after a minute
		Progress: func(done, _ int) {
			if done == orders/2 {
				killed.Go(doomed.Kill)
			}
		},
	})
}

// alternate is a balancer that sends every second request to each.
func alternate(t *testing.T, origins ...string) string {
	t.Helper()
	var turn atomic.Int64
	targets := make([]*url.URL, len(origins))
	for i, o := range origins {
		target, err := url.Parse(o)
		must(t, err)
		targets[i] = target
	}
	balancer := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(targets[int(turn.Add(1))%len(targets)])
	}})
	t.Cleanup(balancer.Close)
	return balancer.URL
}
