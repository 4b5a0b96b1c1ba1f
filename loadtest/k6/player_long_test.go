//go:build long

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// These tests run the real k6, which takes minutes to compile.

// newTestPlayer plays with the pinned k6, and shows what it prints with the test.
func newTestPlayer(t *testing.T, o *options) *player {
	t.Helper()
	k6, err := harness.K6(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlayer(k6, o)
	if err != nil {
		t.Fatal(err)
	}

	p.out = t.Output()

	return p
}

// playOne plays the scripts that the options choose, of which there is one, and returns its result and folder.
func playOne(t *testing.T, p *player, target target) (*results.Script, string) {
	t.Helper()
	chosen, err := p.chooseScripts(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}

	if len(chosen) != 1 {
		t.Fatalf("%d scripts were chosen, want one", len(chosen))
	}

	folder := t.TempDir()
	result, err := p.play(t.Context(), target, chosen[0], folder)
	if err != nil {
		t.Fatal(err)
	}

	return result, folder
}

func TestPlay_SmokeHoldsOnASystemOfItsOwn(t *testing.T) {
	t.Parallel()

	p := newTestPlayer(t, &options{scripts: "smoke", duration: 1, keep: true})
	target := &ownSystems{bin: testserver.Programs(t)}

	result, folder := playOne(t, p, target)

	if !result.Passed() {
		t.Errorf("smoke.js did not hold: %q", result.Failures)
	}

	// Two accounts: a store each, a delivered order with five changes, a cancelled one with one or two.
	if w := result.Webhooks; w.How != results.WebhooksByReceiver || w.Orders != 4 || w.Stores != 2 || w.Received != w.Expected || w.Expected < 14 {
		t.Errorf("webhooks %+v", w)
	}

	for _, name := range []string{"smoke.samples.json.gz", "smoke.summary.json", "smoke.log"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}

	run := &results.Run{Target: target.name(), Scripts: []*results.Script{result}}
	if err := store(folder, run, nil); err != nil {
		t.Fatal(err)
	}

	assertNoSecret(t, folder)
}

func TestChooseScripts_RefusesWhatCannotBePlayed(t *testing.T) {
	t.Parallel()

	raw := filepath.Join(t.TempDir(), "raw.js")
	if err := os.WriteFile(raw, []byte("export default function () {}"), 0o600); err != nil {
		t.Fatal(err)
	}

	broken := filepath.Join(t.TempDir(), "broken.js")
	if err := os.WriteFile(broken, []byte("export default function ("), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		options options
		says    string
	}{
		{options{scripts: "steady,stedy"}, `"stedy" is none of smoke`},
		{options{own: textList{raw}}, "has no plan()"},
		{options{own: textList{broken}}, "k6 cannot read"},
		{options{own: textList{raw + "x"}}, "no such file"},
	} {
		c.options.duration = 1
		p := newTestPlayer(t, &c.options)
		p.out = io.Discard

		_, err := p.chooseScripts(t.Context(), &ownSystems{})

		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.options, err, c.says)
		}
	}
}

// Systems of the driver's own have accounts of their own. Those of another system may be in the environment.
func TestChooseScripts_OfOwnSystemsNeedsNoAccountsOfTheEnvironment(t *testing.T) {
	t.Setenv("ACCOUNTS", filepath.Join(t.TempDir(), "no-such-file.json"))
	p := newTestPlayer(t, &options{scripts: "smoke", duration: 1})

	chosen, err := p.chooseScripts(t.Context(), &ownSystems{})

	if err != nil || len(chosen) != 1 {
		t.Errorf("%v: %v", chosen, err)
	}
}

// assertNoSecret looks for what begins like a client secret or a token in all files of a folder.
func assertNoSecret(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}

	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}

		text := string(content)
		if strings.HasSuffix(entry.Name(), ".gz") {
			text = unzipped(t, content)
		}

		for _, secret := range []string{"vas_", "whsec_", "eyJhbGci"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has a secret: %s…", entry.Name(), secret)
			}
		}
	}
}
