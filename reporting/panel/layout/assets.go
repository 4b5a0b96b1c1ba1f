package layout

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strconv"

	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/svgmap"
)

//go:embed page/*.html assets/*.css assets/*.js assets/*.svg assets/vendor/*.js
var files embed.FS

// served are the assets, by the name that templates use.
var served = []string{"panel.css", "panel.js", "icon.svg", "vendor/htmx.min.js", "vendor/chart.umd.min.js"}

// asset is a file in both forms, made once.
type asset struct {
	address        string // /assets/<digest>/<name>
	contentType    string
	plain, gzipped []byte
}

// assets are served under an address that changes with their content, so that
// browsers may keep them for ever.
type assets struct {
	byName, byAddress map[string]*asset
}

func loadAssets() (*assets, error) {
	all := &assets{byName: map[string]*asset{}, byAddress: map[string]*asset{}}
	for _, name := range served {
		content, err := files.ReadFile("assets/" + name)
		if err != nil {
			return nil, err
		}
		if name == "panel.css" {
			content = append(content, svgmap.Stylesheet...)
		}
		digest := sha256.Sum256(content)
		a := &asset{
			address:     "/assets/" + hex.EncodeToString(digest[:8]) + "/" + path.Base(name),
			contentType: mime.TypeByExtension(path.Ext(name)), plain: content,
		}
		var small bytes.Buffer
		z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
		if err == nil {
			_, err = z.Write(content)
		}
		if err == nil {
			err = z.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("compress %s: %w", name, err)
		}
		a.gzipped = small.Bytes()
		all.byName[name], all.byAddress[a.address] = a, a
	}
	return all, nil
}

// address is what templates write for an asset.
func (a *assets) address(name string) (string, error) {
	found, ok := a.byName[name]
	if !ok {
		return "", fmt.Errorf("no asset %q", name)
	}
	return found.address, nil
}

// Icon serves the icon where browsers look for it on pages that name none.
func (f *Frame) Icon() http.Handler {
	return auth.Protect(auth.PolicyData, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		icon := f.assets.byName["icon.svg"]
		w.Header().Set("Content-Type", icon.contentType)
		w.Header().Set("Cache-Control", "public, max-age=86400")
		_, _ = w.Write(icon.plain) // the asker may have gone
	}))
}

// Assets serves the stylesheet, scripts and icon, to everybody.
func (f *Frame) Assets() http.Handler {
	return auth.Protect(auth.PolicyData, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := f.assets.byAddress[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h, body := w.Header(), a.plain
		h.Set("Content-Type", a.contentType)
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("Vary", "Accept-Encoding")
		if auth.AcceptsGzip(r) {
			h.Set("Content-Encoding", "gzip")
			body = a.gzipped
		}
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // the asker may have gone
	}))
}
