//go:build long

// Package lib_test runs the k6 library, in the real k6, against a Vendor API that misbehaves.
//
// Each test starts k6 with a script of testdata. What the scripts find is written with
// console.log, as one line of JSON each, and read here from k6's log.
package lib_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"vendorapi/loadtest/harness"
)

// How k6 ends.
const (
	exitHeld             = 0
	exitLevelsNotHeld    = 99
	exitInvalidConfig    = 104
	exitScriptException  = 107
	exitAborted          = 108
	mostRunsAtOnce       = 3
	noteMarker           = "NOTE "
	recognisableSecret   = "secret-that-nobody-may-see"
	recognisableClientID = "client-of-the-test"
)

// k6Path returns the path of k6, which is compiled where it is missing.
var k6Path = sync.OnceValues(func() (string, error) {
	return harness.K6(context.Background(), os.Stderr)
})

// turns bounds how many k6 run at once, so that the machine stays usable.
var turns = make(chan struct{}, mostRunsAtOnce)

// settings are the environment of a run of k6.
type settings map[string]string

// run is what one run of k6 left.
type run struct {
	exit   int
	stdout string
	log    []logLine
	rawLog string

	// levels are those of the file that SUMMARY names, by metric and threshold; nil without it.
	levels  map[string]levelResult
	summary string

	// files are the texts of --summary-export and --out json.
	export  string
	samples string
}

// logLine is a line of k6's log.
type logLine struct {
	Level  string `json:"level"`
	Msg    string `json:"msg"`
	Error  string `json:"error"`
	Source string `json:"source"`
}

// levelResult is how SUMMARY shows a service level.
type levelResult struct {
	Metric    string  `json:"metric"`
	Threshold string  `json:"threshold"`
	Samples   float64 `json:"samples"`
	Measured  string  `json:"measured"`
	Held      bool    `json:"held"`
}

// play runs a script of testdata to its end.
func play(t *testing.T, script string, env settings, args ...string) *run {
	t.Helper()
	k6, err := k6Path()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	summary := filepath.Join(dir, "summary.json")
	export := filepath.Join(dir, "export.json")
	samples := filepath.Join(dir, "samples.json")
	arguments := []string{
		"run", "--quiet", "--no-color", "--no-usage-report", "--log-format", "json", "--address", "",
		"--summary-export", export, "--out", "json=" + samples,
	}

	arguments = append(arguments, args...)
	arguments = append(arguments, filepath.Join("testdata", script))

	// The environment is only what the test says, so that nothing of this machine changes a run.
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), k6, arguments...)
	cmd.Env = []string{"HOME=" + dir, "GOGC=400", "SUMMARY=" + summary}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}

	cmd.Stdout = &stdout
	cmd.Stderr = &stderr

	turns <- struct{}{}
	err = cmd.Run()
	<-turns

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run k6: %v", err)
	}

	r := &run{
		exit:    cmd.ProcessState.ExitCode(),
		stdout:  stdout.String(),
		rawLog:  stderr.String(),
		log:     logLines(t, stderr.Bytes()),
		summary: textOf(summary),
		export:  textOf(export),
		samples: textOf(samples),
	}

	r.levels = levelsOf(t, r.summary)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("k6 ended with %d\n%s\n%.5000s", r.exit, r.stdout, r.rawLog)
		}
	})

	return r
}

// textOf returns the text of a file, which is empty for one that does not exist.
func textOf(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

func logLines(t *testing.T, log []byte) []logLine {
	t.Helper()
	var lines []logLine
	for text := range bytes.Lines(log) {
		var line logLine
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("a line of k6's log: %v: %s", err, text)
		}
		lines = append(lines, line)
	}

	return lines
}

func levelsOf(t *testing.T, summary string) map[string]levelResult {
	t.Helper()
	if summary == "" {
		return nil
	}

	var found struct {
		Levels []levelResult `json:"levels"`
	}
	if err := json.Unmarshal([]byte(summary), &found); err != nil {
		t.Fatalf("SUMMARY: %v: %s", err, summary)
	}

	levels := make(map[string]levelResult)
	for _, l := range found.Levels {
		levels[l.Metric+" "+l.Threshold] = l
	}

	return levels
}

