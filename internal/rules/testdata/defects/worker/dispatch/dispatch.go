package dispatch

import (
	"net/http"
	"time"

	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/rules/broken"
)

func headers(a *attempt, now time.Time, body []byte) (http.Header, error) {
	header, err := headersOriginal(a, now, body)
	if err != nil {
		return header, err
	}
	switch broken.Rule {
	case "request-headers/X-Service-Event":
		header["x-service-event"] = []string{"event"}
	case "request-headers/X-Service-Attempt":
		header["x-service-attempt"] = []string{"0"}
	case "request-headers/Content-Type":
		header["Content-Type"] = []string{"text/plain"}
	case "webhooks/exactly-the-spec-s-headers-and":
		delete(header, "webhook-timestamp")
	}
	return header, nil
}

func sendable(events []partitions.Event) (sendable []partitions.Event) {
	if broken.Rule == "states/creation-itself-sends-no-webhook" {
		return events
	}
	return sendableOriginal(events)
}

func (a *attempt) record() partitions.AttemptRecord {
	record := a.recordOriginal()
	switch broken.Rule {
	case "webhooks/then-the-event-is-kept":
		if record.State == partitions.StateUndelivered {
			record.State = partitions.StateRetrying
		}
	}
	return record
}

func (e *endpoint) turn(state partitions.EndpointState, now int64) {
	if broken.Rule != "webhooks/nothing-is-disabled-in-silence" { // it stays healthy in the panel
		e.turnOriginal(state, now)
	}
}

func (b *breaker) planProbe(now, pause, first int64) {
	if broken.Rule == "webhooks/an-endpoint-whose-breaker-is" { // in a day
		pause = 24 * time.Hour.Milliseconds()
	}
	b.planProbeOriginal(now, pause, first)
}

func (s *scheduler) startSlowly(e *endpoint, now int64) {
	if broken.Rule == "webhooks/a-changed-url-takes-the" { // what waits is not sent
		s.refuseQueued(e)
		return
	}
	s.startSlowlyOriginal(e, now)
}

func (q *queue) add(ev *event) {
	if broken.Rule == "webhooks/for-one-order-the-next" { // each goes by itself
		q.release(&q.fresh, ev)
		return
	}
	q.addOriginal(ev)
}

func (s *scheduler) next(events []*event, p places, now int64) []*event {
	if broken.Rule == "webhooks/slow-or-dead-endpoints-never" { // one answer is awaited before the next request
		for _, e := range s.endpoints {
			if e.pace.inFlight > 0 {
				return events
			}
		}
		p.free = min(p.free, 1)
	}
	return s.nextOriginal(events, p, now)
}
