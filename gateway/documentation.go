package main

import (
	"bytes"

	"vendorapi/gateway/docs"
)

// documentationRoutes are a listener's documentation: its pages under /docs and
// the OpenAPI documents beside the APIs. Nobody needs a token for them, they ask
// nothing of the ledger, and they stand behind the API's own routes, so that no
// order is compared with them. label begins their names in the metrics.
func documentationRoutes(label string, site *docs.Site, documents map[string]string) routes {
	rs := routes{
		{method: get, pattern: "/docs", name: label + "docs_page", handle: func(_ *gateway, x *requestContext) error {
			return x.show(site, "")
		}},
		{method: get, pattern: "/docs/{}", name: label + "docs_file", handle: func(_ *gateway, x *requestContext) error {
			return x.show(site, x.param(0))
		}},
	}
	for path, name := range documents {
		rs = append(rs, route{method: get, pattern: path, name: label + "docs_openapi", handle: func(_ *gateway, x *requestContext) error {
			return x.show(site, name)
		}})
	}
	for i := range rs {
		rs[i].access, rs[i].static = public, true
	}
	return rs
}

func vendorDocumentation(base string) routes {
	return documentationRoutes("", docs.Vendor(base), map[string]string{"/api/vendor/v1/openapi.yaml": docs.VendorDocument})
}

func privateDocumentation(base string) routes {
	return documentationRoutes("private_", docs.Private(base), map[string]string{
		"/api/fleet/v1/openapi.yaml": docs.FleetDocument, "/api/admin/v1/openapi.yaml": docs.AdminDocument,
	})
}

var (
	headerETag     = []byte("ETag")
	headerVary     = []byte("Vary")
	headerEncoding = []byte("Content-Encoding")
	headerPolicy   = []byte("Content-Security-Policy")
	headerNoSniff  = []byte("X-Content-Type-Options")
	headerReferrer = []byte("Referrer-Policy")

	valuePolicy     = []byte(docs.Policy)
	valueNoSniff    = []byte("nosniff")
	valueNoReferrer = []byte("no-referrer")
	valueAskAgain   = []byte("no-cache") // kept, and asked for by its ETag
	valueGzip       = []byte("gzip")
	valueEncoding   = []byte("Accept-Encoding")
)

// show answers a file of the documentation; NOT_FOUND when there is none of this
// name. A reader who has it already gets 304.
func (x *requestContext) show(site *docs.Site, name string) error {
	file, ok, err := site.File(name)
	if err != nil {
		return err
	}
	if !ok {
		return x.noSuchPath()
	}
	r := &x.ctx.Response
	r.Header.SetCanonical(headerETag, []byte(file.ETag))
	r.Header.SetCanonical(headerCache, valueAskAgain)
	r.Header.SetCanonical(headerVary, valueEncoding)
	r.Header.SetCanonical(headerPolicy, valuePolicy)
	r.Header.SetCanonical(headerNoSniff, valueNoSniff)
	r.Header.SetCanonical(headerReferrer, valueNoReferrer)
	if bytes.Contains(x.ctx.Request.Header.Peek("If-None-Match"), []byte(file.ETag)) {
		r.SetStatusCode(304)
		return nil
	}
	r.SetStatusCode(200)
	r.Header.SetContentType(file.Type)
	if acceptsGzip(x.ctx.Request.Header.Peek("Accept-Encoding")) {
		r.Header.SetCanonical(headerEncoding, valueGzip)
		r.SetBodyRaw(file.Packed)
		return nil
	}
	plain, err := file.Plain()
	if err != nil {
		return err
	}
	r.SetBodyRaw(plain)
	return nil
}

// acceptsGzip reads Accept-Encoding; "gzip;q=0" does not want it.
func acceptsGzip(header []byte) bool {
	for coding := range bytes.SplitSeq(header, []byte{','}) {
		name, weight, _ := bytes.Cut(coding, []byte{';'})
		if bytes.EqualFold(bytes.TrimSpace(name), valueGzip) {
			q, weighted := bytes.CutPrefix(bytes.ToLower(bytes.TrimSpace(weight)), []byte("q="))
			return !weighted || len(bytes.Trim(q, "0.")) > 0
		}
	}
	return false
}
