package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// How far the connection has come that was dialled for a call.
const (
	kept        uint32 = iota // none was: it has been given one that was there
	resolving                 // its name is being looked up
	connecting                // to an address that the guard allows
	handshaking               // for TLS
	connected
)

// call is one send: the context of its requests, which ends when its time is
// over, their body, and how far the connection has come that it waits for.
type call struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	body   []byte
	phase  atomic.Uint32
}

type callKey struct{}

func newCall(ctx context.Context, timeout time.Duration, body []byte) *call {
	c := &call{body: body}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	c.timer = time.AfterFunc(timeout, c.expire)
	return c
}

func (c *call) expire() { c.cancel(context.DeadlineExceeded) }

func (c *call) end() {
	c.timer.Stop()
	c.cancel(nil)
}

// setTimeout leaves the call so much time from now on.
func (c *call) setTimeout(rest time.Duration) { c.timer.Reset(rest) }

// Value lets what is dialled on behalf of the call find it.
func (c *call) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// reached notes how far the connection has come that ctx's call waits for.
func reached(ctx context.Context, phase uint32) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.phase.Store(phase)
	}
}

// request makes the call's request. It may be made again.
func (c *call) request(t *target, header http.Header) *http.Request {
	r := http.Request{
		Method: http.MethodPost, URL: t.url, Host: t.host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody,
	}
	if len(c.body) > 0 {
		r.ContentLength = int64(len(c.body))
		r.Body, _ = c.open()
		r.GetBody = c.open
	}
	return r.WithContext(c)
}

// open is the body from its beginning. http.Transport knows this kind of reader
// to be in memory, and so writes it together with the header.
func (c *call) open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }

// staleConnection reports whether a failed request may be made once more: it had a connection that
// was there already, which a receiver that restarts takes away. http.Transport does that for
// HTTP/1.1; here it is done for HTTP/2. Receivers deduplicate by eventId.
func (c *call) staleConnection() bool { return c.phase.Load() == kept && c.Err() == nil }

// timedOut says what the call was waiting for when its time was over.
func (c *call) timedOut(after time.Duration) (class, detail string) {
	switch c.phase.Load() {
	case resolving:
		return classDNS, noNames(after)
	case connecting:
		return classTimeout, fmt.Sprintf("no connection within %s", after)
	case handshaking:
		return classTimeout, fmt.Sprintf("no TLS handshake within %s", after)
	}
	return classTimeout, fmt.Sprintf("no answer within %s", after)
}

func noNames(within time.Duration) string {
	return fmt.Sprintf("no answer from the name servers within %s", within)
}