// notes decodes what the script noted, in its order.
func notes[T any](t *testing.T, r *run) []T {
	t.Helper()

	var found []T
	for _, line := range r.log {
		text, isNote := strings.CutPrefix(line.Msg, noteMarker)
		if !isNote {
			continue
		}

		var note T
		if err := json.Unmarshal([]byte(text), &note); err != nil {
			t.Fatalf("a note of the script: %v: %s", err, text)
		}

		found = append(found, note)
	}

	return found
}

// messages returns the log's messages of a level, such as "error".
func (r *run) messages(level string) []string {
	var found []string
	for _, line := range r.log {
		if line.Level == level {
			found = append(found, line.Msg+line.Error)
		}
	}
	return found
}

// requireCount fails the test unless there are as many of something as wanted.
func requireCount[T int | float64](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v %s, want %v", got, what, want)
	}
}

// requireExit fails the test unless k6 ended so.
func (r *run) requireExit(t *testing.T, want int) {
	t.Helper()
	if r.exit != want {
		t.Errorf("k6 ended with %d, want %d", r.exit, want)
	}
}

// requireNoException fails the test if the script or the library threw.
func (r *run) requireNoException(t *testing.T) {
	t.Helper()
	if strings.Contains(r.rawLog, "TypeError") || strings.Contains(r.rawLog, "script exception") {
		t.Error("the script threw")
	}
}

// requireLevel fails the test unless a service level was measured and held, or not, as expected.
func (r *run) requireLevel(t *testing.T, level string, held bool) {
	t.Helper()
	l, isThere := r.levels[level]
	if !isThere {
		t.Errorf("there is no level %q", level)
		return
	}

	if l.Samples == 0 || l.Held != held {
		t.Errorf("level %q: %v samples, held %v, want %v", level, l.Samples, l.Held, held)
	}
}

// requireNotMeasured fails the test unless the level is said to have no samples, in print and in SUMMARY.
func (r *run) requireNotMeasured(t *testing.T, level, words string) {
	t.Helper()
	l, isThere := r.levels[level]
	if !isThere || l.Held || l.Samples != 0 || l.Measured != "not measured" {
		t.Errorf("level %q: %+v", level, l)
	}
	if !strings.Contains(r.stdout, words+": not measured") {
		t.Errorf("the summary does not say that %q was not measured", words)
	}
}

// requireAborted fails the test unless k6 was aborted in setup() with this reason, said once, and
// printed nothing else.
func (r *run) requireAborted(t *testing.T, reason string) {
	t.Helper()
	r.requireExit(t, exitAborted)
	r.requireNoException(t)
	if r.stdout != "" {
		t.Errorf("there is a summary of nothing: %s", r.stdout)
	}

	said := r.messages("error")
	if len(said) != 1 || !strings.Contains(said[0], reason) {
		t.Errorf("the reason is not said, or not once: %q, want %q", said, reason)
	}
}

// counter returns the sum of a metric's samples in the output of --out json, of those samples that
// have all the tags.
func (r *run) counter(t *testing.T, metric string, tags settings) float64 {
	t.Helper()
	sum := 0.0
	for _, s := range r.samplesOf(t, metric) {
		hasAll := true
		for name, value := range tags {
			hasAll = hasAll && s.Tags[name] == value
		}
		if hasAll {
			sum += s.Value
		}
	}

	return sum
}

// sample is a sample of --out json.
type sample struct {
	Value    float64           `json:"value"`
	Tags     map[string]string `json:"tags"`
	Metadata map[string]string `json:"metadata"`
}

func (r *run) samplesOf(t *testing.T, metric string) []sample {
	t.Helper()

	var found []sample
	for text := range strings.Lines(r.samples) {
		var line struct {
			Type   string `json:"type"`
			Metric string `json:"metric"`
			Data   sample `json:"data"`
		}

		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("a line of the samples: %v: %s", err, text)
		}

		if line.Type == "Point" && line.Metric == metric {
			found = append(found, line.Data)
		}
	}

	return found
}

// contains reports whether some message contains the text.
func contains(messages []string, text string) bool {
	return slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, text) })
}
