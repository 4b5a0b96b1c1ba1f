package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
)

// requestContext is one request on its way to its answer. It is used again for the
// next one: what outlives the handler must be copied out.
type requestContext struct {
	ctx    *fasthttp.RequestCtx
	route  *route
	meter  *meter
	vendor bool // it came to the Vendor API's listener
	params [paramsMax][]byte
	began  time.Time // by this machine's clock
	now    time.Time // the same instant by Redis's

	// When the body had been read, and when the request had its places in flight; zero: it
	// did not come so far.
	read, entered time.Time

	ledger *ledger.Ledger // set for the handlers of all routes but the documentation's

	account delivery.AccountID // of a vendor's request, or that the path names
	fleet   delivery.FleetID   // of a fleet's, or that the path names
	order   delivery.OrderID   // that the request is about, once it is known
	store   string             // that the path of a fleet's or an operator's request names
	first   bool               // the request has created the order
	calls   *scriptCalls       // nil while tracing is off
	quota   limits.Quota       // the bucket that the request was counted in
	keyName string             // of the admin key; empty: ADMIN_KEY
	audited *audit.Entry       // what was noted of the request; nil: nothing

	reserved bodyReservation // of body; release ends it
	body     []byte
	out      []byte
	request  delivery.OrderRequest // of a creation
	fields   *strictjson.Fields    // of request; never nil
	draft    delivery.OrderDraft   // of a creation whose body breaks no rule
	creation *orders.Creation      // never nil; it keeps its buffers from order to order
}

var requestContexts = sync.Pool{New: func() any {
	x := &requestContext{creation: new(orders.Creation)}
	x.fields = strictjson.Bind(&x.request)
	return x
}}

// keepBuffer is the largest buffer that is kept for the next request.
const keepBuffer = 256 << 10

func (g *gateway) acquireContext(ctx *fasthttp.RequestCtx, vendor bool) *requestContext {
	ctx.Response.Header.DisableNormalizing() // X-RateLimit-Limit as the spec writes it
	x := requestContexts.Get().(*requestContext)
	x.ctx, x.vendor, x.began = ctx, vendor, time.Now()
	x.now = x.began
	if l := g.Ledger(); l != nil {
		x.now = l.Clock(x.began)
	}
	return x
}

func (x *requestContext) release() {
	x.reserved.shrink(0)
	body, out := x.body, x.out
	if cap(body) > keepBuffer {
		body = nil
	}

	if cap(out) > keepBuffer {
		out = nil
	}

	*x = requestContext{body: body[:0], out: out[:0], creation: x.creation, fields: x.fields}
	requestContexts.Put(x)
}

// serve answers one request of a listener; vendor: it is that of the Vendor API.
func (g *gateway) serve(ctx *fasthttp.RequestCtx, rs routes, limit int, vendor bool) {
	x := g.acquireContext(ctx, vendor)
	defer x.release()
	chunked := ctx.Request.Header.ContentLength() == -1
	if chunked {
		boundReading(ctx.Conn(), maxOverhead*limit)
	}

	var allow string
	x.route, x.params, allow = rs.match(ctx.Method(), ctx.Request.Header.RequestURI())
	var refusal error
	if x.route == nil {
		x.meter = g.metrics.unknown
		refusal = x.notFound(allow)
	} else {
		x.meter = x.route.meter
		refusal = g.handle(x, limit)
	}

	if refusal != nil {
		g.refuse(x, refusal)
		linger(ctx.Conn())
	}

	if chunked && !x.endChunks() {
		ctx.SetConnectionClose()
		linger(ctx.Conn())
	}

	if g.draining.Load() {
		ctx.SetConnectionClose()
	}

	took := time.Since(x.began)
	x.meter.answered(ctx.Response.StatusCode(), took)
	if g.settings.SlowRequest > 0 && took >= g.settings.SlowRequest {
		g.logSlow(x, took)
	}

	if g.Tracer != nil {
		g.trace(x)
	}
}

// notFound is the answer to a request that no route takes.
func (x *requestContext) notFound(allow string) error {
	_ = x.checkFraming() // only whether the connection ends
	if allow == "" {
		return x.noSuchPath()
	}
	x.ctx.Response.Header.SetCanonical([]byte("Allow"), []byte(allow))
	return delivery.Refuse(delivery.CodeMethodNotAllowed, "this path takes %s", allow)
}

func (x *requestContext) noSuchPath() error {
	begin := "/api/fleet/v1 or /api/admin/v1"
	if x.vendor {
		begin = "/api/vendor/v1"
	}
	return delivery.Refuse(delivery.CodeNotFound, "there is no such path; an API's begin with %s and have no slash at the end, see /docs", begin)
}

