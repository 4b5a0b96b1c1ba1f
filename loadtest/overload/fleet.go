package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// A fleet's credential in wrong hands: so many reports a second, over so many
// connections, of open and of ended orders, beside vendors at an even rate.
const (
	floodRate        = 5000
	floodConnections = 32
	floodOrders      = 100 // of each kind
	besideRate       = 500
	// besides is what Redis may keep more than the vendors' orders take.
	besides = 8 << 20
)

// flood counts the answers that an attacker gets, by status. It is safe for concurrent use.
type flood struct {
	mu       sync.Mutex
	statuses map[int]int
}

func (f *flood) count(_ *tally, _ shot, a harness.Answer, _ time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses[a.Status]++
}

func (f *flood) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := ""
	for _, status := range []int{202, 401, 403, 409, 429, 503} {
		text += fmt.Sprintf("%d: %d, ", status, f.statuses[status])
		delete(f.statuses, status)
	}
	return fmt.Sprintf("%sanything else: %v", text, f.statuses)
}

// floodFleet is the case fleet.
func (r *run) floodFleet(ctx context.Context) error {
	s, err := r.start(ctx, "fleet", stack.Options{}, r.form.wide, 0)
	if err != nil {
		return err
	}
	defer s.Stop()
	ops, err := url.Parse(s.Demo.OpsURL)
	if err != nil {
		return err
	}
	orders, err := r.reported(ctx, s)
	if err != nil {
		return err
	}
	send := func(d time.Duration) *flood {
		f := &flood{statuses: map[int]int{}}
		v := volley{addr: ops.Host, connections: floodConnections, rate: floodRate, duration: d,
			request: func(dst []byte, n int) ([]byte, int, int) {
				status := []string{"Assigned", "PickedUp", "Delivered", "Failed\",\"failureReason\":\"Other"}[n/len(orders)%4]
				if n%2 == 0 { // an open order, which the flood does not end
					status = []string{"Assigned", "Failed\",\"failureReason\":\"AddressNotFound"}[n/len(orders)%2]
				}
				body := `{"status":"` + status + `"}`
				return fmt.Appendf(dst, "POST /api/fleet/v1/jobs/%s/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
					orders[n%len(orders)], s.fleet.Bearer, len(body), body), 0, n
			},
			count: f.count}
		v.fire(ctx, newTally())
		return f
	}
	calm, calmCPU, calmGrowth, err := r.beside(ctx, s, nil)
	if err != nil {
		return err
	}
	flooded, cpu, growth, err := r.beside(ctx, s, func() {
		r.sheet.tell("answers to the fleet", "%s", send(r.form.load))
	})
	if err != nil {
		return err
	}
	seconds := r.form.load.Seconds()
	r.sheet.tell("reports of one fleet a second", "%d over %d connections for %.0f s; vendors at %d orders a second", floodRate, floodConnections, seconds, besideRate)
	r.sheet.tell("cores used without the flood and with it", "%s; %s", calmCPU, cpu)
	r.sheet.tell("vendors' orders without the flood, p99", "%s", milliseconds(p99(calm.accepted)))
	r.sheet.demand(flooded.served(flooded.accepted.TotalCount(), r.form.share), "vendors' orders accepted beside the flood", "all",
		"%d of %d%s", flooded.accepted.TotalCount(), flooded.sent(), flooded.oddity())
	r.sheet.demand(p99(flooded.accepted) < r.form.beside, "vendors' orders beside the flood, p99", "less than "+r.form.beside.String(), "%s", milliseconds(p99(flooded.accepted)))
	each := float64(calmGrowth) / float64(max(len(calm.orders), 1))
	left := float64(growth) - each*float64(len(flooded.orders))
	r.sheet.demand(left <= besides, "Redis's memory a minute later, without what the vendors' orders take", "at most 8 MiB more than before", "%.1f MiB", left/(1<<20))
	return r.disabledFleet(ctx, s, send)
}

