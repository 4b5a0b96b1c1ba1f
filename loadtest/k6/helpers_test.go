package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"vendorapi/internal/stack/client"
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

// newVendorAPI serves a Vendor API that gives out tokens t1, t2, …, and hands every other request to answer.
func newVendorAPI(t *testing.T, answer http.HandlerFunc) *client.Client {
	t.Helper()
	var logins atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("an old token was sent with a login")
		}
		fmt.Fprintf(w, `{"success": true, "data": {"accessToken": "t%d"}}`, logins.Add(1))
	})

	mux.HandleFunc("/", answer)

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	return client.New(server.URL, 8)
}
