//go:build long

package harness

import (
	"os/exec"
	"testing"
	"time"
)

func TestWatch_KnowsWhatEnded(t *testing.T) {
	t.Parallel()

	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}

	before, err := Measure(Self("self"))
	if err != nil {
		t.Fatal(err)
	}

	stop := Watch(t.Context(), time.Millisecond, Process{"child", child.Process.Pid}, Process{"nobody", 1 << 30}, Self("self"))
	_ = child.Process.Kill()
	_ = child.Wait() // it was killed
	found := stop()
	if len(found) != 2 || found[0].Name != "child" || found[0].Peak == 0 || found[1].Name != "self" || found[1].Begin == 0 {
		t.Errorf("%+v", found)
	}

	after, err := Measure(Self("self"))
	if err != nil {
		t.Fatal(err)
	}
	if used := after.Since(before); used["self"] < 0 || used["seconds"] <= 0 || used["busy"] < 0 {
		t.Errorf("%+v", used)
	}
}
