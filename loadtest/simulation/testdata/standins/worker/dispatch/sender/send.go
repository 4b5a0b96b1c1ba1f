package sender

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Received is what a simulated receiver answers. Status 0: the connection breaks.
type Received struct {
	Status     int
	RetryAfter int // seconds; 0: it does not say
	Took       time.Duration
}

// Receive stands for all receivers. It is called when a request arrives, and again with the answer's end.
var Receive func(ctx context.Context, url string, header http.Header, body []byte) Received

// Send waits for a simulated receiver.
func (s *Sender) Send(ctx context.Context, request Request) Answer {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r := Receive(ctx, request.URL, request.Header, request.Body)
	took := time.Since(started)
	switch {
	case ctx.Err() != nil:
		return Answer{Class: ClassTimeout, Detail: "no answer", Took: took}
	case r.Status == 0:
		return Answer{Class: ClassConnect, Detail: "connection reset", Took: took}
	}
	retryAfter := ""
	if r.RetryAfter > 0 {
		retryAfter = strconv.Itoa(r.RetryAfter)
	}
	a := judged(r.Status, retryAfter)
	a.Took = took
	return a
}
