package owner

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// forReleaseBefore begins the rights of the worker in configs/redis-users.acl that this release does not
// need, if there are any.
const forReleaseBefore = "# For the release before"

// workerRules returns the rules of the worker in configs/redis-users.acl, what stands in parentheses as one,
// without those that only the release before needs.
func workerRules(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../configs/redis-users.acl")
	testenv.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\nuser worker on #WORKER_SHA256 ")
	section, _, _ = strings.Cut(section, "\nuser ")

	var rules []string
	for line := range strings.Lines(strings.ReplaceAll(section, "{ENV", "{s")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, forReleaseBefore) {
			break
		}
		if strings.HasPrefix(line, "#") {
			continue
		}

		for _, rule := range strings.Fields(line) {
			last := len(rules) - 1
			if last >= 0 && strings.HasPrefix(rules[last], "(") && !strings.HasSuffix(rules[last], ")") {
				rules[last] += " " + rule
				continue
			}
			rules = append(rules, rule)
		}
	}

	if len(rules) == 0 {
		t.Fatal("configs/redis-users.acl has no rules of the worker")
	}

	return rules
}

// notOwners are rights that no owner needs: those of connections to a cluster, of the program's readiness, of
// replicas' confirmations, and of loading what every other program loads, too.
var notOwners = []string{"+ping", "+command", "+asking", "+readonly", "+cluster|slots", "(+@blocking)",
	"+function|load", "+function|list", "+function|delete"}

// ownServer is an environment on a server of its own, whose users a test may change.
func ownServer(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	e := &env{Env: testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{}))}
	e.vendor, e.role = e.Vendor(), e.newRole("w1")
	return e
}

// setUser gives a user of Redis exactly these rules, and returns the configuration to open the ledger as it.
func (e *env) setUser(name string, rules []string) ledger.Config {
	e.T.Helper()
	command := []any{"ACL", "SETUSER", name, "reset", "on", ">secret"}
	for _, rule := range rules {
		command = append(command, rule)
	}

	e.Do(command...)

	config := e.ConfigFor(stack.WorkerUser)
	u, err := url.Parse(config.URL)
	testenv.Must(e.T, err)
	u.User = url.UserPassword(name, "secret")
	config.URL = u.String()

	return config
}

// without are the rules but one.
func without(rules []string, rule string) []string {
	return slices.DeleteFunc(slices.Clone(rules), func(other string) bool { return other == rule })
}

// awaitRenewals waits until each partition's token was renewed so many times.
func (e *env) awaitRenewals(count uint64) {
	e.T.Helper()
	before := e.tokens()
	e.Await(fmt.Sprintf("%d renewals", count), func() bool {
		for p, token := range e.tokens() {
			if token.Epoch == before[p].Epoch && token.Sequence < before[p].Sequence+count {
				return false
			}
		}
		return true
	})
}

// Workers each of which lacks another right come beside a healthy one: nothing is given up to them.
func TestShare_WhoLacksARightHasNone(t *testing.T) {
	e := ownServer(t)
	e.Start(e.role.Run)
	e.awaitOwners(testenv.Partitions, "w1")
	before := e.tokens()
	rules := workerRules(t)

	for i, rule := range rules {
		if slices.Contains(notOwners, rule) {
			continue
		}

		config := e.setUser(fmt.Sprint("lacks", i), without(rules, rule))
		l, err := ledger.Open(t.Context(), config)
		if err != nil {
			continue // it does not even start
		}

		t.Cleanup(func() { _ = l.Close() })
		e.Start(e.roleOf(l, "without "+rule).Run)
	}

	e.awaitRenewals(15) // some 10 s

	for p, token := range e.tokens() {
		if token.Epoch != before[p].Epoch {
			t.Errorf("partition %d has changed hands: %+v", p, token)
		}
	}

	workers, _, err := e.Ledger.Ownership.Workers(t.Context())
	testenv.Must(t, err)
	for worker := range workers {
		if !strings.HasPrefix(worker, "w1 ") {
			t.Errorf("%q beats", worker)
		}
	}
}

// A worker that loses a right while it owns its share hands all over.
func TestShare_WhoLosesARightHandsItsShareOver(t *testing.T) {
	for _, rule := range []string{"+xread", "+xadd", "+set", "+fcall"} {
		t.Run(rule, func(t *testing.T) {
			e := ownServer(t)
			rules := workerRules(t)
			l, err := ledger.Open(t.Context(), e.setUser("losing", rules))
			testenv.Must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			e.Start(e.role.Run)
			e.Start(e.roleOf(l, "losing").Run)
			e.awaitOwners(testenv.Partitions/2, "w1", "losing")

			e.setUser("losing", without(rules, rule))

			e.awaitOwners(testenv.Partitions, "w1")
			owned := e.tokens()
			e.awaitRenewals(10)
			for p, token := range e.tokens() {
				if token.Epoch != owned[p].Epoch {
					t.Errorf("partition %d has changed hands again: %+v", p, token)
				}
			}

			if value := e.gauge("worker_without_share"); value != 1 {
				t.Errorf("it says %v of its share", value)
			}
		})
	}
}

