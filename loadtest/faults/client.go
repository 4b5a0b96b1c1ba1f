package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"vendorapi/loadtest/faults/history"
)

// requestPatience is how long a client waits for an answer; what comes later is
// unknown to it.
const requestPatience = 3 * time.Second

// vendorClient is one connection's worth of a vendor's own program: it creates,
// repeats, reads and cancels, and writes down what it sees.
type vendorClient struct {
	number int
	prefix string // of its external ids, unique in a run
	vendor *vendor
	base   string
	log    *history.Log
	random *rand.Rand
	next   int
	// http keeps its connection; once uses each only once. net/http sends a GET
	// again by itself when a kept connection breaks, which the log would not show.
	http, once *http.Client
}

func newVendorClient(number int, prefix string, v *vendor, base string, log *history.Log, random *rand.Rand) *vendorClient {
	return &vendorClient{number: number, prefix: prefix, vendor: v, base: base, log: log, random: random,
		http: &http.Client{Timeout: requestPatience, Transport: &http.Transport{MaxIdleConnsPerHost: 1}},
		once: &http.Client{Timeout: requestPatience, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// run acts until ctx ends, on the average once every pause.
func (c *vendorClient) run(ctx context.Context, pause time.Duration) {
	defer c.http.CloseIdleConnections()
	for sleep(ctx, time.Duration(c.random.Int64N(int64(2*pause)))) == nil {
		c.act()
	}
}

// act does one thing that a vendor's program does. What it begins it ends, so
// that no operation of a round is left out of its log.
func (c *vendorClient) act() {
	n := c.random.IntN(100)
	switch {
	case n < 42:
		c.createNew()
	case n < 62:
		c.repeat()
	case n < 66:
		c.repeatChanged()
	case n < 71:
		c.sameExternal()
	case n < 74:
		c.createInvalid()
	case n < 86:
		if id := c.vendor.pickOrder(c.random); id != "" {
			c.read(id)
		}
	default:
		if id := c.vendor.pickOrder(c.random); id != "" {
			c.cancel(id)
		}
	}
}

func (c *vendorClient) createNew() {
	c.next++
	s := &sent{external: fmt.Sprintf("%s-%d", c.prefix, c.next)}
	switch c.random.IntN(6) {
	case 0: // none: the external id alone protects
	case 1, 2:
		s.key = "key-" + s.external
	default: // the way that the spec suggests
		s.key = s.external
	}
	c.fill(s, "Ayşe Kaya")
	c.vendor.remember(s)
	// A client that got no answer sends the same again, as the spec has it.
	for try := 0; c.create(s, false).Unknown() && try < 2 && c.random.IntN(3) > 0; try++ {
	}
}

// repeat sends an earlier creation once more, whatever became of it.
func (c *vendorClient) repeat() {
	if s := c.vendor.pick(c.random); s != nil {
		c.create(s, false)
	}
}

// repeatChanged uses an earlier key for another body.
func (c *vendorClient) repeatChanged() {
	if s := c.vendor.pick(c.random); s != nil && s.key != "" {
		c.next++
		c.create(c.fill(&sent{external: fmt.Sprintf("%s-%d", c.prefix, c.next), key: s.key}, "Ali Demir"), false)
	}
}

// sameExternal uses an earlier external id with a key of its own.
func (c *vendorClient) sameExternal() {
	if s := c.vendor.pick(c.random); s != nil {
		c.next++
		c.create(c.fill(&sent{external: s.external, key: fmt.Sprintf("other-%s-%d", c.prefix, c.next)}, "Veli Can"), false)
	}
}

func (c *vendorClient) createInvalid() {
	c.next++
	external := fmt.Sprintf("%s-%d", c.prefix, c.next)
	c.create(c.fill(&sent{external: external, key: external}, "A"), true)
}

// clarify sends again what the client could not see the outcome of, most of it
// unchanged, some with another body: whichever of the two an order was made of,
// every answer from now on must be in line with that.
func (c *vendorClient) clarify(unclear []*sent) {
	for _, s := range unclear {
		switch {
		case c.random.IntN(4) > 0:
			c.create(s, false)
		case s.key != "":
			c.create(c.fill(&sent{external: s.external, key: s.key}, "Ali Demir"), false)
		}
	}
}

// fill gives a creation its body. Some orders fail in the courier's hands.
func (c *vendorClient) fill(s *sent, name string) *sent {
	const dropoff, phone = "Bahariye Caddesi No: 2, Kadıköy", "5321234567"
	amount, note := int64(c.random.IntN(100_000)), ""
	if c.random.IntN(12) == 0 {
		note = "SIM:FAIL=CustomerRefused"
	}
	text, err := json.Marshal(map[string]any{
		"externalStoreId": storeName, "externalOrderId": s.external,
		"recipient":   map[string]any{"name": name, "phone": "0" + phone},
		"dropoff":     map[string]any{"text": dropoff, "latitude": 40.9880, "longitude": 29.0300},
		"orderAmount": json.Number(fmt.Sprintf("%d.%02d", amount/100, amount%100)),
		"packageNote": note,
	})
	if err != nil {
		panic(err) // numbers and text only
	}
	s.body = text
	s.content = history.Content{Store: storeName, External: s.external, Recipient: name, Phone: phone,
		Dropoff: dropoff, Note: note, Amount: amount, Collected: -1}.Digest()
	return s
}

func (c *vendorClient) create(s *sent, invalid bool) *history.Op {
	op := &history.Op{Kind: history.Create, Key: s.key, External: s.external, Body: history.Digest(s.body), Content: s.content, Invalid: invalid}
	raw := c.do(op, http.MethodPost, "/orders", s.body, s.key)
	if op.Status == http.StatusCreated {
		op.Answer = history.Digest(raw)
	}
	c.vendor.learn(s, op)
	c.log.Add(*op)
	return op
}

func (c *vendorClient) read(order string) {
	op := &history.Op{Kind: history.Read, Order: order}
	c.do(op, http.MethodGet, "/orders/"+order, nil, "")
	c.log.Add(*op)
}

func (c *vendorClient) cancel(order string) {
	op := &history.Op{Kind: history.Cancel, Order: order}
	c.do(op, http.MethodPost, "/orders/"+order+"/cancel", nil, "")
	c.log.Add(*op)
}

// do sends one request, never twice, and notes what came back.
func (c *vendorClient) do(op *history.Op, method, path string, body []byte, key string) []byte {
	op.Client, op.Account = c.number, c.vendor.id.String()
	req, err := http.NewRequest(method, c.base+path, bytes.NewReader(body)) //nolint:noctx // bounded by the client's timeout
	if err != nil {
		panic(err) // the path is made of ids
	}
	req.GetBody = nil // or net/http would send a keyed request again by itself
	req.Header.Set("Authorization", "Bearer "+c.vendor.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("X-Idempotency-Key", key)
	}
	client := c.http
	if method == http.MethodGet {
		client, req.Body = c.once, http.NoBody
	}
	op.Start = time.Now()
	resp, err := client.Do(req)
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = resp.Body.Close() // it has been read
	}
	op.End = time.Now()
	if err == nil {
		note(op, resp, raw)
	}
	return raw
}

// note reads an answer. One that is no envelope came from nobody of ours, or was
// cut short: it is as good as none.
func note(op *history.Op, resp *http.Response, raw []byte) {
	var envelope struct {
		Success bool
		Data    struct {
			ErrorCode, OrderID, Status string
			Events                     []struct{ Status string }
		}
	}
	if json.Unmarshal(raw, &envelope) != nil {
		return
	}
	op.Status = resp.StatusCode
	op.Code, op.State = envelope.Data.ErrorCode, envelope.Data.Status
	op.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // absent: zero
	op.RetryAfter = time.Duration(seconds) * time.Second
	if op.Kind == history.Create && envelope.Success {
		op.Order = envelope.Data.OrderID
	}
	for _, e := range envelope.Data.Events {
		op.Steps = append(op.Steps, e.Status)
	}
}
