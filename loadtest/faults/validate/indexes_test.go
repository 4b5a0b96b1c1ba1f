package validate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

func TestInconsistentIndexes_AreComparedWithAllOrders(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	s := sourcesOf(t, e)
	r := s.reader()
	v := e.Vendor()
	orders := make(map[delivery.Status]delivery.OrderID) // one in each status
	for status := delivery.Searching; status <= delivery.Cancelled; status++ {
		orders[status] = v.Order("", time.Now()).ID
	}

	e.Decide() // new orders are listed
	for status, id := range orders {
		switch status {
		case delivery.Searching:
		case delivery.Cancelled:
			_, _, err := e.Ledger.Orders.Cancel(t.Context(), v.Account, id, delivery.CustomerRequest, "", time.Now())
			testenv.Must(t, err)
		default:
			e.Change(id, delivery.Change{Status: status, At: time.Now()})
		}
	}

	compare := func() []Violation {
		t.Helper()
		var all []*delivery.Order
		for _, id := range orders {
			all = append(all, e.Read(id))
		}

		violations, err := r.inconsistentIndexes(t.Context(), all)
		testenv.Must(t, err)
		return violations
	}
	if violations := compare(); len(violations) > 0 {
		t.Fatalf("of a ledger that is right:%s", listed(violations))
	}

	p := r.partitions[orders[delivery.Searching].Partition()]
	other := r.partitions[(p.number+1)%len(r.partitions)]
	jobs := func(status delivery.Status) string { return p.jobs(status, e.Fleet.ID) }
	searching := memberOf(orders[delivery.Searching])
	elsewhere := delivery.MakeOrderID(other.number, orders[delivery.Searching].Day(), orders[delivery.Searching].Digest())
	unknown := delivery.MakeOrderID(p.number, 1, delivery.Digest{9})
	for _, c := range []struct {
		key, member string
		order       delivery.OrderID
		says        string
	}{
		// Those that are there are removed, and the others are added.
		{p.timers(), searching, orders[delivery.Searching], "timers lacks an order that is Searching"},
		{jobs(delivery.Searching), searching, orders[delivery.Searching], "Searching lacks an order that is Searching"},
		{jobs(delivery.Cancelled), memberOf(orders[delivery.Cancelled]), orders[delivery.Cancelled], "Cancelled lacks an order that is Cancelled"},
		{p.timers(), memberOf(orders[delivery.Delivered]), orders[delivery.Delivered], "timers names an order that is Delivered"},
		{p.timers(), memberOf(orders[delivery.Cancelled]), orders[delivery.Cancelled], "timers names an order that is Cancelled"},
		{jobs(delivery.Assigned), searching, orders[delivery.Searching], "Assigned names an order that is Searching"},
		{jobs(delivery.Delivered), memberOf(orders[delivery.Delivered]), orders[delivery.Delivered], "Delivered names an order that is Delivered"},
		{jobs(delivery.Failed), memberOf(orders[delivery.Failed]), orders[delivery.Failed], "Failed names an order that is Failed"},
		{jobs(delivery.Cancelled), memberOf(unknown), unknown, "Cancelled names an order that is not there"},
		{other.timers(), searching, elsewhere, "timers names an order that is not there"},
		{p.timers(), "short", delivery.OrderID{}, `timers has "short", which names no order`},
	} {
		restore := toggle(t, s.Redis, c.key, c.member)
		violations := compare()
		isFound := len(violations) == 1 && violations[0].Text == c.says && violations[0].Subjects[0] == c.order.String()
		if !isFound || violations[0].Invariant != IndexInconsistent {
			t.Errorf("want %q about %s, found:%s", c.says, c.order, listed(violations))
		}
		restore()
	}

	if violations := compare(); len(violations) > 0 {
		t.Errorf("after all was put right:%s", listed(violations))
	}

	// A record is damaged, and says a status that there is not.
	damaged := e.Read(orders[delivery.Searching])
	damaged.Status = 0
	violations, err := r.inconsistentIndexes(t.Context(), []*delivery.Order{damaged})
	testenv.Must(t, err)
	isFound := slices.ContainsFunc(violations, func(v Violation) bool {
		return v.Subjects[0] == damaged.ID.String() && strings.Contains(v.Text, " lacks ")
	})
	if !isFound {
		t.Errorf("an order without a status, found:%s", listed(violations))
	}
}

// toggle removes a member from a sorted set, or adds it if it is not there. The result undoes that.
func toggle(t *testing.T, client redis.UniversalClient, key, member string) (undo func()) {
	t.Helper()
	score, err := client.ZScore(t.Context(), key, member).Result()
	if errors.Is(err, redis.Nil) {
		testenv.Must(t, client.ZAdd(t.Context(), key, redis.Z{Member: member, Score: 1}).Err())
		return func() { testenv.Must(t, client.ZRem(t.Context(), key, member).Err()) }
	}

	testenv.Must(t, err)
	testenv.Must(t, client.ZRem(t.Context(), key, member).Err())
	return func() { testenv.Must(t, client.ZAdd(t.Context(), key, redis.Z{Member: member, Score: score}).Err()) }
}
