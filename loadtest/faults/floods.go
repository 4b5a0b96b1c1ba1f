package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/loadtest/harness"
)

const (
	floodRate  = 5000 // requests a second of a flood
	besideRate = 500  // the vendors' orders a second beside it
)

// flood makes requests to addr, whatever they are answered.
type flood struct {
	addr        string
	connections int
	request     func(dst []byte, n int) []byte
}

func (f flood) send(ctx context.Context, d time.Duration) *tally {
	return (&load{addr: f.addr, connections: f.connections, rate: floodRate, duration: d,
		request: func(dst []byte, n int) ([]byte, placed) { return f.request(dst, n), placed{} }}).send(ctx)
}

// post is a request with a JSON body and further header lines.
func post(dst []byte, path, headers, body string) []byte {
	return fmt.Appendf(dst, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, headers, len(body), body)
}

// beside lets the vendors order while do runs. It returns what they saw and how many cores each program used; the
// clients are the vendors' and the flood's.
func (s *overloaded) beside(ctx context.Context, do func()) (t *tally, cores string) {
	watched := watch(ctx, append(s.processes(), harness.Self("clients"))...)
	var all sync.WaitGroup
	all.Go(do)
	t = s.order(ctx, s.wide, load{connections: steadyConnections, rate: besideRate, duration: s.form.load})
	all.Wait()
	used := watched()
	for _, name := range []string{"gateway", "worker", "redis", "clients"} {
		cores += fmt.Sprintf("%s %.2f ", name, used[name].cores)
	}
	return t, strings.TrimSpace(cores)
}

// checkCommands checks that a refused flood costs Redis next to nothing: commands in a phase without it and in one
// with it.
func (s *overloaded) checkCommands(ctx context.Context, what, want string, f flood, refusal int) error {
	calm, err := s.during(ctx, func() { time.Sleep(s.form.phase) })
	if err != nil {
		return err
	}
	var refused int64
	flooded, err := s.during(ctx, func() { refused = int64(f.send(ctx, s.form.phase).statuses[refusal]) })
	if err != nil {
		return err
	}
	s.check(refused > 0 && flooded.Commands-calm.Commands < refused/10, what, want,
		"%d for %d refusals, %d in the same time without", flooded.Commands, refused, calm.Commands)
	return nil
}

// during is by how much Redis's figures grow while something is done.
func (s *overloaded) during(ctx context.Context, do func()) (ledger.Server, error) {
	before, err := s.ledger.Monitor.Servers(ctx)
	if err != nil {
		return ledger.Server{}, err
	}
	do()
	after, err := s.ledger.Monitor.Servers(ctx)
	if err != nil {
		return ledger.Server{}, err
	}
	return ledger.Server{Commands: after[0].Commands - before[0].Commands, MemoryUsed: after[0].MemoryUsed - before[0].MemoryUsed}, nil
}

// floodFleet is the case fleet: a fleet's credential in wrong hands.
func (s *overloaded) floodFleet(ctx context.Context) error {
	const most = 8 << 20 // bytes that Redis may keep more than the vendors' orders take
	orders, err := s.openAndEnded(ctx)
	if err != nil {
		return err
	}
	f := flood{addr: strings.TrimPrefix(s.Demo.OpsURL, "http://"), connections: 32}
	f.request = func(dst []byte, n int) []byte {
		statuses := []string{`Assigned`, `PickedUp`, `Delivered`, `Failed","failureReason":"Other`}
		if n%2 == 0 { // an open order, which the flood does not end
			statuses = []string{`Assigned`, `Failed","failureReason":"AddressNotFound`}
		}
		status := statuses[n/len(orders)%len(statuses)]
		path := "/api/fleet/v1/jobs/" + orders[n%len(orders)] + "/status"
		return post(dst, path, "Authorization: Bearer "+s.apis.Fleet.Bearer+"\r\n", `{"status":"`+status+`"}`)
	}
	minute := func() { _ = sleep(ctx, 62*time.Second) } // the worker trims every minute
	var calm, flooded *tally
	var calmCores, cores string
	calmGrowth, err := s.during(ctx, func() {
		calm, calmCores = s.beside(ctx, func() {})
		minute()
	})
	if err != nil {
		return err
	}
	grown, err := s.during(ctx, func() {
		flooded, cores = s.beside(ctx, func() {
			s.figure("answers to the fleet", "%s", f.send(ctx, s.form.load).answers())
		})
		minute()
	})
	if err != nil {
		return err
	}
	s.figure("reports of one fleet a second", "%d over %d connections for %.0f s; vendors at %d orders a second",
		floodRate, f.connections, s.form.load.Seconds(), besideRate)
	s.figure("cores used without the flood and with it", "%s; %s", calmCores, cores)
	s.figure("vendors' orders without the flood, p99", "%s", milliseconds(p99(calm.accepted)))
	s.checkServed(flooded, "vendors' orders accepted beside the flood")
	s.checkP99(flooded.accepted, s.form.beside, "vendors' orders beside the flood")
	each := float64(calmGrowth.MemoryUsed) / float64(max(len(calm.orders), 1))
	left := float64(grown.MemoryUsed) - each*float64(len(flooded.orders))
	s.check(left <= most, "Redis's memory a minute later, without what the vendors' orders take",
		"at most 8 MiB more than before", "%.1f MiB", left/(1<<20))

	disabled := map[string]bool{"disabled": true}
	if err := s.apis.Admin.Call(ctx, http.MethodPatch, "/fleets/"+s.apis.FleetID, disabled, nil); err != nil {
		return err
	}
	return s.checkCommands(ctx, "commands of Redis while a disabled fleet is refused", "as many as when nothing comes",
		f, http.StatusForbidden)
}

