//go:build long

package systemtest

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/receiver"
)

// A master dies twenty times, and its replica lacks the last second, as with durability local. The couriers
// then report once more what was lost, at other times, so that many changes are written a second time. No
// event id may name both of them: neither at the receiver nor in ClickHouse.
func TestLoss_NoEventIDNamesTwoContents(t *testing.T) {
	t.Parallel()

	const failovers = 20
	c, err := stack.StartCluster(t.Context(), t.TempDir(), 3, 1)
	must(t, err)
	t.Cleanup(c.Stop)
	system := startStack(t, stack.Options{RedisURL: c.URL, Reporting: true, CourierStep: 100 * time.Millisecond})
	v := system.Vendor(t, stack.Unlimited)
	s := &clusterEnv{Cluster: c, receiver: v.Receive(t, receiver.Options{})}
	s.tills = openTills(t, v, []string{system.Demo.BaseURL}, 8, unavailable(t))
	slot := s.slotOf(t)

	for range failovers {
		s.tills.passes(t, 60)
		s.loseLastSecond(t, slot)
		s.tills.passes(t, 60)

		// Rows of one version are merged later, so this looks every time.
		twice := system.query(t, `SELECT event_id FROM delivery.order_events GROUP BY event_id
			HAVING uniqExact(status, at, failure_reason, cancel_reason) > 1 LIMIT 10`)
		if twice != "" {
			t.Errorf("ClickHouse has two contents of %s", strings.Fields(twice))
		}
	}

	s.tills.close()
	counts := s.receiver.Counts()
	if counts.Changed > 0 {
		t.Errorf("%d events came a second time with another content", counts.Changed)
	}

	written := system.query(t, `SELECT countIf(n > 1) FROM (SELECT uniqExact(event_id) AS n FROM delivery.order_events GROUP BY order_id, sequence)`)
	t.Logf("%d failovers: %d events received, %d again; of changes that were written twice ClickHouse still has both of %s",
		failovers, counts.Received, counts.Duplicates, strings.TrimSpace(written))
}

// loseLastSecond kills the master of a slot after its replica has received nothing for a second, and returns
// when the replica has taken its place and the old master follows it.
func (s *clusterEnv) loseLastSecond(t *testing.T, slot int) {
	t.Helper()
	master, replica := s.sides(t, slot)

	// A stopped replica would still find in its socket what the master has sent. One that cannot log in
	// gets nothing.
	_, err := replica.Command(t.Context(), "CONFIG", "SET", "masterauth", "wrong")
	must(t, err)
	_, err = master.Command(t.Context(), "CLIENT", "KILL", "TYPE", "replica")
	must(t, err)
	time.Sleep(time.Second) // what is written now is lost
	master.Kill()

	s.awaitPromotion(t, replica)
	_, err = replica.Command(t.Context(), "CONFIG", "SET", "masterauth", "")
	must(t, err)
	must(t, master.Start(t.Context()))
	must(t, s.AwaitWhole(t.Context()))
}
