package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// besideRate are the vendors' orders a second beside a flood.
const besideRate = 500

// statuses counts the answers to a flood.
type statuses map[int]int

func (s statuses) String() string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%d: %d", status, s[status]))
	}
	return strings.Join(parts, ", ")
}

// flood sends requests to addr for a while, whatever they are answered.
func flood(ctx context.Context, addr string, connections int, rate float64, d time.Duration, request func(dst []byte, n int) []byte) statuses {
	var mu sync.Mutex
	answers := make(statuses)
	l := load{addr: addr, connections: connections, rate: rate, duration: d,
		request: func(dst []byte, n int) ([]byte, int, int) { return request(dst, n), 0, n },
		answered: func(_ sent, a harness.Answer, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			answers[a.Status]++
		},
		lost: func(sent) {}}
	l.send(ctx)
	return answers
}

// beside lets the vendors order while do runs. It returns what they saw and how many
// cores each program used; the clients are the vendors' and the flood's.
func (s *overloaded) beside(ctx context.Context, do func()) (t *tally, cores string) {
	watched := watch(ctx, append(s.processes(), harness.Self("clients"))...)
	var all sync.WaitGroup
	all.Go(do)
	t = s.order(ctx, s.wide(), steadyConnections, besideRate, s.form.load, 0)
	all.Wait()
	_, busy := watched()
	for _, name := range []string{"gateway", "worker", "redis", "clients"} {
		cores += fmt.Sprintf("%s %.2f ", name, busy[name])
	}
	return t, strings.TrimSpace(cores)
}

// checkCommands checks that a refused flood costs Redis next to nothing: commands in
// a phase without it and in one with it.
func (s *overloaded) checkCommands(ctx context.Context, what, want string, send func(time.Duration) statuses, refusal int) error {
	var answers statuses
	var commands [2]int64
	for i, do := range []func(){func() { time.Sleep(s.form.phase) }, func() { answers = send(s.form.phase) }} {
		before, err := s.server(ctx)
		if err != nil {
			return err
		}
		do()
		after, err := s.server(ctx)
		if err != nil {
			return err
		}
		commands[i] = after.Commands - before.Commands
	}
	refused := int64(answers[refusal])
	s.check(refused > 0 && commands[1]-commands[0] < refused/10, what, want, "%d for %d refusals, %d in the same time without", commands[1], refused, commands[0])
	return nil
}

