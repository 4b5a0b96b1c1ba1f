package dispatch

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"vendorapi/loadtest/simulation/chance"
)

// Received is what a simulated receiver answers. Status 0: the connection breaks.
type Received struct {
	Status     int
	RetryAfter int // seconds; 0: it does not say
	Took       time.Duration
}

// Receive stands for all receivers. It is called when a request arrives, and again with the answer's end.
var Receive func(ctx context.Context, url string, header http.Header, body []byte) Received

func (s *sender) send(ctx context.Context, url string, header http.Header, body []byte) answer {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r := Receive(ctx, url, header, body)
	took := time.Since(started)
	switch {
	case ctx.Err() != nil:
		return answer{class: classTimeout, detail: "no answer", took: took}
	case r.Status == 0:
		return answer{class: classConnect, detail: "connection reset", took: took}
	}
	retryAfter := ""
	if r.RetryAfter > 0 {
		retryAfter = strconv.Itoa(r.RetryAfter)
	}
	a := judged(r.Status, retryAfter)
	a.took = took
	return a
}

// A worker's loop wakes up to look for what is due. When nothing is due soon it sleeps for as long as the other
// intervals of the simulation.
func (w *Webhooks) Wake() time.Duration {
	wait := w.WakeOriginal()
	if wait < time.Second {
		return wait
	}
	now := w.now().UnixMilli()
	milliseconds := min(w.scheduler.Wake(now)-now, chance.Slower*1000)
	return time.Duration(milliseconds) * time.Millisecond
}

const (
	sendWithin     = chance.Slower * sendWithinOriginal
	refreshEvery   = chance.Slower * refreshEveryOriginal
	summarizeEvery = chance.Slower * summarizeEveryOriginal
)
