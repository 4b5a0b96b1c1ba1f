package results

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
)

// writePageAndJUnit makes both from a run, as the driver does. Both must always succeed, and
// the JUnit file must be well-formed.
func writePageAndJUnit(t *testing.T, run *Run) (page, junit string) {
	t.Helper()
	var html, cases bytes.Buffer
	if err := WritePage(&html, run, run); err != nil {
		t.Fatal(err)
	}
	if err := WriteJUnit(&cases, run); err != nil {
		t.Fatal(err)
	}

	decoder := xml.NewDecoder(bytes.NewReader(cases.Bytes()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return html.String(), cases.String()
		}
		if err != nil {
			t.Fatalf("%v: %s", err, cases.String())
		}
	}
}
