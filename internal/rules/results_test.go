package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestVerifyRun_WantsEveryNamedTestToHavePassed(t *testing.T) {
	tests := []heldBy{{"gateway", "gateway/x_test.go", "TestX", nil}, {"worker", "worker/y_test.go", "TestX", nil}}
	event := func(action, pkg, test string) string {
		return `{"Time":"2026-11-21T12:00:00Z","Action":"` + action + `","Package":"vendorapi/` + pkg + `","Test":"` + test + `","Elapsed":0.1}` + "\n"
	}
	other := event("pass", "worker", "TestX")
	for name, c := range map[string]struct{ run, want string }{
		"both passed":               {event("run", "gateway", "TestX") + event("pass", "gateway", "TestX") + other, ""},
		"beside others that failed": {event("pass", "gateway", "TestX") + other + event("fail", "gateway", "TestY"), ""},
		"failed":                    {event("fail", "gateway", "TestX") + other, "TestX in gateway: fail"},
		"skipped":                   {event("skip", "gateway", "TestX") + other, "TestX in gateway: skip"},
		"failed once of two":        {event("pass", "gateway", "TestX") + event("fail", "gateway", "TestX") + other, "TestX in gateway: fail"},
		"passed in another package": {other, "TestX in gateway was not run"},
		"only a subtest passed":     {event("pass", "gateway", "TestX/a") + other, "TestX in gateway was not run"},
		"never ended":               {event("run", "gateway", "TestX") + event("output", "gateway", "TestX") + other, "TestX in gateway was not run, or did not end"},
		"nothing":                   {"", "TestX in worker was not run"},
		"plain output":              {"ok  \tvendorapi/gateway\t1.2s\n", "no output of go test -json"},
	} {
		err := verifyRun(strings.NewReader(c.run), tests)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// The go command's own output, of a run in which one test passes and one fails.
func TestVerifyRun_ReadsWhatGoTestWrites(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module "+module+"\n\ngo 1.26\n")
	write(t, filepath.Join(root, "p", "x_test.go"), "package p\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n\nfunc TestBad(t *testing.T) { t.Fail() }\n")
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err == nil {
		t.Fatalf("the failing test did not fail: %s", out)
	}
	write(t, filepath.Join(root, "run.json"), string(out))
	good, bad := heldBy{"p", "p/x_test.go", "TestGood", nil}, heldBy{"p", "p/x_test.go", "TestBad", nil}
	if err := verifyFile(filepath.Join(root, "run.json"), []heldBy{good}); err != nil {
		t.Error(err)
	}
	if err := verifyFile(filepath.Join(root, "run.json"), []heldBy{good, bad}); err == nil || !strings.Contains(err.Error(), "TestBad in p: fail") {
		t.Errorf("got %v", err)
	}
	if err := verifyFile(filepath.Join(root, "none.json"), nil); err == nil {
		t.Error("a file that is not there")
	}
}
