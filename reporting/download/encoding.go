package download

import (
	"net/http"
	"strconv"
	"strings"
)

// acceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3). A coding that is
// not named is taken for not wanted, as most servers do.
func acceptsGzip(r *http.Request) bool {
	wanted := false
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "gzip" && coding != "x-gzip" && coding != "*" {
			continue
		}
		good := quality(parameters) > 0
		if coding != "*" {
			return good // named, which weighs more than *
		}
		wanted = good
	}
	return wanted
}

// quality is the weight in "q=0.5"; 1 without one, 0 for what is none.
func quality(parameters string) float64 {
	name, value, found := strings.Cut(strings.TrimSpace(parameters), "=")
	if !found || !strings.EqualFold(strings.TrimSpace(name), "q") {
		return 1
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil {
		return 0
	}
	return q
}
