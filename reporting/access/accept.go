package access

import (
	"mime"
	"net/http"
	"strings"
)

// WantsPage tells a browser that navigates from everything else: only it names
// text/html.
func WantsPage(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			mediaType, parameters, err := mime.ParseMediaType(part)
			if err == nil && mediaType == "text/html" && parameters["q"] != "0" {
				return true
			}
		}
	}
	return false
}
