package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/loadtest/k6/results"
)

// newFakePlayer returns a player whose k6 is a shell script. The script has the folder of the run's files as $folder.
func newFakePlayer(t *testing.T, folder, shell string) *player {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k6")
	text := "#!/bin/sh\nfolder='" + folder + "'\n" + shell + "\n"

	// No process may be forked while the file is written: it would have the file open for writing until it has become
	// another program, and the script could not be started.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}

	return &player{k6: path, options: &options{duration: time.Second}, out: t.Output()}
}

func TestRunK6_SaysWhyARunProvesNothing(t *testing.T) {
	t.Parallel()

	const crossed = `{"metrics": {"vus": {"thresholds": {"value<5": {"ok": false}}}}}`
	for name, c := range map[string]struct {
		shell   string
		outages error
		says    string // empty: no problem
	}{
		"as it should":        {shell: "exit 0"},
		"levels crossed":      {shell: "exit 99"},
		"others crossed":      {shell: `echo '` + crossed + `' >$folder/steady.summary.json; exit 99`, says: "value<5 of vus"},
		"the script ended it": {shell: "echo first; echo no accounts; exit 108", says: "k6 ended the script: no accounts"},
		"k6 failed":           {shell: "echo no such output; exit 107", says: "k6 ended with exit status 107: no such output"},
		"k6 was killed":       {shell: "kill -9 $$", says: "k6 ended with signal: killed"},
		"an exception":        {shell: "echo boom source=stacktrace", says: "the script threw 1 exceptions"},
		"an outage failed":    {shell: "exit 0", outages: errors.New("redis did not start"), says: "not all outages were caused: redis did not start"},
	} {
		folder := t.TempDir()
		p := newFakePlayer(t, folder, c.shell)
		session := &session{outages: func(context.Context) ([]string, error) { return []string{"a note"}, c.outages }}

		outcome, err := p.runK6(t.Context(), &script{name: "steady"}, session, filesOf("steady", folder))

		if err != nil || (c.says == "") != (outcome.problem == "") || !strings.Contains(outcome.problem, c.says) {
			t.Errorf("%s: %+v, %v; want %q", name, outcome, err, c.says)
			continue
		}

		if !slices.Equal(outcome.notes, []string{"a note"}) {
			t.Errorf("%s: the notes of the outages are %q", name, outcome.notes)
		}
	}
}

