package results

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"

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
	script := &Script{Name: "a\x00b\xff", Problems: []string{"first\x1b[31m line\nsecond\xc3 <line> ]]>"}}
	script.CollectFailures()

	_, text := writePageAndJUnit(t, &Run{Scripts: []*Script{script}})

	for _, part := range []string{`name="ab?"`, `message="first[31m line"`, "second? &lt;line&gt; ]]&gt;"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
}