// handle checks headers, token, path and size, in this order, and then runs the route
// unless too many requests are in flight. A panic answers 500.
func (g *gateway) handle(x *requestContext, limit int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %.300v\n%s", p, debug.Stack())
		}
	}()

	unfit := x.checkHeaders()
	if err := g.authenticate(x); err != nil {
		if unfit != nil {
			return unfit
		}
		return err
	}

	if unfit == nil {
		unfit = x.checkPath()
	}

	if unfit == nil && x.route.body != noBody {
		limit = min(limit, x.route.maxBody)
		if err := g.reserveBody(x, limit); err != nil {
			return err // it is not counted, and costs Redis nothing
		}
		unfit = x.readReserved(limit)
	}

	if unfit == nil && x.route.about != nil {
		unfit = x.route.about(x)
	}

	x.read = time.Now()

	// Only now: who sends a body slowly holds no place.
	if x.route.access == vendorOnly {
		if err := g.enterAccount(x); err != nil {
			return err
		}
		defer g.accounts.leave(x.account)
	}

	if !x.route.login {
		limiter := g.limiterOf(x)
		if !limiter.enter() {
			return errOverloaded
		}
		defer limiter.leave()
	}

	x.entered = time.Now()
	x.ledger = g.Ledger()
	if x.ledger == nil && !x.route.static {
		return errStarting
	}

	if x.route.access == fleetOnly {
		own, err := g.enterFleet(x)
		if err != nil {
			return err
		}
		defer own.leave()
	}

	if unfit != nil {
		return g.counted(x, unfit)
	}

	err = x.route.handle(g, x)
	if x.audited != nil {
		g.endAudit(x, err)
	}

	return err
}

// errStarting is the answer, 503 SERVICE_UNAVAILABLE, until the ledger is open.
var errStarting = fmt.Errorf("the gateway is starting: %w", delivery.ErrUnavailable)

// counted is the answer to a vendor's request that is refused before the ledger's
// part, and counts all the same (decisions, "Limits and idempotency"): the given refusal, unless the limit
// is used up or the account suspended.
func (g *gateway) counted(x *requestContext, refusal error) error {
	if x.route.access != vendorOnly {
		return refusal
	}
	if err := g.count(x); err != nil {
		return err
	}
	return refusal
}

func (g *gateway) count(x *requestContext) (err error) {
	x.quota, err = x.ledger.Limits.Consume(g.context(x), x.account, x.route.bucket)
	return err
}

func counting(handle handler) handler {
	return func(g *gateway, x *requestContext) error {
		if err := g.count(x); err != nil {
			return err
		}
		return handle(g, x)
	}
}

func (x *requestContext) checkHeaders() error {
	if err := x.checkFraming(); err != nil {
		return err
	}

	h := &x.ctx.Request.Header
	if expect := h.Peek("Expect"); len(expect) > 0 && !bytes.EqualFold(expect, []byte("100-continue")) {
		x.ctx.SetConnectionClose()
		return delivery.Refuse(delivery.CodeMalformedRequest, "Expect may only be 100-continue")
	}

	length := h.ContentLength()
	switch {
	case x.route.body == noBody:
		return nil
	case length > 0:
		return x.checkContentType()
	case length != -1 && x.route.body == requiredBody && !x.announces("content-length"):
		return delivery.Refuse(delivery.CodeLengthRequired, "send the body with Content-Length, or with Transfer-Encoding: chunked")
	}

	return nil
}

// checkFraming wants HTTP/1.0, HTTP/1.1 or a later minor version (RFC 9110, section 2.5), a
// header section that everybody reads alike, where the server takes more, and the end of the
// body announced in one way. Transfer-Encoding next to Content-Length, with which requests are
// smuggled past proxies, is refused and the connection closed. The server has refused every
// coding but chunked and identity.
func (x *requestContext) checkFraming() error {
	h := &x.ctx.Request.Header
	if !bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")) || !plainLines(h.RawHeaders()) {
		x.ctx.SetConnectionClose()
		return delivery.Refuse(delivery.CodeMalformedRequest, "send HTTP/1.1, with header lines that end in CR LF and are not folded")
	}

	// One more ends the section.
	lines := bytes.Count(h.RawHeaders(), []byte{'\n'})
	if lines > maxHeaderLines+1 {
		x.ctx.SetConnectionClose()
		return delivery.Refuse(delivery.CodeMalformedRequest, "send at most %d header lines", maxHeaderLines)
	}

	chunked := h.ContentLength() == -1
	if chunked && x.announces("content-length") || !chunked && h.ConnectionClose() && x.announces("transfer-encoding") {
		x.ctx.SetConnectionClose()
		return delivery.Refuse(delivery.CodeMalformedRequest, wrongFraming)
	}

	return nil
}