func TestRunK6_AsksAnInterruptedK6ToEnd(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	p := newFakePlayer(t, folder, `
		trap 'echo asked; exit 105' INT
		echo begun
		while :; do sleep 0.05; done`)

	ctx, interrupt := context.WithCancel(t.Context())
	files := filesOf("steady", folder)
	log := filepath.Join(folder, files.Log)
	go func() {
		for ctx.Err() == nil {
			text, _ := os.ReadFile(log) // it may not be there yet
			if strings.Contains(string(text), "begun") {
				interrupt()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()

	outcome, err := p.runK6(ctx, &script{name: "steady"}, &session{}, files)

	if err != nil || outcome.problem != "" {
		t.Errorf("%+v, %v", outcome, err)
	}

	if lastLines(log, 1) != "asked" {
		t.Errorf("k6 was not asked to end: %s", lastLines(log, 8))
	}
}

func TestCommand_HasNoSecretInItsArguments(t *testing.T) {
	t.Setenv("MAKEFLAGS", "ACCOUNTS=geheim")
	t.Setenv("K6_OUT", "csv=a.csv,json=b.json")
	t.Setenv("DURATION", "90s")
	p := newFakePlayer(t, "", "")
	p.options.outputs = textList{"experimental-prometheus-rw"}
	session := &session{env: []string{"ACCOUNTS=geheim"}}

	cmd := p.command(t.Context(), &script{name: "mine", path: "mine.js"}, session, filesOf("mine", "runs"))

	arguments := strings.Join(cmd.Args, " ")
	if strings.Contains(arguments, "geheim") || !strings.HasSuffix(arguments, " --out experimental-prometheus-rw --out csv=a.csv --out json=b.json mine.js") {
		t.Error(arguments)
	}

	for setting, want := range map[string]bool{
		"ACCOUNTS=geheim":              true,
		"DURATION=90s":                 true,
		"DURATION=1s":                  false,
		"MAKEFLAGS=ACCOUNTS=geheim":    false,
		"K6_OUT=csv=a.csv,json=b.json": false,
	} {
		if slices.Contains(cmd.Env, setting) != want {
			t.Errorf("k6's environment has %s: %v", setting, !want)
		}
	}
}

func TestCheckDelay_AcceptsSlowWebhooksDuringOutages(t *testing.T) {
	t.Parallel()

	slow, quick := results.Percentiles{Count: 100, P95: longestDelay + 1}, results.Percentiles{Count: 100, P95: longestDelay}
	for _, c := range []struct {
		delay  results.Percentiles
		script script
		isLate bool
	}{
		{delay: slow, isLate: true},
		{delay: slow, script: script{needs: needs{Outages: true}}},
		{delay: quick},
		{delay: results.Percentiles{}},
	} {
		result := &results.Script{Webhooks: &results.Webhooks{Delay: c.delay}}

		checkDelay(&c.script, result)

		if (len(result.Problems) == 1) != c.isLate {
			t.Errorf("%+v, outages %v: problems %q", c.delay, c.script.needs.Outages, result.Problems)
		}
	}
}

func TestTidy_RemovesOnlySamplesOfAScriptThatHeld(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		keep     bool
		failures []string
		remains  bool
	}{
		{remains: false},
		{keep: true, remains: true},
		{failures: []string{"a level"}, remains: true},
	} {
		folder := t.TempDir()
		path := filepath.Join(folder, "steady.samples.json.gz")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}

		result := &results.Script{Failures: c.failures, Files: results.Files{Samples: []string{"steady.samples.json.gz"}}}
		p := &player{options: &options{keep: c.keep}}

		err := p.tidy(result, folder)

		_, missing := os.Stat(path)
		if err != nil || (missing == nil) != c.remains || (len(result.Files.Samples) == 1) != c.remains {
			t.Errorf("keep %v, failures %q: %v, %v, %q", c.keep, c.failures, err, missing, result.Files.Samples)
		}
	}
}

// fixedTarget plays with what a test gives it.
type fixedTarget struct {
	missing string
	play    func(context.Context) error // in place of a session
}

func (f fixedTarget) name() string              { return results.OwnSystems }
func (f fixedTarget) generator() string         { return "a test" }
func (f fixedTarget) settings() []string        { return nil }
func (f fixedTarget) missingFor(*script) string { return f.missing }
func (f fixedTarget) close()                    {}
func (f fixedTarget) withSession(ctx context.Context, _ *script, _ func(context.Context, *session) error) error {
	return f.play(ctx)
}

func TestPlayAll_StoresAnInterruptedRun(t *testing.T) {
	t.Setenv("DATA_DIR", t.TempDir())
	p := &player{options: &options{}, out: t.Output()}
	chosen := []*script{{name: "smoke"}, {name: "steady"}}
	count := 0
	target := fixedTarget{play: func(context.Context) error {
		count++
		return fmt.Errorf("gateway ended")
	}}

	err := p.playAll(t.Context(), target, chosen)

	if err == nil || err.Error() != "smoke: gateway ended" || count != 1 {
		t.Errorf("%v after %d scripts", err, count)
	}
	all, folderErr := runsFolder()
	if folderErr != nil {
		t.Fatal(folderErr)
	}
	stored, err := readRun(filepath.Join(all, "latest"))
	if err != nil || stored.Interrupted != "smoke: gateway ended" || stored.Passed() {
		t.Errorf("%+v, %v", stored, err)
	}
}

func TestPlayAll_OfWhatDidNotHoldIsAnError(t *testing.T) {
	t.Setenv("DATA_DIR", t.TempDir())
	p := &player{options: &options{}, out: t.Output()}

	err := p.playAll(t.Context(), fixedTarget{play: func(context.Context) error { return nil }}, nil)

	if err == nil || err.Error() != "not everything held" {
		t.Error(err)
	}
}

func TestChooseScripts_LeavesOutWhatATargetMisses(t *testing.T) {
	t.Parallel()

	p := newFakePlayer(t, "", `echo '{"totalDuration": "40s", "ext": {"loadtest": {"needs": {}}}}'`)
	target := fixedTarget{missing: "a fleet"}

	_, err := p.chooseScripts(t.Context(), target)
	if err == nil || !strings.Contains(err.Error(), "nothing to play") {
		t.Error(err)
	}

	p.options.scripts = "smoke,steady"
	named, err := p.chooseScripts(t.Context(), target)
	if err != nil || len(named) != 2 || named[1].name != "steady" || named[1].atMost != 40*time.Second {
		t.Errorf("scripts that are named are played in any case: %+v, %v", named, err)
	}

	p.options.scripts = "smoke,smoke"
	if _, err := p.chooseScripts(t.Context(), target); err == nil || !strings.Contains(err.Error(), "the same name") {
		t.Error(err)
	}
}
