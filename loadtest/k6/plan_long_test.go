//go:build long

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/k6/samples"
)

func names(chosen []script) (list []string) {
	for _, s := range chosen {
		list = append(list, s.name)
	}
	return list
}

// Every script is run, and every one that is to be run is there.
func TestScripts_AreTheFilesOfLoadtest(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "loadtest", "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, f := range files {
		there = append(there, strings.TrimSuffix(filepath.Base(f), ".js"))
	}
	planned := names(scripts)
	slices.Sort(planned)
	if !slices.Equal(there, planned) {
		t.Errorf("there are %v, planned are %v", there, planned)
	}
}

// Scripts need nothing from the network but the service.
func TestScripts_ImportOnlyWhatIsHere(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"loadtest/*.js", "loadtest/lib/*.js"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, f := range files {
			content, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(content)) {
				_, from, found := strings.Cut(line, " from '")
				if found && strings.HasPrefix(line, "import") && !strings.HasPrefix(from, "k6") && !strings.HasPrefix(from, "./") {
					t.Errorf("%s: %s", filepath.Base(f), strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"": strings.Join(names(scripts), ","), "steady": "steady", "ramp,burst": "burst,ramp", "soak,soak": "soak",
	} {
		chosen, err := choose(given)
		if got := strings.Join(names(chosen), ","); err != nil || got != want {
			t.Errorf("%q: %s, %v", given, got, err)
		}
	}
	if _, err := choose("steady,stedy"); err == nil || !strings.Contains(err.Error(), "stedy; there are burst, ") {
		t.Errorf("an unknown script: %v", err)
	}
}

func TestScript_Lengths(t *testing.T) {
	t.Parallel()
	s := script{setting: "DURATION", length: 40 * time.Second, about: time.Second}
	for scale, want := range map[float64]string{1: "DURATION=40s", 0.3: "DURATION=12s", 3: "DURATION=2m0s", 0.001: "DURATION=2s"} {
		if got := s.environment(scale); len(got) != 1 || got[0] != want {
			t.Errorf("scale %g: %v", scale, got)
		}
	}
	fixed := script{about: time.Minute}
	if fixed.environment(5) != nil || fixed.patience(5) != 4*time.Minute {
		t.Errorf("a fixed length: %v, %v", fixed.environment(5), fixed.patience(5))
	}
}

func TestScript_RaisesLimitsByItsFactor(t *testing.T) {
	t.Parallel()
	plain, raised := script{factor: 1}, script{factor: 10}
	if plain.limits() != nil {
		t.Errorf("the contract's limits are written out: %v", plain.limits())
	}
	orders, _ := raised.limits()["orders"].(map[string]any)
	burst, _ := orders["burst"].(map[string]int)
	if burst["count"] != 1200 || burst["seconds"] != 10 {
		t.Errorf("%v", raised.limits())
	}
	if got := raised.buckets()[0].limits; got[0].Count != 6000 || got[1].Count != 1200 || ordersBurst.Count != 120 {
		t.Errorf("%v", got)
	}
}

// run of requests to one endpoint, a millisecond apart, each answered at once.
func ofOneAccount(endpoint string, statuses ...int) (run samples.Run) {
	at := time.UnixMicro(1795284932714757)
	for _, status := range statuses {
		at = at.Add(time.Millisecond)
		run.Requests = append(run.Requests, samples.Request{Endpoint: endpoint, Account: "1", Status: status, Sent: at, Answered: at})
	}
	return run
}

func times(n, status int) (list []int) { return slices.Repeat([]int{status}, n) }

func TestJudgeLimits(t *testing.T) {
	t.Parallel()
	s := &script{factor: 1}
	for name, c := range map[string]struct {
		run  samples.Run
		held bool
	}{
		"exactly the burst":           {ofOneAccount("POST /orders", append(times(120, 201), 429)...), true},
		"one beyond the burst":        {ofOneAccount("POST /orders", append(times(120, 201), 422)...), false},
		"refused within the burst":    {ofOneAccount("POST /orders", append(times(119, 201), 429)...), false},
		"a 5xx may have been counted": {ofOneAccount("POST /orders", append(times(119, 201), 503, 429)...), true},
		"and may not":                 {ofOneAccount("POST /orders", append(times(120, 201), 503)...), true},
		"reads of one order":          {ofOneAccount("GET /orders/{id}", 200, 429, 429), true},
		"too many reads":              {ofOneAccount("GET unknown order", times(3001, 404)...), false},
		"too many cancellations":      {ofOneAccount("POST /orders/{id}/cancel", times(601, 409)...), false},
		"too many tokens":             {ofOneAccount("POST /token", times(61, 200)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := judgeLimits(s, &c.run)
			held := len(rows) > 0
			for _, r := range rows {
				held = held && r.Held
			}
			if held != c.held {
				t.Errorf("%+v", rows)
			}
		})
	}
	if rows := judgeLimits(s, &samples.Run{}); rows != nil {
		t.Errorf("limits of nothing: %+v", rows)
	}
	run := ofOneAccount("POST /orders", append(times(119, 201), 429)...)
	row := judgeLimits(s, &run)[1]
	if row.Limit != "120 in 10 s" || row.Admitted != 119 || row.Refused != 1 || row.Most != 119 || row.Wronged != 1 || row.Accounts != 1 {
		t.Errorf("%+v", row)
	}
}