// maxHeaderLines bounds the lines of a header section, of which max_header_bytes would
// allow thousands. Balancers in front have such a limit, too (tune.http.maxhdr of
// configs/haproxy/haproxy.cfg), and nothing may pass here that they refuse.
const maxHeaderLines = 256

const wrongFraming = "send either Content-Length or, in HTTP/1.1, Transfer-Encoding: chunked, and no other coding"

// announces looks for a header in the bytes as they came: the parsed form does
// not tell "Content-Length: 0" from none. name is in lower case.
func (x *requestContext) announces(name string) bool {
	for line := range bytes.Lines(x.ctx.Request.Header.RawHeaders()) {
		if key, _, found := bytes.Cut(line, []byte{':'}); found && bytes.EqualFold(bytes.TrimSpace(key), []byte(name)) {
			return true
		}
	}
	return false
}

// checkContentType accepts uncompressed application/json, alone or with charset utf-8.
func (x *requestContext) checkContentType() error {
	kind, parameters, _ := bytes.Cut(x.ctx.Request.Header.ContentType(), []byte{';'})
	ok := bytes.EqualFold(bytes.TrimSpace(kind), []byte("application/json"))
	for ok && len(parameters) > 0 {
		var parameter []byte
		parameter, parameters, _ = bytes.Cut(parameters, []byte{';'})
		name, value, _ := bytes.Cut(bytes.TrimSpace(parameter), []byte{'='})
		value = bytes.Trim(value, `"`)
		ok = len(name) == 0 || bytes.EqualFold(name, []byte("charset")) &&
			(bytes.EqualFold(value, []byte("utf-8")) || bytes.EqualFold(value, []byte("utf8")))
	}

	if !ok {
		return delivery.Refuse(delivery.CodeUnsupportedMediaType, "Content-Type must be application/json in UTF-8, not %.100q", x.ctx.Request.Header.ContentType())
	}
	if coding := x.ctx.Request.Header.Peek("Content-Encoding"); len(coding) > 0 && !bytes.EqualFold(coding, []byte("identity")) {
		return delivery.Refuse(delivery.CodeUnsupportedMediaType, "Content-Encoding %.100q is not supported; send the body uncompressed", coding)
	}

	return nil
}

// reserveBody reserves room for the body before it is read. The room is given back after the answer,
// because a request that waits in its account's line still holds its body. A body of at most
// unreservedBody needs no room; one above limit gets none, because readBody refuses it unread. limit
// is the lower one of its route and its listener.
func (g *gateway) reserveBody(x *requestContext, limit int) error {
	size := x.ctx.Request.Header.ContentLength()
	if size == -1 {
		size = limit // a body in chunks does not say how long it is, and may have as much
	}

	needsReservation := size > unreservedBody && size <= limit
	if !needsReservation {
		return nil
	}

	bodies, caller := g.bodiesOf(x), x.caller()
	if !bodies.reserve(caller, size) {
		return errOverloaded
	}

	x.reserved = bodyReservation{budget: bodies, caller: caller, bytes: size}

	return nil
}

// readReserved reads the body and gives back what is reserved beyond it, of a body in chunks.
func (x *requestContext) readReserved(limit int) error {
	if err := x.readBody(limit); err != nil {
		return err
	}
	x.reserved.shrink(len(x.body))
	return nil
}

// readBody reads the body into x.body. An oversize one is refused before it has been
// read; the connection survives if little is left of it.
func (x *requestContext) readBody(limit int) error {
	length := x.ctx.Request.Header.ContentLength()
	switch {
	case length == -1:
		return x.readChunks(limit)
	case length <= 0:
		return nil
	case length > limit:
		return oversize(limit)
	}

	if cap(x.body) < length {
		x.body = make([]byte, 0, max(length, 1024))
	}

	n, err := io.ReadFull(x.ctx.RequestBodyStream(), x.body[:length])
	x.body = x.body[:n]
	if err != nil {
		x.ctx.SetConnectionClose()
		return delivery.Refuse(delivery.CodeMalformedRequest, "the body ended or stalled before Content-Length")
	}

	return nil
}

func oversize(limit int) error {
	return delivery.Refuse(delivery.CodePayloadTooLarge, "the body may have at most %d bytes", limit)
}

// text is a copy of the body: parts of it may outlive the request.
func (x *requestContext) text() string { return string(x.body) }