// The rights of an owner do not show that it may write orders: here a worker that may not. It gives up what it
// fails at, and takes it again neither at once nor while another one can.
func TestShare_WhoIsRefusedAWriteLeavesThePartitionToOthers(t *testing.T) {
	e := ownServer(t)
	rules := workerRules(t)
	rules = append([]string{"~{s*}[^o]*", "%R~{s*}o*"}, without(rules, "~{s*")...)
	l, err := ledger.Open(t.Context(), e.setUser("refused", rules))
	testenv.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	refused := e.roleOf(l, "refused")
	e.Start(refused.Run)
	e.awaitOwners(testenv.Partitions, "refused")
	e.Start(e.role.Run)
	e.awaitOwners(testenv.Partitions/2, "w1", "refused")
	o := e.orderWithPlainDigest(e.vendorIn(refused.Owned()[0]))

	e.Accept(o, time.Now())

	e.AwaitStatus(o, delivery.Assigned)
	e.checkOnce(o, "Searching Assigned")
	owned := e.tokens()[o.ID.Partition()]
	e.awaitRenewals(10)
	if token := e.tokens()[o.ID.Partition()]; nameOf(token) != "w1" || token.Epoch != owned.Epoch {
		t.Errorf("the partition's token is %+v, and was %+v", token, owned)
	}
}

// orderWithPlainDigest places an order whose digest has no "}". Redis's pattern {s*}[^o]* is meant to exclude the
// keys of orders, which are {tag}o and the binary digest, but would match one with a second "}" in it.
func (e *env) orderWithPlainDigest(vendor *testenv.Vendor) *delivery.Order {
	e.T.Helper()
	for {
		o := vendor.Order("", time.Now())
		digest := o.ID.Digest()
		if !slices.Contains(digest[:], '}') {
			return o
		}
	}
}

// A worker whose reads fail while its writes succeed gives its partitions up. When it is alone it keeps them.
func TestShare_WhoCannotReadGivesUp(t *testing.T) {
	e := newEnv(t)
	deaf, p := e.proxied("deaf")
	e.Start(deaf.Run)
	e.awaitOwners(testenv.Partitions, "deaf")
	alone := e.tokens()
	p.on("xread", func([]byte) fate { return replyCut })
	e.awaitRenewals(10)
	for number, token := range e.tokens() {
		if nameOf(token) != "deaf" || token.Epoch != alone[number].Epoch {
			t.Errorf("alone, it has given partition %d up: %+v", number, token)
		}
	}

	e.Start(e.role.Run)

	e.awaitOwners(testenv.Partitions, "w1")
	owned := e.tokens()
	e.awaitRenewals(10)
	for number, token := range e.tokens() {
		if token.Epoch != owned[number].Epoch {
			t.Errorf("partition %d has changed hands again: %+v", number, token)
		}
	}
}

// A partition that is damaged stays with its owner, and so do the others that are read together with it.
func TestShare_DamageTakesNoPartitionFromItsOwner(t *testing.T) {
	e := newEnv(t)
	e.Start(e.role.Run)
	e.Start(e.newRole("w2").Run)
	e.awaitOwners(testenv.Partitions/2, "w1", "w2")
	e.order()
	e.Await("a timer", func() bool { return e.Stats().InFlight == 1 })
	owned := e.tokens()

	e.EachKey("t", "if redis.call('EXISTS', k) == 1 then redis.call('SET', k, 'damaged') end")

	e.awaitRenewals(10)
	for number, token := range e.tokens() {
		if token.Epoch != owned[number].Epoch {
			t.Errorf("partition %d has changed hands: %+v", number, token)
		}
	}
}

// gauge is a figure of the last role that was made.
func (e *env) gauge(name string) float64 {
	e.T.Helper()
	families, err := e.metrics.Gather()
	testenv.Must(e.T, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}

	e.T.Fatalf("there is no %s", name)

	return 0
}

// vendorIn is one whose account is in a partition.
func (e *env) vendorIn(partition int) *testenv.Vendor {
	e.T.Helper()
	for {
		vendor := e.Vendor()
		if vendor.Order("", time.Now()).ID.Partition() == partition {
			return vendor
		}
	}
}

// What a worker is told of its rights is all that it lacks.
func TestCheckRights_NamesWhatIsMissing(t *testing.T) {
	e := ownServer(t)
	rules := workerRules(t)
	lacking := slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return rule == "+xadd" || rule == "+xgroup|setid" })
	whole, err := ledger.Open(t.Context(), e.setUser("whole", rules))
	testenv.Must(t, err)
	t.Cleanup(func() { _ = whole.Close() })
	part, err := ledger.Open(t.Context(), e.setUser("part", lacking))
	testenv.Must(t, err)
	t.Cleanup(func() { _ = part.Close() })

	testenv.Must(t, whole.Ownership.CheckRights(t.Context()))
	err = part.Ownership.CheckRights(t.Context())

	if err == nil || !strings.HasSuffix(err.Error(), ": xadd, xgroup|setid") {
		t.Errorf("%v", err)
	}
}
