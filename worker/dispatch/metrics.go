package dispatch

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Results of an entry.
const (
	resultQueued = "queued"
	resultFailed = "failed"
)

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
	leasesLost  prometheus.Counter
	probes      *prometheus.CounterVec
	panics      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, slots int, inFlight, connections func() float64) *metrics {
	role := prometheus.Labels{"role": string(ledger.RoleWebhook)}
	m := &metrics{
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_entries_total", ConstLabels: role,
			Help: "Stream entries handled, by what became of them; conflict and failed ones are handed out again.",
		}, []string{"result"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_webhook_attempts_total",
			Help: "Attempts to deliver an event, by outcome; deadline and held_back sent nothing.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "worker_webhook_attempt_seconds",
			Help:    "Duration of an attempt, from the name's look-up to the answer's status or the failure.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "worker_webhook_latency_seconds",
			Help:    "From the time an event happened to its 2xx answer, replays excluded.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 3600, 86400},
		}),
		undelivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "worker_webhook_undelivered_total",
			Help: "Events given up after the last attempt.",
		}),
		leasesLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "worker_webhook_leases_lost_total",
			Help: "Leases that ended before their attempt was recorded; the event is sent again.",
		}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_webhook_probes_total",
			Help: "Sends ahead of an event's schedule, or of a webhook.test event, to endpoints whose breaker is open; answered or failed.",
		}, []string{"result"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "worker_panics_total", ConstLabels: role,
			Help: "Panics that were caught; each is a defect.",
		}),
	}
	for _, outcome := range []string{outcomeDelivered, outcomeDeadline, "status_4xx", "status_5xx", classTimeout, classConnect} {
		m.attempts.WithLabelValues(outcome)
	}
	for _, result := range []string{resultQueued, resultFailed} {
		m.entries.WithLabelValues(result)
	}
	for _, result := range []string{probeAnswered, probeFailed} {
		m.probes.WithLabelValues(result)
	}
	pool := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "worker_webhook_in_flight",
		Help: "Slots in use, of webhook.concurrency.",
	}, inFlight)
	all := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "worker_webhook_slots",
		Help: "How many sends this process may have in flight, webhook.concurrency.",
	})
	all.Set(float64(slots))
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "worker_webhook_connections",
		Help: "Open connections to receivers.",
	}, connections)
	reg.MustRegister(m.entries, m.attempts, m.duration, m.latency, m.undelivered, m.leasesLost, m.panics, m.probes, pool, all, open)
	return m
}

func (m *metrics) observe(d *ledger.Delivery, a answer, started time.Time) {
	if d.Probe || d.Ping {
		result := probeFailed
		if a.ok() {
			result = probeAnswered
		}
		m.probes.WithLabelValues(result).Inc()
	}
	m.duration.Observe(a.took.Seconds())
	m.attempts.WithLabelValues(outcomeOf(a)).Inc()
	if a.ok() && !d.Replay && d.Type != delivery.WebhookTest {
		m.latency.Observe(started.Add(a.took).Sub(d.OccurredAt).Seconds())
	}
}

// outcomeOf is the label: delivered, a class of failure, or the class of the
// status such as status_5xx.
func outcomeOf(a answer) string {
	switch a.class {
	case "":
		return outcomeDelivered
	case classStatus:
		return "status_" + string(rune('0'+a.status/100)) + "xx"
	}
	return strings.ReplaceAll(a.class, " ", "_")
}
