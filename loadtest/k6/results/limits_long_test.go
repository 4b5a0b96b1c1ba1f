//go:build long

package results

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The scripts measure by the same rules, where node is installed to run them.
func TestMeasureLimits_AgreesWithTheScripts(t *testing.T) {
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

		found := measureLimits(requests, []Limit{limit}, true)[0]
		script := measureInScript(t, node, module, requests, limit)

		beyond := found.most > limit.Count
		if script.Most[0] != found.most || script.Wronged != found.wronglyRefused || (script.Beyond > 0) != beyond {
			t.Errorf("%d allowed: the script says %+v, this package %+v", allowed, script, found)
		}
	}
}

// scriptMeasurement is what measure of lib/window.js returns.
type scriptMeasurement struct {
	Most            []int
	Beyond, Wronged int
}

func measureInScript(t *testing.T, node, module string, requests []request, limit Limit) scriptMeasurement {
	t.Helper()
	var log []map[string]any
	for i := range requests {
		r := &requests[i]
		log = append(log, map[string]any{
			"sent":     r.sent() / int64(time.Millisecond),
			"answered": r.answered / int64(time.Millisecond),
			"admitted": r.status == 201,
		})
	}

	windows := []any{map[string]any{"count": limit.Count, "seconds": limit.Span.Seconds()}}
	input, err := json.Marshal([]any{log, windows})
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), node, "--input-type=module", "-e",
		`const { measure } = await import(process.argv[1]);
		 let text = ''; for await (const part of process.stdin) text += part;
		 console.log(JSON.stringify(measure(...JSON.parse(text))));`, module)

	cmd.Stdin = bytes.NewReader(input)
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	var measured scriptMeasurement
	if err := json.Unmarshal(output, &measured); err != nil {
		t.Fatalf("%v: %s", err, output)
	}

	return measured
}
