package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

// unzipped returns what was compressed by gzip.
func unzipped(t *testing.T, content []byte) string {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
