package dispatch

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/worker/dispatch/sender"
)

// resultQueued is what becomes of an event.
const resultQueued = "queued"

// Results of a probe.
const (
	probeAnswered = "answered"
	probeFailed   = "failed"
)

// Outcomes of an attempt besides the classes of failure.
const (
	outcomeDelivered = "delivered"
	outcomeDeadline  = "deadline"
	outcomeHeldBack  = "held_back"
)

type metrics struct {
	entries     *prometheus.CounterVec
	attempts    *prometheus.CounterVec
	duration    prometheus.Histogram
	latency     prometheus.Histogram
	undelivered prometheus.Counter
	aborted     prometheus.Counter
	probes      *prometheus.CounterVec
	panics      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, slots int, inFlight, connections func() float64) *metrics {
	role := service.NewMetrics(reg, prometheus.Labels{"role": string(ledger.RoleWebhook)})
	all := service.NewMetrics(reg, nil)
	all.GaugeFunc("worker_webhook_in_flight", "Slots in use, of webhook.concurrency.", inFlight)
	all.Gauge("worker_webhook_slots", "How many sends this process may have in flight, webhook.concurrency.").Set(float64(slots))
	all.GaugeFunc("worker_webhook_connections", "Open connections to receivers.", connections)

	return &metrics{
		entries: role.Counters("worker_entries_total",
			"Stream entries handled, by what became of them; conflict ones are decided again, failed ones are dead letters.", "result",
			resultQueued),
		attempts: all.Counters("worker_webhook_attempts_total",
			"Attempts to deliver an event, by outcome; deadline and held_back sent nothing.", "outcome",
			outcomeDelivered, outcomeDeadline, "status_4xx", "status_5xx", sender.ClassTimeout, sender.ClassConnect, sender.ClassAnswer),
		duration: all.Histogram("worker_webhook_attempt_seconds",
			"Duration of an attempt, from the name's look-up to the answer's status or the failure.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
		latency: all.Histogram("worker_webhook_latency_seconds",
			"From the time an event happened to its 2xx answer, replays excluded.",
			.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 3600, 86400),
		undelivered: all.Counter("worker_webhook_undelivered_total", "Events given up after the last attempt."),
		aborted: all.Counter("worker_webhook_sends_deferred_total",
			"Sends that did not begin because the worker may no longer own their partition; they begin later, or at another one."),
		probes: all.Counters("worker_webhook_probes_total",
			"Sends ahead of an event's schedule, or of a webhook.test event, to endpoints whose breaker is open; answered or failed.",
			"result", probeAnswered, probeFailed),
		panics: role.Counter("worker_panics_total", "Panics that were caught; each is a defect."),
	}
}

func (m *metrics) observe(d *attempt, a sender.Answer) {
	if d.probe {
		result := probeFailed
		if a.OK() {
			result = probeAnswered
		}
		m.probes.WithLabelValues(result).Inc()
	}

	m.duration.Observe(a.Took.Seconds())
	m.attempts.WithLabelValues(outcomeOf(a)).Inc()
	if a.OK() && !d.replay && d.Type != delivery.WebhookTest {
		m.latency.Observe(d.started.Add(a.Took).Sub(d.OccurredAt).Seconds())
	}
}

// outcomeOf is the label: delivered, a class of failure, or that of the status as in status_5xx.
func outcomeOf(a sender.Answer) string {
	switch a.Class {
	case "":
		return outcomeDelivered
	case sender.ClassStatus:
		return "status_" + string(rune('0'+a.Status/100)) + "xx"
	}
	return strings.ReplaceAll(a.Class, " ", "_")
}
