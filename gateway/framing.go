package main

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

// wellFormed reports whether a request is of HTTP/1.0, HTTP/1.1 or a later minor
// version (RFC 9110, section 2.5), with a header section that everybody reads
// alike. The server takes more than that.
func wellFormed(h *fasthttp.RequestHeader) bool {
	return bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")) && plainLines(h.RawHeaders())
}

// plainLines reports whether every line of a header section ends in CR LF and
// begins with a name without white space. The server that reads them also takes
// a lone LF for an end, a line that begins with white space for the rest of the
// one before, and "X Y" for a name (RFC 9112, sections 2.2, 5.1 and 5.2). A proxy
// in front may see other headers than we do then, a length among them, so such a
// request is refused and its connection closed.
func plainLines(section []byte) bool {
	for len(section) > 0 {
		end := bytes.IndexByte(section, '\n')
		if end < 1 || section[end-1] != '\r' {
			return false
		}
		for _, c := range section[:end-1] {
			if c == ' ' || c == '\t' {
				return false
			}
			if c == ':' {
				break
			}
		}
		section = section[end+1:]
	}
	return true
}
