package results

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/harness"
)

func TestWriteJUnit(t *testing.T) {
	t.Parallel()

	run := fullRun(t)
	run.Interrupted = "the gateway ended"
	run.Scripts[0].Webhooks = &Webhooks{How: WebhooksNotChecked, Why: "no receiver"}

	_, text := writePageAndJUnit(t, run)

	var document junitDocument
	if err := xml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}

	ramp, burst, interrupted := document.Suites[0], document.Suites[1], document.Suites[2]
	if ramp.Tests != 8 || ramp.Failures != 0 || ramp.Skipped != 1 {
		t.Errorf("ramp: %+v", ramp)
	}
	if burst.Tests != 8 || burst.Failures != 6 || burst.Time != "63.000" || burst.Timestamp != "2026-11-21T12:00:00" {
		t.Errorf("burst: %+v", burst)
	}
	if interrupted.Errors != 1 || interrupted.Cases[0].Error.Message != "interrupted: the gateway ended" {
		t.Errorf("interrupted: %+v", interrupted)
	}

	// Every failure of the script is in some case.
	for _, failure := range run.Scripts[1].Failures {
		found := false
		for _, c := range burst.Cases {
			found = found || c.Failure != nil && strings.Contains(c.Failure.Text, failure)
		}
		if !found {
			t.Errorf("%q is in no case", failure)
		}
	}
}

func TestWriteJUnit_OfAnInterruptedScript(t *testing.T) {
	t.Parallel()

	script := buildRamp(t)
	script.Interrupted = "Ctrl-C"
	script.CollectFailures()

	_, text := writePageAndJUnit(t, &Run{Scripts: []*Script{script}})

	var document junitDocument
	if err := xml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}

	suite := document.Suites[0]
	if suite.Errors != 1 || suite.Failures != 0 || suite.Cases[0].Error == nil || suite.Cases[0].Error.Message != "interrupted: Ctrl-C" || suite.Tests != len(suite.Cases) {
		t.Errorf("suite: %+v", suite)
	}
}

// A script that fails only by the memory of a program has a case that fails, too.
func TestWriteJUnit_OfMemory(t *testing.T) {
	t.Parallel()

	script := buildRamp(t)
	script.TookSeconds = leastForMemory.Seconds()
	script.Programs = []harness.Watched{
		{Name: "gateway", AfterThird: 60e6, Now: 70e6},
		{Name: "worker", AfterThird: 60e6, Now: 200e6},
		{Name: "redis-server", AfterThird: 60e6, Now: 900e6},
	}

	script.CollectFailures()

	_, text := writePageAndJUnit(t, &Run{Scripts: []*Script{script}})

	var document junitDocument
	if err := xml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}

	suite := document.Suites[0]
	cases := suite.Cases[len(suite.Cases)-2:]
	if suite.Failures != 1 || cases[0].Name != "memory of the gateway" || cases[0].Failure != nil || cases[1].Name != "memory of the worker" {
		t.Fatalf("suite: %+v", suite)
	}

	want := "the memory of the worker grew from 60 MB after a third of the time to 200 MB at the end"
	if cases[1].Failure.Message != want || !slices.Equal(script.Failures, []string{want}) {
		t.Errorf("the case says %q, the script %q", cases[1].Failure.Message, script.Failures)
	}
}

// Names and problems can hold any bytes: a part of them is what servers have sent.
func TestWriteJUnit_IsValidXML(t *testing.T) {
	t.Parallel()

	script := &Script{
		Name: "a\x00b\xff", Problems: []string{"first\x1b[31m line\nsecond\xc3 <line> ]]>\tend"},
		Checks: []Check{{Name: "c\x1b[0m"}},
	}

	script.CollectFailures()

	_, text := writePageAndJUnit(t, &Run{Scripts: []*Script{script}})

	for _, part := range []string{`name="ab?"`, `message="first[31m line"`, "second? &lt;line&gt; ]]&gt;&#x9;end", `name="check: c[0m"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}

	if !strings.HasPrefix(text, xml.Header) {
		t.Errorf("there is no XML declaration in %s", text)
	}
}

// Readers take a timestamp as UTC. A script that sent nothing has none.
func TestWriteJUnit_Timestamp(t *testing.T) {
	t.Parallel()

	istanbul := time.FixedZone("UTC+3", 3*3600)

	for began, want := range map[time.Time]string{
		start.In(istanbul): ` timestamp="2026-11-21T12:00:00"`,
		{}:                 "",
	} {
		_, text := writePageAndJUnit(t, &Run{Scripts: []*Script{{Name: "x", Began: began}}})

		hasTimestamp := strings.Contains(text, "timestamp=")
		if hasTimestamp != (want != "") || !strings.Contains(text, want) {
			t.Errorf("began %v: %s", began, text)
		}
	}
}

// A full disk is no success, at whatever byte it is found.
func TestWrite_ReportsWhatCannotBeWritten(t *testing.T) {
	t.Parallel()

	run := &Run{Scripts: []*Script{{Name: "x"}}}
	comparison := Compare(run, run, 0)

	for name, write := range map[string]func(io.Writer) error{
		"the page":       func(w io.Writer) error { return WritePage(w, run, nil) },
		"the JUnit file": func(w io.Writer) error { return WriteJUnit(w, run) },
		"the comparison": comparison.WriteTable,
	} {
		for _, room := range []int{0, 50} {
			err := write(&fullDisk{room: room})
			if !errors.Is(err, errFull) {
				t.Errorf("%s, after %d bytes: the error is %v", name, room, err)
			}
		}
	}

	if err := run.WriteFile(filepath.Join(t.TempDir(), "absent", "result.json")); err == nil {
		t.Error("a result was written into a folder that does not exist")
	}
}

// errFull is what a fullDisk answers.
var errFull = errors.New("no space left")

// fullDisk takes so many bytes and no more.
type fullDisk struct{ room int }

func (d *fullDisk) Write(content []byte) (int, error) {
	if len(content) > d.room {
		return 0, errFull
	}
	d.room -= len(content)

	return len(content), nil
}
