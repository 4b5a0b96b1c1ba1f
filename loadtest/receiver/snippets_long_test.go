//go:build long

package receiver

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The snippets in other languages run where their interpreter is installed.
func TestSnippets_OtherLanguages(t *testing.T) {
	for interpreter, script := range map[string]string{"node": "run.js", "python3": "run.py", "php": "run.php"} {
		t.Run(interpreter, func(t *testing.T) {
			path, err := exec.LookPath(interpreter)
			if err != nil {
				t.Logf("%s is not installed here: %s was not run", interpreter, script)
				return
			}

			input, want := newArrivals().lines(t)
			cmd := exec.Command(path, filepath.Join("snippets", script))
			cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
			cmd.Stdin = bytes.NewReader(input)
			got, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v", err)
			}

			compare(t, string(got), want)
		})
	}
}
