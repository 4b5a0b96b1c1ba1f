package tracking

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"

	"vendorapi/reporting/panel/svgmap"
)

//go:embed page
var files embed.FS

// asset is a file of the page's own, as it is served.
type asset struct {
	contentType string
	content     []byte
}

var (
	assets     = loadAssets()
	assetsHash = hashAssets()
)

func loadAssets() map[string]asset {
	return map[string]asset{
		"track.css": {"text/css; charset=utf-8", append([]byte(svgmap.Stylesheet), file("track.css")...)},
		"track.js":  {"text/javascript; charset=utf-8", file("track.js")},
		"icon.svg":  {"image/svg+xml", file("icon.svg")},
	}
}

func file(name string) []byte {
	content, err := files.ReadFile("page/" + name)
	if err != nil {
		panic(fmt.Sprintf("the embedded tracking pages: %v", err))
	}
	return content
}

// hashAssets names the state of all files, so that a browser may keep them.
func hashAssets() string {
	all := sha256.New()
	for _, name := range []string{"track.css", "track.js", "icon.svg"} {
		all.Write(assets[name].content)
	}
	return hex.EncodeToString(all.Sum(nil)[:8])
}

// serveAsset answers with a file. Under another hash than the present one it is
// served too, but not kept: during an upgrade one replica's page asks another
// for its files.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, known := assets[r.PathValue("name")]
	if !known {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	if r.PathValue("hash") == assetsHash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Length", strconv.Itoa(len(a.content)))
	_, _ = w.Write(a.content) // the asker went away: nothing to do
}
