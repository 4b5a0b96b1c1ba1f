package auth

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// WantsPage tells a browser that navigates from everything else: only it names
// text/html.
func WantsPage(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			mediaType, parameters, err := mime.ParseMediaType(part)
			if err == nil && mediaType == "text/html" && weight(parameters["q"]) > 0 {
				return true
			}
		}
	}
	return false
}

// AcceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3). A coding that is
// not named is taken for not wanted, as most servers do.
func AcceptsGzip(r *http.Request) bool {
	wanted := false
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "gzip" && coding != "x-gzip" && coding != "*" {
			continue
		}
		good := weight(quality(parameters)) > 0
		if coding != "*" {
			return good // named, which weighs more than *
		}
		wanted = good
	}
	return wanted
}

// quality is what follows "q=" in the parameters of a coding; empty without it.
func quality(parameters string) string {
	name, value, _ := strings.Cut(strings.TrimSpace(parameters), "=")
	if !strings.EqualFold(strings.TrimSpace(name), "q") {
		return ""
	}
	return strings.TrimSpace(value)
}

// weight is a quality as a number: 1 for none, 0 for what is no number.
func weight(quality string) float64 {
	if quality == "" {
		return 1
	}
	q, err := strconv.ParseFloat(quality, 64)
	if err != nil {
		return 0
	}
	return q
}