// checkPath wants every "{}" of the route's pattern encoded correctly.
func (x *requestContext) checkPath() error {
	for _, raw := range x.params {
		if _, err := decodeSegment(raw); err != nil {
			return delivery.Refuse(delivery.CodeMalformedRequest, "the path is not encoded correctly")
		}
	}
	return nil
}

// decodeSegment undoes the percent-encoding of one segment. A plus stays a plus.
func decodeSegment(raw []byte) (string, error) { return url.PathUnescape(string(raw)) }

// param is the i-th "{}" of the route's pattern, decoded.
func (x *requestContext) param(i int) string {
	text, _ := decodeSegment(x.params[i]) // see checkPath
	return text
}

// idInPath reads the path's first parameter. What is no id names nothing that exists.
func idInPath[ID any](x *requestContext, parse func(string) (ID, error), into *ID, unknown error) (err error) {
	*into, err = parse(x.param(0))
	if err != nil {
		return unknown
	}
	return nil
}

// header is the value of a request header, and how often it was sent.
func (x *requestContext) header(name string) (value []byte, times int) {
	h := &x.ctx.Request.Header
	return h.Peek(name), len(h.PeekAll(name))
}

// query is a parameter of the query; empty when absent.
func (x *requestContext) query(name string) string { return string(x.ctx.QueryArgs().Peek(name)) }

// form is a request body whose rules stand in its handler. Checks of the fields
// gather every fault; err is the refusal. What orders, stores and cancellations hold
// is checked by package delivery.
type form struct {
	delivery.Faults
	malformed error
}

// form reads the body into a struct (strictjson.Bind). An optional body may be absent. What operators
// send is closed: with a misspelt member a change would be answered 200, and not be made. Vendors and
// fleets may send more than is read.
func (x *requestContext) form(fields any) *form {
	if len(x.body) == 0 && x.route.body == optionalBody {
		return new(form)
	}
	if x.route.access == adminOnly {
		return readForm(x.text(), strictjson.BindClosed(fields))
	}
	return readForm(x.text(), strictjson.Bind(fields))
}

func readForm(body string, fields *strictjson.Fields) *form {
	r := strictjson.New(body)
	r.Root(fields)
	f := &form{malformed: r.End()}
	f.WrongType, f.Ignored = r.Wrong, r.Ignored
	f.unknown(r.Unknown)

	return f
}

// unknown records members that are not there to be set.
func (f *form) unknown(members []strictjson.Unknown) {
	for _, m := range members {
		known := "is unknown; there are " + strings.Join(m.Known, ", ")
		if len(m.Known) == 0 {
			known = "is unknown; there are none"
		}
		if meant := m.Meant(); meant != "" {
			known += fmt.Sprintf("; did you mean %q?", meant)
		}
		f.Invalid(m.Path, known)
	}
}

// readObject reads a member that was kept as it is written; it is closed. path names it.
func (f *form) readObject(path, text string, into any) {
	r := strictjson.New(text)
	r.Object(path, strictjson.BindClosed(into))
	f.malformed = cmp.Or(f.malformed, r.End())
	f.WrongType = slices.Concat(f.WrongType, r.Wrong)
	f.unknown(r.Unknown)
}

// maxMistyped is how many fields of wrong types are looked at.
const maxMistyped = 50

// readElements reads an array of objects, of which take gets each with its path; what is null, or
// of a wrong type, is empty. The objects are closed. More than most are one fault, and of wrong types no
// more than maxMistyped are looked at.
func readElements[T any](f *form, text, path string, most int, tooMany string, take func(path string, given T)) {
	var given, none T
	fields, before := strictjson.BindClosed(&given), f.WrongType
	r := strictjson.New(text)
	r.RootArray(func(i int) {
		if i >= most {
			r.Skip()
			f.Invalid(path, fmt.Sprintf(tooMany, most))
			return
		}

		given = none
		at, known := fmt.Sprintf("%s[%d]", path, i), len(r.Wrong)
		r.Object(at, fields)
		r.Wrong = r.Wrong[:min(len(r.Wrong), maxMistyped)]
		if len(r.Wrong) > known {
			f.WrongType = slices.Concat(before, r.Wrong)
		}

		f.unknown(r.Unknown)
		r.Unknown = nil
		f.Ignored = r.Ignored
		take(at, given)
	})

	f.malformed = cmp.Or(f.malformed, r.End())
}

// err is MALFORMED_REQUEST, a VALIDATION_FAILED that lists every fault, or nil.
func (f *form) err() error {
	if f.malformed != nil {
		return f.malformed
	}
	return f.Err()
}

// set copies a flag that was given.
func set(flag *bool, into *bool) {
	if flag != nil {
		*into = *flag
	}
}
