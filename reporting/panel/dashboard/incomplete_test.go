package dashboard

import (
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// While a Redis server does not answer, the pages show what the others keep and name what lacks a part.
// Redis refuses what concerns one partition, which stands for it.
func TestPages_NameWhatAServerThatIsAwayHides(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		stack.GatewayUser: "a", stack.WorkerUser: "b", stack.ReportingUser: "c", stack.BackupUser: "d", stack.OperatorUser: "e",
	}}})
	e := newEnvOn(t, testenv.NewOn(t, server))
	found := map[bool]int{}
	for found[true] == 0 || found[false] == 0 { // vendors in the partition and in others
		isLost := e.Env.Vendor().Order("", time.Now()).ID.Partition() == 2
		found[isLost]++
	}

	_, err := server.Command(t.Context(), "ACL", "SETUSER", stack.ReportingUser, "resetkeys", "~{sg*", "~{s0[^2]*")
	must(t, err)

	e.client.Page("/overview").Says("some of: streams", "some of: webhook endpoints", "some of: accounts", "some of: lag of the role Export").
		Hides("Nothing that can be seen here")
	e.client.Page("/dead-letters").Says("some of: dead letters").Hides("There are none")
	e.client.Page("/refused-updates").Says("some of: " + refusedPart)
	e.client.Page("/orders?q=nothing").Says("some of: live orders (Redis)")
}
