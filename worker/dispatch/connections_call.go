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

// Progress of the connection that was dialled for a call.
const (
	kept        uint32 = iota // none was: it has been given one that was there
	resolving                 // its name is being looked up
	connecting                // to an address that the guard allows
	handshaking               // for TLS
	connected
)

// call is one send: the context of its requests, their body, and its connection's progress.
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

func (c *call) setTimeout(rest time.Duration) { c.timer.Reset(rest) }

// Value lets what is dialled on behalf of the call find it.
func (c *call) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// reached notes the progress of the connection that ctx's call waits for.
func reached(ctx context.Context, phase uint32) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.phase.Store(phase)
	}
}

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

// open's kind of reader is known to http.Transport, which writes it together with the header.
func (c *call) open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }

// staleConnection reports whether a failed request may be repeated: it had a kept connection, which
// a receiver's restart ends. http.Transport does that itself for HTTP/1.1 only.
func (c *call) staleConnection() bool { return c.phase.Load() == kept && c.Err() == nil }

// timedOut is what the call was waiting for when its time was over.
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
