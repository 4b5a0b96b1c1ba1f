package main

import (
	"context"
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

// flood is requests to addr, whatever they are answered.
func flood(addr string, connections int, request func(dst []byte, n int) []byte) load {
	return load{addr: addr, connections: connections, rate: floodRate,
		request: func(dst []byte, n int) ([]byte, placed) { return request(dst, n), placed{} }}
}

// post is a request with a JSON body and further header lines.
func post(dst []byte, path, headers, body string) []byte {
	return fmt.Appendf(dst, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, headers, len(body), body)
}

// beside lets the vendors order while do runs, and returns what they saw. "clients" are the vendors and the flood.
func (s *overloaded) beside(ctx context.Context, when string, do func()) *tally {
	watched := watch(ctx, append(s.processes(), harness.Self("clients"))...)
	var all sync.WaitGroup
	all.Go(do)
	t := s.order(ctx, s.wide, load{connections: steadyConnections, rate: besideRate, duration: s.form.load})
	all.Wait()
	used := watched()
	s.figure("cores used "+when, "gateway %.2f worker %.2f redis %.2f clients %.2f",
		used["gateway"].cores, used["worker"].cores, used["redis"].cores, used["clients"].cores)
	s.figure("vendors' orders "+when+", p99", "%s", milliseconds(p99(t.accepted)))
	return t
}

func (s *overloaded) flooded(ctx context.Context, f load, what string) (t *tally) {
	f.duration = s.form.load
	s.figure(what+" a second", "%d over %d connections for %.0f s; vendors at %d orders a second",
		floodRate, f.connections, s.form.load.Seconds(), besideRate)
	return s.beside(ctx, "beside "+what, func() { s.figure("answers to "+what, "%s", f.send(ctx).answers()) })
}

// checkCommands checks that a refused flood costs Redis next to nothing, compared with a phase without it.
func (s *overloaded) checkCommands(ctx context.Context, what, want string, f load, refusal int) error {
	f.duration = s.form.phase
	var refused int64
	began := time.Now()
	flooded, err := s.during(ctx, func() { refused = int64(f.send(ctx).statuses[refusal]) })
	if err != nil {
		return err
	}
	took := time.Since(began) // the last answers may come late
	calm, err := s.during(ctx, func() { time.Sleep(took) })
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

// floodFleet is a fleet's credential in wrong hands.
func (s *overloaded) floodFleet(ctx context.Context) error {
	const most = 8 << 20 // bytes that Redis may keep more than the vendors' orders take
	orders, err := s.openAndEnded(ctx)
	if err != nil {
		return err
	}
	f := flood(strings.TrimPrefix(s.Demo.OpsURL, "http://"), 32, func(dst []byte, n int) []byte {
		statuses := []string{`Assigned`, `PickedUp`, `Delivered`, `Failed","failureReason":"Other`}
		if n%2 == 0 { // an open order, which the flood does not end
			statuses = []string{`Assigned`, `Failed","failureReason":"AddressNotFound`}
		}
		status := statuses[n/len(orders)%len(statuses)]
		path := "/api/fleet/v1/jobs/" + orders[n%len(orders)] + "/status"
		return post(dst, path, "Authorization: Bearer "+s.apis.Fleet.Bearer+"\r\n", `{"status":"`+status+`"}`)
	})
	minute := func() { _ = harness.Sleep(ctx, 62*time.Second) } // the worker trims every minute
	var calm, flooded *tally
	calmGrowth, err := s.during(ctx, func() {
		calm = s.beside(ctx, "without the flood", func() {})
		minute()
	})
	if err != nil {
		return err
	}
	grown, err := s.during(ctx, func() {
		flooded = s.flooded(ctx, f, "the reports of one fleet")
		minute()
	})
	if err != nil {
		return err
	}
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
	return ids, harness.Await(ctx, "the worker", s.form.timeout, pollInterval, func() (bool, error) {
		var job struct{ Status string }
		err := s.apis.Fleet.Call(ctx, http.MethodGet, "/jobs/"+ids[len(ids)-1], nil, &job)
		return job.Status == "Delivered", err
	})
}

// floodLogins is a stranger who guesses credentials of a client that exists, of some that do not, and of what is none.
func (s *overloaded) floodLogins(ctx context.Context) error {
	owner := s.wide[0]
	f := flood(s.addr, 600, func(dst []byte, n int) []byte {
		client := []string{owner.ClientID, fmt.Sprintf("ven_%032x", n), "nobody"}[n%3]
		return post(dst, "/api/vendor/v1/token", "", fmt.Sprintf(`{"clientId":%q,"clientSecret":"vas_%d"}`, client, n))
	})
	s.beside(ctx, "without the wrong logins", func() {})
	right, tries := 0, 0
	flooding, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { // the owner logs in from the same address
		for ; harness.Sleep(flooding, max(s.form.load/10, time.Second)) == nil; tries++ {
			if _, err := s.apis.Vendor.Login(ctx, "/token", owner.ClientID, owner.ClientSecret); err == nil {
				right++
			}
		}
	})
	flooded := s.flooded(ctx, f, "the wrong logins")
	stop()
	all.Wait()
	s.check(right == tries && tries > 0, "right logins beside the wrong ones", "all", "%d of %d", right, tries)
	busy := len(flooded.again) - flooded.unknown
	s.check(busy == 0 && flooded.served(flooded.accepted, s.form.share), "vendors' orders accepted beside them",
		"all, and none answered 503", "%d of %d, %d answered 503%s",
		flooded.accepted.TotalCount(), flooded.sent, busy, flooded.problems())
	return s.checkCommands(ctx, "commands of Redis while throttled logins are refused", "next to none",
		f, http.StatusTooManyRequests)
}
