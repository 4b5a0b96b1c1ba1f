// Package docs is the documentation that a gateway shows: the OpenAPI documents
// in a viewer, and the pages for integrators.
// The viewer is Swagger UI 5.29.0 as a Go module carries it; the policy that goes
// with each page lets a browser load nothing from elsewhere. A file is made when it
// is first asked for.
package docs

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"strings"
	"sync"

	"github.com/swaggest/swgui/v5/static"
	"github.com/valyala/fasthttp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"vendorapi/gateway/openapi"
)

//go:embed pages
var pages embed.FS

// Policy is the Content-Security-Policy of every page; the viewer's style has data: pictures.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// File is something that can be asked for.
type File struct {
	Type   string // as in Content-Type
	ETag   string // of the content, with its quotes
	Packed []byte // the content, gzipped
	// Plain is unpacked when it is first asked for, and kept: 1.5 MB at the most.
	Plain func() ([]byte, error)
}

func newFile(kind string, packed []byte) *File {
	sum := sha256.Sum256(packed)
	return &File{Type: kind, ETag: `"` + hex.EncodeToString(sum[:12]) + `"`, Packed: packed,
		Plain: sync.OnceValues(func() ([]byte, error) { return fasthttp.AppendGunzipBytes(nil, packed) })}
}

func pack(kind string, content []byte) *File {
	return newFile(kind, fasthttp.AppendGzipBytesLevel(nil, content, fasthttp.CompressBestCompression))
}

// Site is the files of one listener by name. It is safe for concurrent use.
type Site map[string]func() (*File, error)

type link struct{ Text, Path string }

// Vendor is the public listener's documentation. base is the origin under which
// vendors reach it, such as https://api.example; empty when that is not known,
// and then addresses are relative to where the page is.
func Vendor(base string) Site {
	links := []link{{"Vendor API", "/docs"}, {"Ten minutes", "/docs/ten-minutes"}, {"Error codes", "/docs/errors"},
		{"vendor.yaml", "/api/vendor/v1/openapi.yaml"}, {"vendor.json", "/api/vendor/v1/openapi.json"},
		{"OpenAPI 3.0", "/api/vendor/v1/openapi-3.0.json"}}
	s := newSite(links)
	s.addAPI("", "vendor", at(base, openapi.Vendor), links)
	s.add("ten-minutes", markdown("Ten minutes", links[1].Path, at(base, openapi.TenMinutes), links))
	return s
}

// Fleet is the documentation on the fleets' own listener.
func Fleet(base string) Site {
	links := []link{{"Fleet API", "/docs"}, {"Error codes", "/docs/errors"}, {"fleet.yaml", "/api/fleet/v1/openapi.yaml"},
		{"fleet.json", "/api/fleet/v1/openapi.json"}, {"OpenAPI 3.0", "/api/fleet/v1/openapi-3.0.json"}}
	s := newSite(links)
	s.addAPI("", "fleet", at(base, openapi.Fleet), links)
	return s
}

// Private is the private listener's documentation.
func Private(base string) Site {
	links := []link{{"Fleet API", "/docs"}, {"Admin API", "/docs/admin"}, {"Error codes", "/docs/errors"},
		{"fleet.yaml", "/api/fleet/v1/openapi.yaml"}, {"fleet.json", "/api/fleet/v1/openapi.json"},
		{"fleet in OpenAPI 3.0", "/api/fleet/v1/openapi-3.0.json"},
		{"admin.yaml", "/api/admin/v1/openapi.yaml"}, {"admin.json", "/api/admin/v1/openapi.json"},
		{"admin in OpenAPI 3.0", "/api/admin/v1/openapi-3.0.json"}}

	s := newSite(links)
	s.addAPI("", "fleet", at(base, openapi.Fleet), links)
	s.addAPI("admin", "admin", at(base, openapi.Admin), links)
	return s
}

func newSite(links []link) Site {
	s := Site{}
	s.add("errors", markdown("Error codes", "/docs/errors", openapi.Errors, links))
	for name, kind := range map[string]string{"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"} {
		s.add("docs."+name, func() (*File, error) {
			content, err := pages.ReadFile("pages/docs." + name)
			return pack(kind, content), err
		})

		viewer := map[string]string{"css": "swagger-ui.css", "js": "swagger-ui-bundle.js"}[name]
		s.add(viewer, func() (*File, error) {
			packed, err := static.FS.ReadFile(viewer + ".gz")
			return newFile(kind, packed), err
		})
	}

	return s
}

func (s Site) add(name string, compose func() (*File, error)) { s[name] = sync.OnceValues(compose) }

func (s Site) addAPI(page, api, document string, links []link) {
	s.add(api+".yaml", asset("application/yaml", document))
	s.add(api+".json", converted(openapi.JSON, document))
	s.add(api+"-3.0.json", converted(openapi.JSON30, document))
	s.add(page, func() (*File, error) {
		return render(frame{Title: "Delivery " + strings.ToUpper(api[:1]) + api[1:] + " API", Links: links,
			Here: strings.TrimSuffix("/docs/"+page, "/"), Document: "/api/" + api + "/v1/openapi.yaml"})
	})
}

// at writes the known origin into a text: as the server of a document, and in
// place of {base_url}.
func at[T ~string | ~[]byte](base string, text T) string {
	if base == "" {
		return string(text)
	}
	filled := strings.ReplaceAll(string(text), "{base_url}", base)
	return strings.Replace(filled, "\n  - url: /api/", "\n  - url: "+base+"/api/", 1)
}

func asset[T ~string | ~[]byte](kind string, content T) func() (*File, error) {
	return func() (*File, error) { return pack(kind, []byte(content)), nil }
}

// converted is an OpenAPI document in one of its JSON forms.
func converted(convert func([]byte) ([]byte, error), document string) func() (*File, error) {
	return func() (*File, error) {
		content, err := convert([]byte(document))
		if err != nil {
			return nil, err
		}
		return pack("application/json", content), nil
	}
}

type frame struct {
	Title, Here string
	Links       []link
	Document    string        // shown in the viewer
	Text        template.HTML // or a text
}

var frames = template.Must(template.ParseFS(pages, "pages/page.html"))

func markdown(title, here, text string, links []link) func() (*File, error) {
	return func() (*File, error) {
		var b bytes.Buffer
		if err := goldmark.New(goldmark.WithExtensions(extension.GFM)).Convert([]byte(text), &b); err != nil {
			return nil, fmt.Errorf("the page %s: %w", title, err)
		}
		return render(frame{Title: title, Here: here, Links: links, Text: template.HTML(reachable.Replace(b.String()))}) //nolint:gosec // our own text
	}
}

// reachable lets what is wider than a screen be scrolled without a mouse, and says
// what the heads of a table are the heads of.
var reachable = strings.NewReplacer(
	"<th>", `<th scope="col">`, "<pre>", `<pre tabindex="0">`,
	"<table>", `<div class="wide" tabindex="0" role="region" aria-label="Table"><table>`, "</table>", "</table></div>",
)

func render(f frame) (*File, error) {
	var b bytes.Buffer
	if err := frames.Execute(&b, f); err != nil {
		return nil, fmt.Errorf("the page %s: %w", f.Title, err)
	}
	return pack("text/html; charset=utf-8", b.Bytes()), nil
}
