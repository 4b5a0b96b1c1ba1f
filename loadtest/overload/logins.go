package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"vendorapi/internal/stack"
)

// A stranger who guesses: so many wrong credentials a second, over so many
// connections, by turns of a client that there is, of clients that there are not, and
// of what is no client.
const (
	guessRate        = 5000
	guessConnections = 600
)

// floodLogins is the case logins.
func (r *run) floodLogins(ctx context.Context) error {
	s, err := r.start(ctx, "logins", stack.Options{}, r.form.wide, 0)
	if err != nil {
		return err
	}
	defer s.Stop()
	send := func(d time.Duration) *flood {
		f := &flood{statuses: map[int]int{}}
		v := volley{addr: s.addr, connections: guessConnections, rate: guessRate, duration: d,
			request: func(dst []byte, n int) ([]byte, int, int) {
				client := []string{s.vendors[0].clientID, fmt.Sprintf("ven_%032x", n), "nobody"}[n%3]
				body := fmt.Sprintf(`{"clientId":%q,"clientSecret":"vas_%d"}`, client, n)
				return fmt.Appendf(dst, "POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
					len(body), body), 0, n
			},
			count: f.count}
		v.fire(ctx, newTally())
		return f
	}
	calm, calmCPU := r.together(ctx, s, nil)
	right, tries, owner := 0, 0, s.vendors[0]
	flooded, cpu := r.together(ctx, s, func() {
		answers := make(chan *flood)
		go func() { answers <- send(r.form.load) }()
		for ; ; tries++ { // the owner of the client that is guessed at, from the same address
			select {
			case f := <-answers:
				r.sheet.tell("answers to the stranger", "%s", f)
				return
			case <-time.After(max(r.form.load/10, time.Second)):
			}
			if _, err := s.api(owner).Login(ctx, "/token", owner.clientID, owner.secret); err == nil {
				right++
			}
		}
	})
	r.sheet.demand(right == tries && tries > 0, "right logins beside the wrong ones", "all", "%d of %d", right, tries)
	seconds := r.form.load.Seconds()
	r.sheet.tell("wrong logins a second", "%d over %d connections for %.0f s; vendors at %d orders a second", guessRate, guessConnections, seconds, besideRate)
	r.sheet.tell("cores used without them and with them; clients are the attacker's and the vendors'", "%s; %s", calmCPU, cpu)
	r.sheet.tell("vendors' orders without them and beside them, p99", "%s, %s", milliseconds(p99(calm.accepted)), milliseconds(p99(flooded.accepted)))
	r.sheet.demand(len(flooded.refusals) == 0 && flooded.served(flooded.accepted.TotalCount(), r.form.share), "vendors' orders accepted beside them", "all, and none answered 503",
		"%d of %d, %d answered 503%s", flooded.accepted.TotalCount(), flooded.sent(), len(flooded.refusals), flooded.oddity())
	idle, busy, f, err := r.commandsOf(ctx, s, send)
	if err != nil {
		return err
	}
	refused := int64(f.statuses[http.StatusTooManyRequests])
	r.sheet.demand(refused > 0 && busy-idle < refused/10, "commands of Redis while throttled logins are refused", "next to none",
		"%d for %d refusals, %d in the same time without", busy, refused, idle)
	return nil
}
