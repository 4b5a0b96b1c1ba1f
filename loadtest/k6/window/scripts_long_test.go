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

// The scripts judge by the same rules, where node is installed to run them.
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
		var log []map[string]any
		for _, r := range requests {
			log = append(log, map[string]any{"sent": r.Sent.UnixMilli(), "answered": r.Answered.UnixMilli(), "admitted": r.Outcome == Admitted})
		}
		input, err := json.Marshal([]any{log, []any{map[string]any{"count": limit.Count, "seconds": limit.Span.Seconds()}}})
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
		var got struct {
			Most            []int
			Beyond, Wronged int
		}
		if err := json.Unmarshal(said, &got); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		if v := Judge(requests, []Limit{limit}); got.Most[0] != v.Most[0] || got.Wronged != v.Wronged || (got.Beyond > 0) != (v.Most[0] > limit.Count) {
			t.Errorf("%d allowed: the script says %+v, Judge %+v", allowed, got, v)
		}
	}
}
