package results

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// WriteJUnit writes the run in the format of JUnit, which CI systems read: a suite for each
// script, and in it a case for the run of k6 itself, for each service level, limit and check, for the
// webhooks, and for each program whose memory is checked. A script that was interrupted has an
// additional case with an error, and a run that was interrupted an additional suite with one.
func WriteJUnit(w io.Writer, run *Run) error {
	document := junitDocument{Name: "load test"}
	for _, script := range run.Scripts {
		document.Suites = append(document.Suites, suiteOf(script))
	}

	if run.Interrupted != "" {
		document.Suites = append(document.Suites, interruptedSuite(run.Interrupted))
	}

	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write the JUnit file: %w", err)
	}

	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("write the JUnit file: %w", err)
	}

	return nil
}

type junitDocument struct {
	XMLName xml.Name     `xml:"testsuites"`
	Name    string       `xml:"name,attr"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"` // seconds
	Timestamp string      `xml:"timestamp,attr,omitempty"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Suite   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Error   *junitMessage `xml:"error"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// messageOf returns a message; its attribute is the text's first line.
func messageOf(text string) *junitMessage {
	text = printable(text)
	firstLine, _, _ := strings.Cut(text, "\n")

	return &junitMessage{Message: firstLine, Text: text}
}

// printable replaces bytes that are no UTF-8 and removes control characters, which XML cannot hold.
func printable(text string) string {
	valid := strings.ToValidUTF8(text, "?")

	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, valid)
}

// suiteOf returns the suite of a script.
func suiteOf(script *Script) junitSuite {
	suite := junitSuite{
		Name: printable(script.Name),
		Time: fmt.Sprintf("%.3f", script.TookSeconds),
	}

	if !script.Began.IsZero() {
		suite.Timestamp = script.Began.UTC().Format("2006-01-02T15:04:05")
	}

	if script.Interrupted != "" {
		suite.addError("the script is played to its end", script.interruption())
	}

	suite.add("k6 ran and left its results", strings.Join(script.runFailures(), "\n"))
	for i := range script.Levels {
		level := &script.Levels[i]
		failure := ""
		if !level.Held() {
			failure = level.failure()
		}
		suite.add(fmt.Sprintf("%s (%s of %s)", level.Words, level.Threshold, level.Metric), failure)
	}

	for i := range script.Limits {
		row := &script.Limits[i]
		failure := ""
		if !row.Held {
			failure = row.failure()
		}
		suite.add(fmt.Sprintf("limit of %s: %s", row.Bucket, row.Limit()), failure)
	}

	for _, check := range script.Checks {
		failure := ""
		if check.Fails > 0 {
			failure = check.failure()
		}
		suite.add("check: "+check.Name, failure)
	}

	suite.addWebhooks(script.Webhooks)
	for _, program := range script.boundedPrograms() {
		suite.add("memory of the "+program.Name, memoryFailure(program))
	}

	return suite
}

// add adds a case. It failed unless the failure is empty.
func (s *junitSuite) add(name, failure string) {
	added := junitCase{Suite: s.Name, Name: printable(name)}
	if failure != "" {
		added.Failure = messageOf(failure)
		s.Failures++
	}

	s.Cases = append(s.Cases, added)
	s.Tests++
}

// addError adds a case that could not be decided.
func (s *junitSuite) addError(name, why string) {
	s.Cases = append(s.Cases, junitCase{Suite: s.Name, Name: name, Error: messageOf(why)})
	s.Tests++
	s.Errors++
}

// addWebhooks adds the case of the webhooks, which is skipped if they were not checked.
func (s *junitSuite) addWebhooks(webhooks *Webhooks) {
	const name = "webhooks"
	if webhooks.checked() {
		s.add(name, strings.Join(webhooks.failures(), "\n"))
		return
	}

	s.Cases = append(s.Cases, junitCase{Suite: s.Name, Name: name, Skipped: messageOf(webhooks.Sentence())})
	s.Tests++
	s.Skipped++
}

// interruptedSuite returns the suite that says why a run was interrupted.
func interruptedSuite(why string) junitSuite {
	const name = "load test"

	return junitSuite{
		Name:   name,
		Tests:  1,
		Errors: 1,
		Time:   "0",
		Cases:  []junitCase{{Suite: name, Name: "all scripts are played", Error: messageOf("interrupted: " + why)}},
	}
}
