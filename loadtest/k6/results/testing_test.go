package results

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"testing"
)

// readSamples reads the text of one file of samples.
func readSamples(r io.Reader) (*sampleSet, error) {
	samples := newSamples()
	if err := samples.read(r, "samples"); err != nil {
		return nil, err
	}

	return samples, nil
}

// readSampleFiles reads the files of one run.
func readSampleFiles(paths ...string) (*sampleSet, error) {
	samples := newSamples()
	for _, path := range paths {
		if err := samples.readFile(path); err != nil {
			return nil, fmt.Errorf("read k6's samples in %s: %w", path, err)
		}
	}

	return samples, nil
}

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
