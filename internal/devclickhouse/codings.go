package devclickhouse

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strings"

	chcompress "github.com/ClickHouse/ch-go/compress"
	"github.com/andybalholm/brotli"
)

// chooseCoding picks the Content-Encoding of the answer from Accept-Encoding;
// empty: none. gzip comes first, because every client can do it.
func chooseCoding(accept string) string {
	offered := map[string]bool{}
	for _, part := range strings.Split(strings.ToLower(accept), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		q, weighted := strings.CutPrefix(strings.TrimSpace(weight), "q=")
		offered[strings.TrimSpace(name)] = !weighted || strings.Trim(q, "0.") != ""
	}
	for _, coding := range []string{"gzip", "deflate", "br"} {
		if offered[coding] {
			return coding
		}
	}
	return ""
}

// flushWriter is a compressor that can be made to give out what it has.
type flushWriter interface {
	io.WriteCloser
	Flush() error
}

// encoder compresses an answer with a coding of chooseCoding. Speed is chosen
// over size: the other side is on this machine.
func encoder(coding string, to io.Writer) flushWriter {
	switch coding {
	case "deflate":
		w, _ := zlib.NewWriterLevel(to, zlib.BestSpeed) // the level is valid
		return w
	case "br":
		return brotli.NewWriterLevel(to, brotli.BestSpeed)
	}
	w, _ := gzip.NewWriterLevel(to, gzip.BestSpeed) // the level is valid
	return w
}

// decoder undoes the Content-Encoding of a request's body.
func decoder(coding string, from io.Reader) (io.Reader, error) {
	switch strings.ToLower(coding) {
	case "", "identity":
		return from, nil
	case "gzip":
		return gzip.NewReader(from)
	case "deflate":
		return zlib.NewReader(from)
	case "br":
		return brotli.NewReader(from), nil
	}
	return nil, notImplemented("Content-Encoding %s", coding)
}

// blockDecoder undoes decompress=1: ClickHouse's own compressed blocks.
func blockDecoder(from io.Reader) io.Reader { return chcompress.NewReader(from) }

// blockSize is how much goes into one compressed block, as the server has it.
const blockSize = 1 << 20

// blockEncoder does compress=1. It gathers blockSize bytes for a block.
type blockEncoder struct {
	to     io.Writer
	writer *chcompress.Writer
	block  []byte
}

func newBlockEncoder(method string, to io.Writer) (*blockEncoder, error) {
	methods := map[string]chcompress.Method{
		"LZ4": chcompress.LZ4, "LZ4HC": chcompress.LZ4HC, "ZSTD": chcompress.ZSTD, "NONE": chcompress.None,
	}
	m, ok := methods[method]
	if !ok {
		return nil, notImplemented("network_compression_method %s", method)
	}
	return &blockEncoder{to: to, writer: chcompress.NewWriter(chcompress.LevelZero, m)}, nil
}

func (e *blockEncoder) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		room := min(blockSize-len(e.block), len(p))
		e.block = append(e.block, p[:room]...)
		p, n = p[room:], n+room
		if len(e.block) == blockSize {
			if err := e.Flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Flush writes what has been gathered as a block.
func (e *blockEncoder) Flush() error {
	if len(e.block) == 0 {
		return nil
	}
	if err := e.writer.Compress(e.block); err != nil {
		return fmt.Errorf("compress a block: %w", err)
	}
	e.block = e.block[:0]
	_, err := e.to.Write(e.writer.Data)
	return err
}

// Close is Flush: blocks have no end mark.
func (e *blockEncoder) Close() error { return e.Flush() }
