// Command derive writes what is derived from the OpenAPI documents: the Postman
// collection and the table of error codes.
//
//	go run ./gateway/openapi/derive          says what is out of date, and fails
//	go run ./gateway/openapi/derive -write   writes it
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/getkin/kin-openapi/openapi3"

	"vendorapi/gateway/openapi"
)

func main() {
	write := flag.Bool("write", false, "write the files")
	dir := flag.String("dir", "gateway/openapi", "where they are")
	flag.Parse()
	if err := run(*dir, *write); err != nil {
		fmt.Fprintln(os.Stderr, "derive:", err)
		os.Exit(1)
	}
}

func run(dir string, write bool) error {
	files, err := derived()
	if err != nil {
		return err
	}
	var stale []error
	for name, content := range files {
		path := filepath.Join(dir, name)
		if write {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
			continue
		}
		if found, err := os.ReadFile(path); err != nil || !bytes.Equal(found, content) {
			stale = append(stale, fmt.Errorf("%s is out of date: go run ./gateway/openapi/derive -write", path))
		}
	}
	return errors.Join(stale...)
}

func derived() (map[string][]byte, error) {
	var documents []*openapi3.T
	for _, text := range [][]byte{openapi.Vendor, openapi.Fleet, openapi.Admin} {
		document, err := openapi3.NewLoader().LoadFromData(text)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	table, err := errorTable(documents)
	if err != nil {
		return nil, err
	}
	collection, err := postmanCollection(documents[0])
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"ERRORS.md": table, "postman.json": collection}, nil
}
