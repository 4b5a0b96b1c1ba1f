package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// webhookEnv is what one measurement stands on: a Redis with production's
// durability, a ledger in it, vendors with their endpoints, and a worker with
// its shipped settings and the webhook role alone.
type webhookEnv struct {
	*book
	bench    *bench
	redis    *stack.Redis
	vendors  []*vendor // all of them
	healthy  []*vendor // those that the even traffic goes to
	worker   *stack.Program
	received atomic.Int64 // distinct events, of all vendors
}

// newWebhookEnv starts Redis and adds the healthy vendors. The worker is yet to
// start, with other values for some of its settings.
func (b *bench) newWebhookEnv(ctx context.Context, name string, settings map[string]string) (*webhookEnv, error) {
	e := &webhookEnv{bench: b}
	if err := e.start(ctx, b.file(name), settings); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

func (e *webhookEnv) start(ctx context.Context, dir string, settings map[string]string) (err error) {
	if e.redis, err = stack.StartRedis(ctx, stack.RedisOptions{Dir: filepath.Join(dir, "redis")}); err != nil {
		return err
	}
	if e.book, err = openBook(ctx, e.redis.URL); err != nil {
		return err
	}
	config, err := writeConfig(dir, "worker", settings)
	if err != nil {
		return err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return err
	}
	e.worker = &stack.Program{
		Name: "worker", Path: e.bench.file("bin", "worker"), Args: []string{"-config", config, "-roles", "webhook"},
		Env: []string{"ENVIRONMENT=sandbox", "COURIER=manual", "WEBHOOK_LOCAL_RECEIVERS=auto", "LOG_LEVEL=error",
			"PARTITIONS=" + fmt.Sprint(partitions), "REDIS_URL=" + e.redis.URL, "WORKER_OPS_ADDR=" + addr, "WORKER_INSTANCE=bench",
			"WEBHOOK_KEYS=" + sealKeyID + ":" + base64.StdEncoding.EncodeToString(sealKey), "WEBHOOK_KEYS_FILE="},
		Log: filepath.Join(dir, "worker.log"), Ready: "http://" + addr + "/readyz",
	}
	e.healthy, err = e.addVendors(ctx, endpoints, answers)
	return err
}

// stop ends everything; the data stays until the bench ends.
func (e *webhookEnv) stop() (err error) {
	if e.worker != nil {
		e.worker.Kill()
	}
	for _, v := range e.vendors {
		v.close()
	}
	if e.book != nil {
		err = e.Close()
	}
	if e.redis != nil {
		e.redis.Stop()
	}
	return err
}

// processes are what is measured; the endpoints live in this one.
func (e *webhookEnv) processes() []harness.Process {
	return []harness.Process{{Name: "worker", PID: e.worker.PID()}, {Name: "redis", PID: e.redis.PID()}, harness.Self("endpoints")}
}

// addVendors registers n vendors whose endpoints behave alike, spread evenly
// over the partitions.
func (e *webhookEnv) addVendors(ctx context.Context, n int, how behaviour) (added []*vendor, err error) {
	for range n {
		v := &vendor{endpoint: newEndpoint(how, &e.received), account: accountIn(len(e.vendors) % partitions)}
		e.vendors, added = append(e.vendors, v), append(added, v)
		if err := e.addAccount(ctx, v.account, time.Now()); err != nil {
			return nil, err
		}
		if v.addr, err = stack.FreeAddr(); err != nil {
			return nil, err
		}
		_, secret, err := e.Webhooks.SetURL(ctx, v.account, "http://"+v.addr+"/hook")
		if err != nil {
			return nil, err
		}
		v.secret = []byte(secret)
		if how == refuses {
			continue
		}
		if err := v.listen(); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// accountIn draws an account of the given partition. How the ledger spreads
// accounts is part of the stored layout; every order is checked against it.
func accountIn(partition int) delivery.AccountID {
	for {
		id := delivery.NewAccountID()
		h := fnv.New64a()
		h.Write(id[:])
		if int(h.Sum64()%partitions) == partition {
			return id
		}
	}
}

// settleRedis waits until Redis does not rewrite its file, so that a measurement
// pays for its own work only.
func (e *webhookEnv) settleRedis(ctx context.Context) error {
	return await(ctx, "redis rewrites its file", time.Minute, 50*time.Millisecond, func() (bool, error) {
		info, err := harness.RedisInfo(ctx, e.redis)
		return info["aof_rewrite_in_progress"] == 0 && info["aof_rewrite_scheduled"] == 0, err
	})
}

// awaitReceived waits until so many distinct events have been received in all.
func (e *webhookEnv) awaitReceived(ctx context.Context, n int64, timeout time.Duration) error {
	err := await(ctx, "events received", timeout, time.Millisecond, func() (bool, error) {
		return e.received.Load() >= n, e.worker.Check()
	})
	if err != nil {
		return fmt.Errorf("%d of %d: %w", e.received.Load(), n, err)
	}
	return nil
}

// awaitAll waits until the healthy vendors have received everything. What is
// lacking after the timeout is lost, and the figures will say so.
func (e *webhookEnv) awaitAll(ctx context.Context, timeout time.Duration) error {
	return orTimeout(await(ctx, "all received", timeout, 10*time.Millisecond, func() (bool, error) {
		c := sumOf(e.healthy)
		return c.Received == c.Expected, e.worker.Check()
	}))
}

// behaviour is how an endpoint treats webhooks.
type behaviour int

const (
	answers behaviour = iota // as soon as an event is stored
	slow                     // takes slowAnswer, then answers
	silent                   // takes connections and never answers
	refuses                  // does not listen
	fails                    // answers 500 and stores nothing
)

// slowAnswer is what the slow endpoint takes.
const slowAnswer = 4 * time.Second

// endpoint is one vendor's receiver, with an address of its own as in life: it
// verifies X-Service-Signature before anything else, counts by eventId and then
// answers 204. It is fasthttp's, because it shares the processors with what is
// measured: with net/http a webhook took 1.7 times the CPU here.
type endpoint struct {
	addr      string
	secret    []byte
	behaviour behaviour
	received  *atomic.Int64 // distinct events of all endpoints
	server    fasthttp.Server
	closed    chan struct{}

	mu     sync.Mutex
	events map[eventKey]event
	counts counts
}

// newEndpoint makes an endpoint that refuses connections until listen.
func newEndpoint(how behaviour, received *atomic.Int64) *endpoint {
	e := &endpoint{behaviour: how, received: received, closed: make(chan struct{}), events: map[eventKey]event{}}
	e.server = fasthttp.Server{Handler: e.serve, NoDefaultServerHeader: true, NoDefaultDate: true, NoDefaultContentType: true,
		MaxRequestBodySize: 64 << 10} // far above what the service sends
	return e
}

// listen begins to take webhooks; address and secret are known by then.
func (e *endpoint) listen() error {
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	go func() { _ = e.server.Serve(l) }() // ends with close
	return nil
}

// close ends the listener and what is being answered; the sender has gone.
func (e *endpoint) close() {
	close(e.closed)
	_ = e.server.Shutdown() // without a listener there is nothing to end
}

// serve answers one webhook.
func (e *endpoint) serve(ctx *fasthttp.RequestCtx) {
	at := time.Now()
	switch e.behaviour {
	case slow:
		select {
		case <-time.After(slowAnswer):
		case <-e.closed:
			return
		}
	case silent:
		<-e.closed
		return
	case answers, refuses, fails:
	}
	header := &ctx.Request.Header
	id := header.Peek("webhook-id")
	switch {
	case !e.signed(ctx.PostBody(), id, header.Peek("X-Service-Signature")):
		e.mu.Lock()
		e.counts.Invalid++
		e.mu.Unlock()
		ctx.SetStatusCode(fasthttp.StatusUnauthorized)
		return
	case e.behaviour == fails:
		ctx.SetStatusCode(fasthttp.StatusInternalServerError)
		return
	case string(header.Peek("X-Service-Event")) != "webhook.test": // a probe is no event
		e.receive(string(id), at)
	}
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}

// signed verifies the body, and that it is about the event which the header
// names: only the body is signed.
func (e *endpoint) signed(body, id, signature []byte) bool {
	mac := hmac.New(sha256.New, e.secret)
	mac.Write(body)
	want := hex.AppendEncode([]byte("sha256="), mac.Sum(nil))
	rest, ok := bytes.CutPrefix(body, []byte(`{"eventId":"`))
	return hmac.Equal(want, signature) && ok && len(id) > 0 && bytes.HasPrefix(rest, append(bytes.Clone(id), '"'))
}

// deliveryWindow is how long an event may be sent, from when it happened (spec,
// "Delivery rules" 2).
const deliveryWindow = 24 * time.Hour

// eventKey is an event's id before it is written as text.
type eventKey struct {
	order   delivery.OrderID
	version uint64
}

// event is one change of an order that its vendor must receive. The endpoint
// knows it before it can arrive, because an order's versions are known before
// they are stored.
type event struct {
	deadline time.Time // not to be sent after this
	issued   time.Time // when its commit was handed to the ledger
	received time.Time // first receipt; zero: none yet
}

// counts are an endpoint's events by what became of them.
type counts struct {
	Expected   int // events that were committed
	Received   int // of these, received at least once
	Expired    int // of these, not received, and past their deadline; see expire
	Duplicates int // further receipts of an event
	Late       int // receipts after the event's deadline
	Invalid    int // receipts that could not be verified, or of an event that never was
}

func (c *counts) add(o counts) {
	c.Expected += o.Expected
	c.Received += o.Received
	c.Expired += o.Expired
	c.Duplicates += o.Duplicates
	c.Late += o.Late
	c.Invalid += o.Invalid
}

// expect notes an event at the moment in which its commit is issued.
func (e *endpoint) expect(key eventKey, occurred, issued time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events[key] = event{deadline: occurred.Add(deliveryWindow), issued: issued}
	e.counts.Expected++
}

// receive notes a verified receipt.
func (e *endpoint) receive(eventID string, at time.Time) {
	order, version, err := delivery.ParseEventID(eventID)
	e.mu.Lock()
	defer e.mu.Unlock()
	key := eventKey{order, version}
	known, ok := e.events[key]
	switch {
	case err != nil || !ok:
		e.counts.Invalid++
		return
	case !known.received.IsZero():
		e.counts.Duplicates++
	default:
		known.received = at
		e.events[key] = known
		e.counts.Received++
		e.received.Add(1)
	}
	if at.After(known.deadline) {
		e.counts.Late++
	}
}

func (e *endpoint) sum() counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// expire counts what can no longer come; once, when the deadlines that matter
// have passed.
func (e *endpoint) expire(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if event.received.IsZero() && now.After(event.deadline) {
			e.counts.Expired++
		}
	}
}

// receipts are the events that were issued from some moment on and have been
// received.
func (e *endpoint) receipts(from time.Time) (found []event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if !event.received.IsZero() && !event.issued.Before(from) {
			found = append(found, event)
		}
	}
	return found
}

func receiptsOf(vendors []*vendor, from time.Time) (found []event) {
	for _, v := range vendors {
		found = append(found, v.receipts(from)...)
	}
	return found
}

func sumOf(vendors []*vendor) (c counts) {
	for _, v := range vendors {
		c.add(v.sum())
	}
	return c
}
