package layout

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"vendorapi/reporting/svgmap"
)

// What is vendored is what its authors built.
func TestVendoredFiles_AreAsPublished(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		"htmx.min.js":      "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
		"chart.umd.min.js": "87364cc2b2a76a6684929e7d6b80b18a897794db38400caff1fcf1791c6925d2",
	} {
		content, err := files.ReadFile("assets/vendor/" + name)
		must(t, err)
		if digest := sha256.Sum256(content); hex.EncodeToString(digest[:]) != want {
			t.Errorf("%s has another content: %x", name, digest)
		}
	}
}

func TestAssets_AreKeptForEverAndCompressed(t *testing.T) {
	t.Parallel()

	f := withAssets(t)
	for _, name := range served {
		address := f.address(path.Base(name))
		plain := get(t, routesOf(f), address, "")
		want, err := files.ReadFile(name)
		must(t, err)
		if name == "assets/panel.css" {
			want = append(want, svgmap.Stylesheet...)
		}

		if plain.Code != http.StatusOK || plain.Body.String() != string(want) {
			t.Errorf("%s: %d, %d bytes", name, plain.Code, plain.Body.Len())
		}
		if got := plain.Header().Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control %q", name, got)
		}
		if unwanted := get(t, routesOf(f), address, "gzip;q=0"); unwanted.Header().Get("Content-Encoding") != "" || unwanted.Body.String() != string(want) {
			t.Errorf("%s: %v to who wants no gzip", name, unwanted.Header())
		}
		if name == "assets/icon.svg" {
			continue // too small to be compressed
		}

		small := get(t, routesOf(f), address, "br, gzip")
		z, err := gzip.NewReader(small.Body)
		must(t, err)
		content, err := io.ReadAll(z)
		must(t, err)
		if small.Header().Get("Content-Encoding") != "gzip" || string(content) != string(want) {
			t.Errorf("%s: compressed, it is another file", name)
		}
	}

	if icon := get(t, routesOf(f), "/favicon.ico", ""); icon.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("the icon is %v", icon.Header())
	}

	for _, path := range []string{"/assets/", "/assets/panel.css", "/assets/0000000000000000/layout.go", "/assets/0/vendor/htmx.min.js"} {
		if got := get(t, routesOf(f), path, ""); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.Code)
		}
	}

	if other := get(t, routesOf(f), "/assets/0000000000000000/panel.css", ""); other.Code != http.StatusOK || other.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("another release's address: %d %v", other.Code, other.Header())
	}

	request := httptest.NewRequest(http.MethodPost, f.address("panel.js"), nil)
	w := httptest.NewRecorder()
	routesOf(f).ServeHTTP(w, request)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func withAssets(t *testing.T) *Layout {
	t.Helper()
	all := NewAssets(files, served...)
	return &Layout{assets: all}
}

func get(t *testing.T, h http.Handler, path, encoding string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}

	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func routesOf(f *Layout) http.Handler {
	mux := http.NewServeMux()
	f.Routes(mux)
	return mux
}
