package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
)

// module is the path of the project's own packages.
const module = "vendorapi"

// verifyRun reads what `go test -json` wrote and refuses a test of the table that
// has not passed in it, or has failed once among several times.
func verifyRun(in io.Reader, tests []heldBy) error {
	type key struct{ pkg, test string }
	passed, other := map[key]bool{}, map[key]string{}
	decoder := json.NewDecoder(in)
	for {
		var event struct{ Action, Package, Test string }
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("no output of go test -json: %w", err)
		}
		k := key{event.Package, event.Test}
		switch event.Action {
		case "pass":
			passed[k] = true
		case "fail", "skip":
			other[k] = event.Action
		}
	}
	var faults []error
	for _, t := range tests {
		k := key{path.Join(module, t.folder), t.name}
		if action := other[k]; action != "" {
			faults = append(faults, fmt.Errorf("%s in %s: %s", t.name, t.folder, action))
		} else if !passed[k] {
			faults = append(faults, fmt.Errorf("%s in %s was not run, or did not end", t.name, t.folder))
		}
	}
	return errors.Join(faults...)
}
