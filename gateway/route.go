package main

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/valyala/fasthttp"

	"vendorapi/gateway/docs"
	"vendorapi/internal/ledger/limits"
)

// access says who may call a route.
type access uint8

const (
	public access = iota
	vendorOnly
	fleetOnly
	adminOnly
)

// bodyRule is what a route expects of the body.
type bodyRule uint8

const (
	noBody       bodyRule = iota // one that is sent all the same is ignored
	optionalBody                 // an empty one needs no headers
	requiredBody
)

type handler = func(*gateway, *requestContext) error

type route struct {
	method  string
	pattern string // "{}" stands for one segment, given to the handler as x.param
	name    string // label of the metrics
	access  access
	body    bodyRule
	maxBody int // bytes; 0: usualBody. No more than the listener's max_body_bytes
	// bucket is where a vendor's request counts (spec, "Limits").
	bucket limits.Endpoint
	// login is a token endpoint: its handler takes the places in flight, once it knows whose
	// request it is.
	login bool
	// onceOnly routes do their work again when a request is sent again: they make one account, or use
	// up one secret, more.
	onceOnly bool
	// static routes need no ledger.
	static bool
	// about reads what the path names; optional.
	about  func(*requestContext) error
	handle handler

	segments []string
	meter    *meter
}

// group puts routes under a common path; about reads what it names.
func group(root string, by access, about func(*requestContext) error, rs ...route) routes {
	for i := range rs {
		rs[i].pattern, rs[i].access, rs[i].about = root+rs[i].pattern, by, about
		rs[i].segments = strings.Split(rs[i].pattern[1:], "/")
		rs[i].maxBody = cmp.Or(rs[i].maxBody, usualBody)
	}
	return rs
}

// routes are compared one by one: they are few.
type routes []route

// maxSegments is one more than the longest pattern has.
const maxSegments = 9

// paramsMax is the most "{}" a pattern has.
const paramsMax = 2

// match finds the route of a request target by its raw path: an encoded slash is part
// of a segment, and empty, "." and ".." segments name nothing. Without a route, allow is
// the Allow header of a 405, empty for a 404.
func (rs routes) match(method, target []byte) (found *route, params [paramsMax][]byte, allow string) {
	var segments [maxSegments][]byte
	n, ok := splitPath(pathOf(target), &segments)
	if !ok {
		return nil, params, ""
	}

	var methods []string
	for i := range rs {
		r := &rs[i]
		if !r.matches(segments[:n], &params) {
			continue
		}
		if r.method == string(method) {
			return r, params, ""
		}
		methods = append(methods, r.method)
	}

	return nil, params, strings.Join(methods, ", ")
}

func (r *route) matches(segments [][]byte, params *[paramsMax][]byte) bool {
	if len(segments) != len(r.segments) {
		return false
	}

	filled := 0
	for i, want := range r.segments {
		if want == "{}" {
			params[filled] = segments[i]
			filled++
		} else if string(segments[i]) != want {
			return false
		}
	}

	return true
}

// pathOf is the path of a request target as it was sent, still encoded, in absolute
// form ("GET http://host/path"; RFC 9112, section 3.2.2) too. The host is not checked.
func pathOf(target []byte) []byte {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		target = target[:i]
	}

	for _, scheme := range []string{"http://", "https://"} {
		if len(target) > len(scheme) && bytes.EqualFold(target[:len(scheme)], []byte(scheme)) {
			rest := target[len(scheme):]
			if i := bytes.IndexByte(rest, '/'); i > 0 {
				return rest[i:]
			}
			return nil
		}
	}

	return target
}

func splitPath(path []byte, segments *[maxSegments][]byte) (n int, ok bool) {
	if len(path) == 0 || path[0] != '/' {
		return 0, false
	}

	for rest, more := path[1:], true; more; n++ {
		if n == maxSegments {
			return 0, false
		}
		segments[n], rest, more = bytes.Cut(rest, []byte{'/'})
		switch string(segments[n]) {
		case "", ".", "..":
			return 0, false
		}
	}

	return n, true
}

const (
	get    = fasthttp.MethodGet
	post   = fasthttp.MethodPost
	put    = fasthttp.MethodPut
	patch  = fasthttp.MethodPatch
	remove = fasthttp.MethodDelete
)

// documentationRoutes are pages under /docs and the OpenAPI documents. They come last,
// so that no order is compared with them. label begins their names in the metrics.
func documentationRoutes(label string, site docs.Site, apis ...string) routes {
	show := func(pattern, name, file string) route {
		return route{method: get, pattern: pattern, name: label + name, static: true, handle: func(_ *gateway, x *requestContext) error {
			return x.showFile(site, cmp.Or(file, x.param(0)))
		}}
	}

	rs := routes{show("/docs", "docs_page", ""), show("/docs/{}", "docs_file", "")}
	for _, api := range apis {
		for _, form := range []string{".yaml", ".json", "-3.0.json"} {
			rs = append(rs, show("/api/"+api+"/v1/openapi"+form, "docs_openapi", api+form))
		}
	}

	return group("", public, nil, rs...)
}

// showFile answers a file of the documentation, 304 to a reader who has it.
func (x *requestContext) showFile(site docs.Site, name string) error {
	compose := site[name]
	if compose == nil {
		return x.noSuchPath()
	}

	file, err := compose()
	if err != nil {
		return err
	}

	r := &x.ctx.Response
	for _, header := range [][2]string{
		{"ETag", file.ETag}, {"Cache-Control", "no-cache"}, {"Vary", "Accept-Encoding"}, // kept, and asked for by its ETag
		{"Content-Security-Policy", docs.Policy}, {"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"},
	} {
		r.Header.Set(header[0], header[1])
	}

	if bytes.Contains(x.ctx.Request.Header.Peek("If-None-Match"), []byte(file.ETag)) {
		r.SetStatusCode(304)
		return nil
	}

	r.SetStatusCode(200)
	r.Header.SetContentType(file.Type)
	if x.ctx.Request.Header.HasAcceptEncoding("gzip") {
		r.Header.Set("Content-Encoding", "gzip")
		r.SetBodyRaw(file.Packed)
		return nil
	}

	plain, err := file.Plain()
	r.SetBodyRaw(plain)

	return err
}
