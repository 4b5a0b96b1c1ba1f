package main

import (
	"bytes"

	"vendorapi/gateway/docs"
)

// documentationRoutes are pages under /docs and the OpenAPI documents. They come last,
// so that no order is compared with them. label begins their names in the metrics.
func documentationRoutes(label string, site docs.Site, apis ...string) routes {
	rs := routes{
		{method: get, pattern: "/docs", name: label + "docs_page", handle: func(_ *gateway, x *requestContext) error {
			return x.showFile(site, "")
		}},
		{method: get, pattern: "/docs/{}", name: label + "docs_file", handle: func(_ *gateway, x *requestContext) error {
			return x.showFile(site, x.param(0))
		}},
	}
	for _, api := range apis {
		rs = append(rs, route{method: get, pattern: "/api/" + api + "/v1/openapi.yaml", name: label + "docs_openapi",
			handle: func(_ *gateway, x *requestContext) error { return x.showFile(site, api+".yaml") }})
	}
	for i := range rs {
		rs[i].access, rs[i].static = public, true
	}
	return rs
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
