package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences, as SPDX names them, that ask for no more than their
// text beside the programs. A copyleft one, of files even, is a decision that
// somebody has to take: it is not added here in passing.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unlicense", "Zlib"}

// enough is how much of a text must be that of known licences, in percent; the
// rest are names, years and headings. Of a text that holds several licences with
// long notices between them less is recognised, and each of its licences is judged.
const enough = 60

// judge finds the licences in the texts.
func (w *work) judge() error {
	if w.declared != "" && slices.Contains(allowed, w.declared) {
		w.licences = []string{w.declared}
		return nil
	}
	if len(w.texts) == 0 {
		return fmt.Errorf("%s %s: no text of a licence", w.name, w.version)
	}
	var faults []error
	for _, t := range w.texts {
		if grant(t.file) {
			continue
		}
		found, percent := recognise(t.content)
		if len(found) == 0 || percent < enough {
			faults = append(faults, fmt.Errorf("%s %s: %s is no licence that is known (%.0f %% of %v)", w.name, w.version, t.file, percent, found))
		}
		for _, id := range found {
			if !slices.Contains(allowed, id) {
				faults = append(faults, fmt.Errorf("%s %s: %s is under %s, which is not allowed", w.name, w.version, t.file, id))
			}
		}
		w.licences = append(w.licences, found...)
	}
	if len(w.licences) == 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s %s: no licence beside its notices", w.name, w.version))
	}
	slices.Sort(w.licences)
	w.licences = slices.Compact(w.licences)
	return errors.Join(faults...)
}

// recognise are the licences in a text, and how much of it they are, in percent.
func recognise(content []byte) (found []string, percent float64) {
	coverage := licensecheck.Scan(content)
	for _, m := range coverage.Match {
		if !m.IsURL {
			found = append(found, m.ID)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), coverage.Percent
}

// grant tells files that go with a licence and are none: notices, and what Google
// adds to its own about patents.
func grant(file string) bool {
	name := strings.ToUpper(path.Base(file))
	return strings.HasPrefix(name, "NOTICE") || strings.HasPrefix(name, "PATENTS")
}