// reported are orders of the fleet, an open and an ended one in turns.
func (r *run) reported(ctx context.Context, s *system) ([]string, error) {
	t := newTally()
	v := s.ordering(upTo(0, r.form.wide), 4, 0, time.Minute)
	v.most = 2 * floodOrders
	v.fire(ctx, t)
	if len(t.orders) != v.most {
		return nil, fmt.Errorf("%d of %d orders accepted%s", len(t.orders), v.most, t.oddity())
	}
	ids := make([]string, len(t.orders))
	for i, o := range t.orders {
		if ids[i] = o.id; i%2 == 0 {
			continue
		}
		if err := s.fleet.Call(ctx, http.MethodPost, "/jobs/"+o.id+"/status", map[string]string{"status": "Delivered"}, nil); err != nil {
			return nil, err
		}
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var job struct{ Status string }
		if err := s.fleet.Call(ctx, http.MethodGet, "/jobs/"+ids[len(ids)-1], nil, &job); err != nil {
			return nil, err
		}
		if job.Status == "Delivered" {
			return ids, nil
		}
		if time.Since(began) > r.form.patience {
			return nil, errors.New("the worker decides nothing")
		}
	}
}

// beside lets the vendors order while something else is done, and answers what they
// saw, what it cost, and by how much Redis has grown a minute later.
func (r *run) beside(ctx context.Context, s *system, other func()) (t *tally, cores string, growth int64, err error) {
	before, err := s.figure(ctx, "memory", "used_memory")
	if err != nil {
		return nil, "", 0, err
	}
	t, cores = r.together(ctx, s, other)
	select {
	case <-time.After(housekeeping):
	case <-ctx.Done():
		return nil, "", 0, ctx.Err()
	}
	after, err := s.figure(ctx, "memory", "used_memory")
	return t, cores, after - before, err
}

// together lets the vendors order while something else is done, and answers what they
// saw and how many cores each program used.
func (r *run) together(ctx context.Context, s *system, other func()) (t *tally, cores string) {
	w := watch{pids: map[string]func() int{"gateway": s.Gateway.PID, "worker": s.Worker.PID, "redis": s.redis.PID, "clients": os.Getpid}}
	w.begin(ctx, r.form.load)
	var all sync.WaitGroup
	if other != nil {
		all.Go(other)
	}
	t = newTally()
	v := s.ordering(upTo(0, r.form.wide), steadyConnections, besideRate, r.form.load)
	v.fire(ctx, t)
	all.Wait()
	traces := w.end()
	for _, name := range []string{"gateway", "worker", "redis", "clients"} {
		cores += fmt.Sprintf("%s %.2f ", name, traces[name].cpu/max(traces[name].seconds, 1))
	}
	return t, strings.TrimSpace(cores)
}

// housekeeping is how often the worker trims, and a little.
const housekeeping = 62 * time.Second

// disabledFleet disables the fleet: then its flood is nothing to Redis.
func (r *run) disabledFleet(ctx context.Context, s *system, send func(time.Duration) *flood) error {
	if err := s.admin.Call(ctx, http.MethodPatch, "/fleets/"+s.Demo.Fleet.FleetID, map[string]bool{"disabled": true}, nil); err != nil {
		return err
	}
	idle, busy, f, err := r.commandsOf(ctx, s, send)
	if err != nil {
		return err
	}
	refused := int64(f.statuses[http.StatusForbidden])
	r.sheet.demand(refused > 0 && busy-idle < refused/10, "commands of Redis while a disabled fleet is refused", "as many as when nothing comes",
		"%d for %d refusals, %d in the same time without", busy, refused, idle)
	return nil
}

// commandsOf is how many commands Redis gets in a phase without the flood and in one
// with it.
func (r *run) commandsOf(ctx context.Context, s *system, send func(time.Duration) *flood) (idle, busy int64, f *flood, err error) {
	if idle, err = s.commands(ctx, func() { time.Sleep(r.form.phase) }); err != nil {
		return 0, 0, nil, err
	}
	busy, err = s.commands(ctx, func() { f = send(r.form.phase) })
	return idle, busy, f, err
}

// commands is how many commands Redis gets while something is done.
func (s *system) commands(ctx context.Context, do func()) (int64, error) {
	before, err := s.figure(ctx, "stats", "total_commands_processed")
	if err != nil {
		return 0, err
	}
	do()
	after, err := s.figure(ctx, "stats", "total_commands_processed")
	return after - before, err
}

// figure is a number of Redis's INFO.
func (s *system) figure(ctx context.Context, section, name string) (int64, error) {
	info, err := s.redis.Command(ctx, "INFO", section)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			return strconv.ParseInt(text, 10, 64)
		}
	}
	return 0, fmt.Errorf("INFO %s has no %s", section, name)
}
