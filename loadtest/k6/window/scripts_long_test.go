//go:build long

package window

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// jsRequest and jsWindow are what judge of lib/window.js takes.
type jsRequest struct {
	Sent     int64 `json:"sent"`
	Answered int64 `json:"answered"`
	Admitted bool  `json:"admitted"`
}

type jsWindow struct {
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"`
}

// The scripts judge by the same rules. Where node is not installed the test says
// so; nothing here depends on it.
func TestJudge_AgreesWithTheScripts(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("node is not installed here: lib/window.js was not run")
		return
	}
	source, err := os.ReadFile(filepath.Join("..", "..", "lib", "window.js"))
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(t.TempDir(), "window.mjs")
	if err := os.WriteFile(module, source, 0o600); err != nil {
		t.Fatal(err)
	}
	limit := Limit{Count: 5, Span: 100 * time.Millisecond}
	for allowed := 3; allowed <= 7; allowed++ {
		requests := hammer(limit, allowed)
		v := Judge(requests, []Limit{limit})
		got := runJS(t, node, module, requests, limit)
		if got.Most[0] != v.Most[0] || got.Wronged != v.Wronged || (got.Beyond > 0) != (v.Most[0] > limit.Count) {
			t.Errorf("%d allowed: the script says %+v, Judge %+v", allowed, got, v)
		}
	}
}

type jsVerdict struct {
	Most            []int
	Beyond, Wronged int
}

func runJS(t *testing.T, node, module string, requests []Request, limit Limit) (v jsVerdict) {
	t.Helper()
	var log []jsRequest
	for _, r := range requests {
		log = append(log, jsRequest{r.Sent.UnixMilli(), r.Answered.UnixMilli(), r.Outcome == Admitted})
	}
	input, err := json.Marshal([]any{log, []jsWindow{{limit.Count, limit.Span.Seconds()}}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e",
		`const { judge } = await import(process.argv[1]);
		 let text = ''; for await (const part of process.stdin) text += part;
		 console.log(JSON.stringify(judge(...JSON.parse(text))));`, module)
	cmd.Stdin = bytes.NewReader(input)
	said, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(said, &v); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return v
}