// floodFleet is the scenario fleet: a fleet's credential in wrong hands.
func (r *overloadRun) floodFleet(ctx context.Context) error {
	const (
		rate        = 5000 // reports a second, of open and of ended orders
		connections = 32
		most        = 8 << 20 // bytes that Redis may keep more than the vendors' orders take
	)
	s, err := r.open(ctx, stack.Options{}, r.form.wide, 0, false)
	if err != nil {
		return err
	}
	defer s.stop()
	ops, err := url.Parse(s.Demo.OpsURL)
	if err != nil {
		return err
	}
	orders, err := s.openAndEnded(ctx)
	if err != nil {
		return err
	}
	send := func(d time.Duration) statuses {
		return flood(ctx, ops.Host, connections, rate, d, func(dst []byte, n int) []byte {
			status := []string{`Assigned`, `PickedUp`, `Delivered`, `Failed","failureReason":"Other`}[n/len(orders)%4]
			if n%2 == 0 { // an open order, which the flood does not end
				status = []string{`Assigned`, `Failed","failureReason":"AddressNotFound`}[n/len(orders)%2]
			}
			body := `{"status":"` + status + `"}`
			return fmt.Appendf(dst, "POST /api/fleet/v1/jobs/%s/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				orders[n%len(orders)], s.apis.Fleet.Bearer, len(body), body)
		})
	}
	// growth is by how much Redis has grown a minute after the vendors ordered.
	growth := func(do func()) (t *tally, cores string, bytes int64, err error) {
		before, err := s.server(ctx)
		if err != nil {
			return nil, "", 0, err
		}
		t, cores = s.beside(ctx, do)
		if err := sleep(ctx, 62*time.Second); err != nil { // the worker trims every minute
			return nil, "", 0, err
		}
		after, err := s.server(ctx)
		return t, cores, after.MemoryUsed - before.MemoryUsed, err
	}
	calm, calmCores, calmGrowth, err := growth(func() {})
	if err != nil {
		return err
	}
	flooded, cores, grown, err := growth(func() { r.figure("answers to the fleet", "%s", send(r.form.load)) })
	if err != nil {
		return err
	}
	r.figure("reports of one fleet a second", "%d over %d connections for %.0f s; vendors at %d orders a second", rate, connections, r.form.load.Seconds(), besideRate)
	r.figure("cores used without the flood and with it", "%s; %s", calmCores, cores)
	r.figure("vendors' orders without the flood, p99", "%s", milliseconds(p99(calm.accepted)))
	r.checkServed(flooded, flooded.accepted, "vendors' orders accepted beside the flood", "all")
	r.check(p99(flooded.accepted) < r.form.beside, "vendors' orders beside the flood, p99", "less than "+r.form.beside.String(), "%s", milliseconds(p99(flooded.accepted)))
	each := float64(calmGrowth) / float64(max(len(calm.orders), 1))
	left := float64(grown) - each*float64(len(flooded.orders))
	r.check(left <= most, "Redis's memory a minute later, without what the vendors' orders take", "at most 8 MiB more than before", "%.1f MiB", left/(1<<20))

	if err := s.apis.Admin.Call(ctx, http.MethodPatch, "/fleets/"+s.apis.FleetID, map[string]bool{"disabled": true}, nil); err != nil {
		return err
	}
	return s.checkCommands(ctx, "commands of Redis while a disabled fleet is refused", "as many as when nothing comes", send, http.StatusForbidden)
}

// openAndEnded are a hundred open and a hundred ended orders of the fleet, in turns.
func (s *overloaded) openAndEnded(ctx context.Context) (ids []string, err error) {
	t := s.order(ctx, s.wide(), 4, 0, time.Minute, 200)
	if len(t.orders) != 200 {
		return nil, fmt.Errorf("%d of 200 orders accepted%s", len(t.orders), t.problems())
	}
	for i, o := range t.orders {
		ids = append(ids, o.id)
		if i%2 == 1 {
			if err := s.apis.Fleet.Call(ctx, http.MethodPost, "/jobs/"+o.id+"/status", map[string]string{"status": "Delivered"}, nil); err != nil {
				return nil, err
			}
		}
	}
	took, err := await(ctx, s.form.timeout, func() (bool, error) {
		var job struct{ Status string }
		err := s.apis.Fleet.Call(ctx, http.MethodGet, "/jobs/"+ids[len(ids)-1], nil, &job)
		return job.Status == "Delivered", err
	})
	if err == nil && took < 0 {
		err = errors.New("the worker decides nothing")
	}
	return ids, err
}

// floodLogins is the scenario logins: a stranger who guesses credentials, in turns
// of a client that exists, of clients that do not, and of what is no client.
func (r *overloadRun) floodLogins(ctx context.Context) error {
	const rate, connections = 5000, 600
	s, err := r.open(ctx, stack.Options{}, r.form.wide, 0, false)
	if err != nil {
		return err
	}
	defer s.stop()
	owner := s.vendors[0]
	send := func(d time.Duration) statuses {
		return flood(ctx, s.addr, connections, rate, d, func(dst []byte, n int) []byte {
			client := []string{owner.ClientID, fmt.Sprintf("ven_%032x", n), "nobody"}[n%3]
			body := fmt.Sprintf(`{"clientId":%q,"clientSecret":"vas_%d"}`, client, n)
			return fmt.Appendf(dst, "POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		})
	}
	calm, calmCores := s.beside(ctx, func() {})
	right, tries := 0, 0
	flooded, cores := s.beside(ctx, func() {
		answers := make(chan statuses)
		go func() { answers <- send(r.form.load) }()
		for ; ; tries++ { // the owner logs in from the same address
			select {
			case a := <-answers:
				r.figure("answers to the stranger", "%s", a)
				return
			case <-time.After(max(r.form.load/10, time.Second)):
			}
			if _, err := s.apis.Vendor.Login(ctx, "/token", owner.ClientID, owner.ClientSecret); err == nil {
				right++
			}
		}
	})
	r.check(right == tries && tries > 0, "right logins beside the wrong ones", "all", "%d of %d", right, tries)
	r.figure("wrong logins a second", "%d over %d connections for %.0f s; vendors at %d orders a second", rate, connections, r.form.load.Seconds(), besideRate)
	r.figure("cores used without them and with them; clients are the attacker's and the vendors'", "%s; %s", calmCores, cores)
	r.figure("vendors' orders without them and beside them, p99", "%s, %s", milliseconds(p99(calm.accepted)), milliseconds(p99(flooded.accepted)))
	busy := len(flooded.again) - flooded.unknown
	r.check(busy == 0 && flooded.served(flooded.accepted, r.form.share), "vendors' orders accepted beside them", "all, and none answered 503",
		"%d of %d, %d answered 503%s", flooded.accepted.TotalCount(), flooded.sent(), busy, flooded.problems())
	return s.checkCommands(ctx, "commands of Redis while throttled logins are refused", "next to none", send, http.StatusTooManyRequests)
}
