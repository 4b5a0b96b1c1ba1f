// Package assets serves embedded files under addresses that change with the content, so
// that browsers may keep them.
package assets

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"

	"vendorapi/reporting/panel/svgmap"
)

// Files are served as …/hash/name. They are safe for concurrent use.
type Files struct {
	Hash     string // of all files
	contents map[string][]byte
}

// New reads the files, whose base names differ. Stylesheets get the maps' classes.
func New(from fs.FS, names ...string) (*Files, error) {
	f, all := &Files{contents: map[string][]byte{}}, sha256.New()
	for _, name := range names {
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		if path.Ext(name) == ".css" {
			content = append(content, svgmap.Stylesheet...)
		}
		f.contents[path.Base(name)] = content
		all.Write(content)
	}
	f.Hash = hex.EncodeToString(all.Sum(nil)[:8])
	return f, nil
}

// ServeHTTP serves a file under another hash too, but not to be kept: during an upgrade one
// replica's page asks another for its files.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	folder, name := path.Split(r.URL.Path)
	content, known := f.contents[name]
	if !known {
		http.NotFound(w, r)
		return
	}
	if path.Base(folder) == f.Hash {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}
