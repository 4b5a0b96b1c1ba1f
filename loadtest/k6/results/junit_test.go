package results

import (
	"encoding/xml"
	"strings"
	"testing"
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

// Names and problems can hold any bytes: a part of them is what servers have sent.
func TestWriteJUnit_IsValidXML(t *testing.T) {
	t.Parallel()
	script := &Script{Name: "a\x00b\xff", Problems: []string{"first\x1b[31m line\nsecond\xc3 <line> ]]>"}}
	script.CollectFailures()

	_, text := writePageAndJUnit(t, &Run{Scripts: []*Script{script}})

	for _, part := range []string{`name="ab?"`, `message="first[31m line"`, "second? &lt;line&gt; ]]&gt;"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
}
