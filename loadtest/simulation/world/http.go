package world

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"time"
)

const adminKey = "an-admin-key-of-some-length"

// requestTimeout is how long a client waits for its answer. The gateway goes on all the same.
const requestTimeout = 20 * time.Second

type request struct {
	private            bool // to the private listener
	method, path, body string
	bearer             string
	header             map[string]string
}

// answer is what a client got; status 0: nothing.
type answer struct {
	status   int
	code     string
	replayed bool
	raw      []byte
	data     json.RawMessage
	ended    time.Time
}

func (a *answer) ok() bool { return a.status >= 200 && a.status <= 299 }

// unknown reports whether the request may have taken effect although no success was answered.
func (a *answer) unknown() bool {
	return a.status == 0 || a.status >= 500 && a.code != "FLEET_UNAVAILABLE"
}

func (a *answer) into(v any) { _ = json.Unmarshal(a.data, v) } // a refusal has nothing of it

// ask sends a request to one of the gateways, and waits until it answers, dies or takes too long.
func (w *world) ask(who string, random *rand.Rand, r request) *answer {
	gateways := w.gateways()
	w.mu.Lock()
	w.asked++
	w.mu.Unlock()
	if len(gateways) == 0 {
		w.story.note("    %s %s %s: no gateway", who, r.method, r.path)
		time.Sleep(time.Second)
		return &answer{ended: time.Now()}
	}

	p := draw(random, gateways)
	answered := make(chan *answer, 1)
	go func() {
		status, header, raw := p.gate.Do(r.private, r.method, r.path, r.bearer, r.body, r.header)
		answered <- readAnswer(status, header, raw)
	}()

	timeout := time.NewTimer(requestTimeout)
	defer timeout.Stop()
	a := new(answer)
	select {
	case a = <-answered:
		if p.isDead() {
			a = new(answer)
		}
	case <-p.died:
	case <-timeout.C:
	}

	a.ended = time.Now()
	w.story.note("    %s %s %s %s at %s: %d %s", who, r.method, r.path, readable(r.body), p.name, a.status, a.code)
	if a.status == http.StatusInternalServerError {
		w.breach("server-error", r.path, "%s was answered 500 %s", r.method, a.raw)
	}

	return a
}

func readAnswer(status int, header http.Header, raw []byte) *answer {
	a := &answer{status: status, raw: raw, replayed: header.Get("Idempotent-Replayed") == "true"}
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(raw, &envelope) != nil {
		return a
	}

	a.data = envelope.Data
	var refusal struct {
		Code string `json:"errorCode"`
	}
	a.into(&refusal)
	a.code = refusal.Code

	return a
}

// askUntil repeats a request of an operator until it is answered; nothing is decided before.
func (w *world) askUntil(who string, random *rand.Rand, r request) *answer {
	for try := 0; ; try++ {
		a := w.ask(who, random, r)
		if !a.unknown() || try == 200 {
			return a
		}
		time.Sleep(time.Duration(1+random.IntN(5)) * time.Second)
	}
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it holds numbers and text only
	}
	return string(text)
}
