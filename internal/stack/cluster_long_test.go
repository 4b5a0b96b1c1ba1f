//go:build long

package stack

import (
	"strings"
	"testing"
)

func TestStartCluster_ServesEverySlot(t *testing.T) {
	t.Parallel()

	c, err := StartCluster(t.Context(), t.TempDir(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Stop)
	if want := c.Nodes[0].URL + "?addr=" + c.Nodes[1].Addr + "&addr=" + c.Nodes[2].Addr; c.URL != want {
		t.Errorf("URL = %s, want %s", c.URL, want)
	}

	// Tags in the first, second and third third of the slots.
	for i, key := range []string{"{b}", "{a}", "{c}"} {
		slot := command(t, c.Nodes[0], "CLUSTER", "KEYSLOT", key)
		errs := 0
		for _, node := range c.Nodes {
			if _, err := node.Command(t.Context(), "SET", key, "1"); err != nil {
				if !strings.HasPrefix(err.Error(), "MOVED "+slot) {
					t.Errorf("key %d: %v", i, err)
				}
				errs++
			}
		}

		if errs != 2 {
			t.Errorf("%d nodes refused %s, want 2", errs, key)
		}
	}
}