// openAndEnded are a hundred open and a hundred ended orders of the fleet, in turns.
func (s *overloaded) openAndEnded(ctx context.Context) (ids []string, err error) {
	t := s.order(ctx, s.wide, load{connections: 4, duration: time.Minute, most: 200})
	if len(t.orders) != 200 {
		return nil, fmt.Errorf("%d of 200 orders accepted%s", len(t.orders), t.problems())
	}
	for i, o := range t.orders {
		ids = append(ids, o.id)
		if i%2 == 1 {
			delivered := map[string]string{"status": "Delivered"}
			if err := s.apis.Fleet.Call(ctx, http.MethodPost, "/jobs/"+o.id+"/status", delivered, nil); err != nil {
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

// floodLogins is the case logins: a stranger who guesses credentials, in turns of a client that exists, of clients
// that do not, and of what is no client.
func (s *overloaded) floodLogins(ctx context.Context) error {
	owner := s.wide[0]
	f := flood{addr: s.addr, connections: 600, request: func(dst []byte, n int) []byte {
		client := []string{owner.ClientID, fmt.Sprintf("ven_%032x", n), "nobody"}[n%3]
		return post(dst, "/api/vendor/v1/token", "", fmt.Sprintf(`{"clientId":%q,"clientSecret":"vas_%d"}`, client, n))
	}}
	calm, calmCores := s.beside(ctx, func() {})
	right, tries := 0, 0
	flooded, cores := s.beside(ctx, func() {
		var stranger *tally
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			stranger = f.send(ctx, s.form.load)
		}()
		for ; ; tries++ { // the owner logs in from the same address
			select {
			case <-ended:
				s.figure("answers to the stranger", "%s", stranger.answers())
				return
			case <-time.After(max(s.form.load/10, time.Second)):
			}
			if _, err := s.apis.Vendor.Login(ctx, "/token", owner.ClientID, owner.ClientSecret); err == nil {
				right++
			}
		}
	})
	s.check(right == tries && tries > 0, "right logins beside the wrong ones", "all", "%d of %d", right, tries)
	s.figure("wrong logins a second", "%d over %d connections for %.0f s; vendors at %d orders a second",
		floodRate, f.connections, s.form.load.Seconds(), besideRate)
	s.figure("cores used without them and with them; clients are the attacker's and the vendors'",
		"%s; %s", calmCores, cores)
	s.figure("vendors' orders without them and beside them, p99", "%s, %s",
		milliseconds(p99(calm.accepted)), milliseconds(p99(flooded.accepted)))
	busy := len(flooded.again) - flooded.unknown
	s.check(busy == 0 && flooded.served(flooded.accepted, s.form.share), "vendors' orders accepted beside them",
		"all, and none answered 503", "%d of %d, %d answered 503%s",
		flooded.accepted.TotalCount(), flooded.sent, busy, flooded.problems())
	return s.checkCommands(ctx, "commands of Redis while throttled logins are refused", "next to none",
		f, http.StatusTooManyRequests)
}
