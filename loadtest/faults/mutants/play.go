package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vendorapi/loadtest/faults/validate"
)

// spare is how long a run may take beyond its duration: the start, the round
// that has begun, and its wait until nothing is left.
const spare = 4 * time.Minute

// verdict is what the suite found in a system.
type verdict struct {
	name   string
	says   string
	files  []string
	wanted []validate.Invariant // empty: nothing may be found

	found []validate.Invariant
	after time.Duration // from the suite's start to its end
	err   error         // the suite itself failed
	log   string        // its last lines
}

// passed reports whether the suite said what it should have.
func (v *verdict) passed() bool {
	if v.err != nil {
		return false
	}
	if len(v.wanted) == 0 {
		return len(v.found) == 0
	}
	return slices.ContainsFunc(v.found, func(i validate.Invariant) bool { return slices.Contains(v.wanted, i) })
}

// arguments are those of one run of the suite.
type arguments struct {
	faults   string
	duration time.Duration
	seed     uint64
}

// play runs the suite on the system in a place. It reads the suite's own result,
// because an exit of 1 may also mean that the suite could not do its work.
func (p *place) play(ctx context.Context, suite string, a arguments) (v verdict) {
	ctx, cancel := context.WithTimeout(ctx, a.duration+spare)
	defer cancel()
	result := filepath.Join(p.dir, "result.json")
	cmd := exec.CommandContext(ctx, suite, "-bin", p.bin(), "-only", a.faults, "-duration", a.duration.String(),
		"-seed", strconv.FormatUint(a.seed, 10), "-keep", filepath.Join(p.dir, "data"), "-json", result)
	cmd.Dir = p.dir
	// Asked to end, it ends what it has started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	v.after, v.log = time.Since(began), lastLines(out.String(), 40)
	text, missing := os.ReadFile(result)
	if missing != nil {
		v.err = errors.Join(err, missing)
		return v
	}
	var found struct {
		Rounds      int
		ByInvariant map[validate.Invariant]int
		NotDone     []string
	}
	if bad := json.Unmarshal(text, &found); bad != nil {
		v.err = fmt.Errorf("the suite's result: %w", bad)
		return v
	}
	for i := range found.ByInvariant {
		v.found = append(v.found, i)
	}
	slices.Sort(v.found)
	switch {
	case found.Rounds == 0:
		v.err = errors.Join(errors.New("the suite played no round"), err)
	case err == nil && len(v.found) > 0:
		v.err = errors.New("the suite found something and was content")
	case err != nil && len(v.found) == 0:
		v.err = fmt.Errorf("the suite found nothing and failed: %w (not done: %v)", err, found.NotDone)
	}
	return v
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
