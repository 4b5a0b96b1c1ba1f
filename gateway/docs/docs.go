// Package docs is the documentation that a gateway shows: the OpenAPI documents
// in a viewer, and the pages for integrators.
// The viewer is Swagger UI 5.29.0 as a Go module carries it; the policy that goes
// with each page lets a browser load nothing from elsewhere. A file is made when it
// is first asked for.
package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"

	"github.com/swaggest/swgui/v5/static"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"vendorapi/gateway/openapi"
)

//go:embed pages
var pages embed.FS

// Policy is the Content-Security-Policy of every page: scripts, styles, pictures
// and requests from the gateway itself only, data: pictures that are part of the
// viewer's style, and no frame around it.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// File is something that can be asked for.
type File struct {
	Type   string // as in Content-Type
	ETag   string // of the content, with its quotes
	Packed []byte // the content, gzipped
	plain  func() ([]byte, error)
}

// Plain is the content as it is. Browsers never ask for it, so it is unpacked when
// somebody does for the first time, and kept: 1.5 MB at the most, not each time.
func (f *File) Plain() ([]byte, error) { return f.plain() }

func newFile(kind string, packed []byte) *File {
	return &File{Type: kind, ETag: tag(packed), Packed: packed, plain: sync.OnceValues(func() ([]byte, error) {
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("unpack a page: %w", err)
		}
		return io.ReadAll(r)
	})}
}

// Site is the documentation of one listener. It is safe for concurrent use.
type Site struct {
	files map[string]func() (*File, error)
}

// File is the file of a name; the page itself has none. ok tells whether there is
// one.
func (s *Site) File(name string) (file *File, ok bool, err error) {
	compose, ok := s.files[name]
	if !ok {
		return nil, false, nil
	}
	file, err = compose()
	return file, true, err
}

// API is a document in a site.
type API struct {
	Name     string // in the site's navigation
	Page     string // the name of its page
	File     string // the name of its document
	Path     string // where the API is, such as /api/vendor/v1
	Document []byte
}

// The documents' names within a site.
const (
	VendorDocument = "vendor.yaml"
	FleetDocument  = "fleet.yaml"
	AdminDocument  = "admin.yaml"
)

// Vendor is the public listener's documentation. base is the origin under which
// vendors reach it, such as https://api.example; empty when that is not known,
// and then addresses are relative to where the page is.
func Vendor(base string) *Site {
	s := newSite(base, API{"Vendor API", "", VendorDocument, "/api/vendor/v1", openapi.Vendor})
	s.add("ten-minutes", markdown("Ten minutes", s.navigation("ten-minutes"), []byte(at(base, openapi.TenMinutes))))
	s.add("postman.json", asset("application/json", openapi.Postman))
	return s.Site
}

// Private is the private listener's documentation.
func Private(base string) *Site {
	return newSite(base,
		API{"Fleet API", "", FleetDocument, "/api/fleet/v1", openapi.Fleet},
		API{"Admin API", "admin", AdminDocument, "/api/admin/v1", openapi.Admin}).Site
}

// site is a Site in the making.
type site struct {
	*Site
	apis   []API
	vendor bool
}

func newSite(base string, apis ...API) *site {
	s := &site{&Site{map[string]func() (*File, error){}}, apis, apis[0].File == VendorDocument}
	for _, api := range apis {
		s.add(api.File, asset("application/yaml", at(base, api.Document)))
		s.add(api.Page, viewer(api, s.navigation(api.Page)))
	}
	s.add("errors", markdown("Error codes", s.navigation("errors"), []byte(openapi.Errors)))
	for _, name := range []string{"swagger-ui.css", "swagger-ui-bundle.js"} {
		s.add(name, packed(kindOf(name), name+".gz"))
	}
	for _, name := range []string{"docs.css", "docs.js"} {
		content, err := pages.ReadFile("pages/" + name)
		s.add(name, func() (*File, error) {
			if err != nil {
				return nil, err
			}
			return pack(kindOf(name), content)
		})
	}
	return s
}

// add has a file made when it is first asked for.
func (s *site) add(name string, compose func() (*File, error)) {
	s.files[name] = sync.OnceValues(compose)
}

// at writes the known origin into a text: as the server of a document, and in
// place of {base_url}.
func at[T ~string | ~[]byte](base string, text T) T {
	if base == "" {
		return text
	}
	filled := strings.ReplaceAll(string(text), "{base_url}", base)
	return T(strings.Replace(filled, "\n  - url: /api/", "\n  - url: "+base+"/api/", 1))
}

func kindOf(name string) string {
	if strings.HasSuffix(name, ".js") {
		return "text/javascript; charset=utf-8"
	}
	return "text/css; charset=utf-8"
}

func asset(kind string, content []byte) func() (*File, error) {
	return func() (*File, error) { return pack(kind, content) }
}

// packed is a file of the viewer, which is packed already.
func packed(kind, name string) func() (*File, error) {
	return func() (*File, error) {
		content, err := static.FS.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("the viewer's %s: %w", name, err)
		}
		return newFile(kind, content), nil
	}
}

func pack(kind string, content []byte) (*File, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return newFile(kind, b.Bytes()), nil
}

func tag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}

// link is an entry of the navigation.
type link struct {
	Text, Path string
	Here       bool
}

func (s *site) navigation(here string) []link {
	var links []link
	add := func(text, path, name string) { links = append(links, link{text, path, name == here}) }
	for _, api := range s.apis {
		add(api.Name, strings.TrimSuffix("/docs/"+api.Page, "/"), api.Page)
	}
	if s.vendor {
		add("Ten minutes", "/docs/ten-minutes", "ten-minutes")
	}
	add("Error codes", "/docs/errors", "errors")
	for _, api := range s.apis {
		add(api.File, api.Path+"/openapi.yaml", "-")
	}
	if s.vendor {
		add("Postman", "/docs/postman.json", "-")
	}
	return links
}

// frame is what a page's template is given.
type frame struct {
	Title    string
	Links    []link
	Document string        // shown in the viewer
	Text     template.HTML // or a text
}

var frames = template.Must(template.ParseFS(pages, "pages/page.html"))

func viewer(api API, links []link) func() (*File, error) {
	return func() (*File, error) {
		return render(frame{Title: "Delivery " + api.Name, Links: links, Document: api.Path + "/openapi.yaml"})
	}
}

func markdown(title string, links []link, text []byte) func() (*File, error) {
	return func() (*File, error) {
		var b bytes.Buffer
		if err := goldmark.New(goldmark.WithExtensions(extension.GFM)).Convert(text, &b); err != nil {
			return nil, fmt.Errorf("the page %s: %w", title, err)
		}
		return render(frame{Title: title, Links: links, Text: template.HTML(reachable.Replace(b.String()))}) //nolint:gosec // our own text
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
	return pack("text/html; charset=utf-8", b.Bytes())
}
