package main

import (
	"bytes"
	"errors"
	"io"
	"reflect"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
)

// wellFormed reports whether a request is of HTTP/1.0, HTTP/1.1 or a later minor
// version (RFC 9110, section 2.5), with a header section that everybody reads
// alike. The server takes more than that.
func wellFormed(h *fasthttp.RequestHeader) bool {
	return bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")) && plainLines(h.RawHeaders())
}

// plainLines reports whether every line of a header section ends in CR LF and
// begins with a name without white space. The server also takes a lone LF for an end,
// folded lines, and "X Y" for a name (RFC 9112, sections 2.2, 5.1 and 5.2), where a
// proxy in front may see other headers, a length among them.
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

// A chunked request may take maxOverhead times its largest body on the wire: a chunk
// of one byte takes six (RFC 9112, section 7.1.1). Of an unwanted body maxUnwanted is
// read to keep the connection.
const (
	maxOverhead = 8
	maxUnwanted = 256 << 10
)

// readChunks reads a chunked body without its trailers.
func (x *requestContext) readChunks(limit int) error {
	body := bytes.NewBuffer(x.body[:0])
	stream := x.ctx.RequestBodyStream()
	_, err := body.ReadFrom(io.LimitReader(stream, int64(limit)+1))
	x.body = body.Bytes()
	switch {
	case len(x.body) > limit:
		x.body = x.body[:0]
		return oversize(limit)
	case err != nil || !ended(stream, x.trailers()):
		x.ctx.SetConnectionClose()
		return delivery.Refuse(delivery.CodeMalformedRequest, "the chunked body is malformed, is cut into too many bytes of framing, or ended or stalled before its last chunk")
	case len(x.body) > 0:
		return x.checkContentType()
	}
	return nil
}

// endChunks reads what is left of a chunked body once the request is answered, and
// reports whether the next request may follow. None may behind trailers: the server
// takes a lone LF for the end of a trailer line, which a proxy in front may not do.
func (x *requestContext) endChunks() bool {
	if x.ctx.Response.ConnectionClose() {
		return false
	}
	stream := x.ctx.RequestBodyStream()
	n, err := io.CopyN(io.Discard, stream, maxUnwanted)
	boundReading(x.ctx.Conn(), 0)
	return n < maxUnwanted && errors.Is(err, io.EOF) && !x.trailers() && ended(stream, false)
}

func (x *requestContext) trailers() bool { return len(x.ctx.Request.Header.PeekTrailerKeys()) > 0 }

// ended reports whether a chunked body that has been read came to its end. The server
// also takes the end of the connection between two chunks for it, and a lone LF in
// place of the empty trailer section. What it really read is in fields of its stream
// that only reflection reaches.
func ended(body io.Reader, trailers bool) bool {
	stream := reflect.ValueOf(body).Elem()
	if !stream.FieldByName("eof").Bool() {
		return false
	}
	buffer := stream.FieldByName("reader").Elem()
	read := buffer.FieldByName("buf").Bytes()[:buffer.FieldByName("r").Int()]
	return trailers || bytes.HasSuffix(read, []byte("\r\n"))
}
