package results

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// contentSum identifies the content of a file.
type contentSum [sha256.Size]byte

// contents are the names of the files that were read, by their content.
type contents map[contentSum]string

// add adds a file. It returns a problem if another file has the same content, and "" if none has.
func (c contents) add(sum contentSum, name string) string {
	earlier, isKnown := c[sum]
	if isKnown {
		return fmt.Sprintf("the files %s and %s have the same content: one part was given twice, and another is missing", earlier, name)
	}

	c[sum] = name

	return ""
}

// checkParts adds a problem for each sign that the files are not those of one whole run: that a part
// of a distributed run is missing, was given twice, or belongs to another run.
func (s *Script) checkParts(files ScriptFiles, samples *sampleSet, summaries []summary) {
	hasBoth := len(files.Samples) > 0 && len(files.Summaries) > 0
	if hasBoth && len(files.Samples) != len(files.Summaries) {
		s.AddProblem("the number of summaries is %d and that of files of samples %d: each part of a run leaves one of both",
			len(files.Summaries), len(files.Samples))
	}

	uncovered := segmentsProblem(summaries)
	if uncovered != "" {
		s.AddProblem("%s", uncovered)
	}

	// A file that is missing or cut off explains why requests are missing.
	if len(s.Problems) == 0 {
		s.checkRequestCount(samples, summaries)
	}
}

// checkRequestCount adds a problem if the samples and the summaries do not hold the same number of
// requests. k6 counts every request in both, those to the empty path too.
func (s *Script) checkRequestCount(samples *sampleSet, summaries []summary) {
	counted := 0.0
	for i := range summaries {
		counted += summaries[i].Metrics.HTTPRequests.Values.Count
	}

	if counted != float64(len(samples.requests)) {
		s.AddProblem("the samples hold %d requests and the summaries %.0f: a file is missing, was cut off, or belongs to another run",
			len(samples.requests), counted)
	}
}

// segment is the part of a run that one k6 plays, such as the first half.
type segment struct {
	from, to *big.Rat // 0 is the beginning of the whole, 1 its end
}

// segmentText matches a segment such as "0:1/2" or "0.25:1".
var segmentText = regexp.MustCompile(`^(\d{1,9}(?:[./]\d{1,9})?):(\d{1,9}(?:[./]\d{1,9})?)$`)

// segmentOf returns the segment of a text; false if the text is none. An empty text is the whole.
func segmentOf(text string) (parsed segment, valid bool) {
	if text == "" {
		return segment{from: big.NewRat(0, 1), to: big.NewRat(1, 1)}, true
	}

	match := segmentText.FindStringSubmatch(text)
	if match == nil {
		return segment{}, false
	}

	from, isFrom := new(big.Rat).SetString(match[1])
	to, isTo := new(big.Rat).SetString(match[2])
	if !isFrom || !isTo {
		return segment{}, false
	}

	return segment{from: from, to: to}, true
}

// segmentsProblem says how the parts' segments fail to cover the whole run exactly once; empty if
// they cover it, and if no part names a segment.
func segmentsProblem(summaries []summary) string {
	var segments []segment
	var names []string
	isSegmented := false
	for i := range summaries {
		text := summaries[i].Segment
		parsed, valid := segmentOf(text)
		if !valid {
			return fmt.Sprintf("a summary has the segment %q, which cannot be read", text)
		}

		name := text
		if text == "" {
			name = "the whole"
		}

		isSegmented = isSegmented || text != ""
		segments = append(segments, parsed)
		names = append(names, name)
	}

	if !isSegmented {
		return ""
	}

	slices.SortFunc(segments, func(a, b segment) int { return a.from.Cmp(b.from) })
	hasGap, hasOverlap := false, false
	covered := new(big.Rat) // up to where the segments so far cover the whole
	for _, s := range segments {
		hasGap = hasGap || s.from.Cmp(covered) > 0
		hasOverlap = hasOverlap || s.from.Cmp(covered) < 0
		if s.to.Cmp(covered) > 0 {
			covered = s.to
		}
	}

	list := strings.Join(names, ", ")
	isCovered := !hasGap && covered.Cmp(big.NewRat(1, 1)) == 0
	switch {
	case !isCovered:
		return "the parts cover only " + list
	case hasOverlap:
		return "the parts cover something more than once: " + list
	default:
		return ""
	}
}
