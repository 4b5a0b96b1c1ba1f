package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/operations"
)

// addUnknown stores so many orders that Redis never had beside those of the day.
func (s *env) addUnknown(n int) {
	s.T.Helper()
	s.spoil(fmt.Sprintf(`INSERT INTO TABLE orders SELECT * REPLACE (reinterpretAsUUID(sipHash128(arrayJoin(range(%d)))) AS order_id)
		FROM DB.orders FINAL ORDER BY orders.order_id LIMIT %[1]d`, n))
}

// Many orders that Redis never had say that it is another Redis, or that it has lost its data: then
// nothing is removed, and nothing repaired either, unless somebody types how many there are.
func TestFix_RefusesToRemoveMany(t *testing.T) {
	t.Parallel()

	const many = maxUnknown + 1
	s := newEnv(t)
	s.addUnknown(many)
	s.spoil("ALTER TABLE orders UPDATE order_amount = 1 WHERE external_order_id != '' AND order_id = (SELECT max(order_id) FROM DB.order_events)")
	before := s.Ask("* FROM " + s.Database + ".orders ORDER BY ALL")

	scope := Scope{From: s.today, To: s.today, Fix: true, RemoveUnknown: true, Timeout: timeout}
	for _, atMost := range []int{0, 1, many - 1} {
		scope.AtMost = atMost
		err := s.reconciler.Run(t.Context(), scope, func(d *Day) { t.Errorf("at most %d: it compared %+v", atMost, d) })
		if !errors.Is(err, ErrManyUnknown) || !strings.Contains(err.Error(), fmt.Sprintf("there are %d ", many)) {
			t.Errorf("at most %d: %v", atMost, err)
		}
	}

	if after := s.Ask("* FROM " + s.Database + ".orders ORDER BY ALL"); after != before {
		t.Error("something was changed all the same")
	}

	scope.AtMost = many
	s.compare(scope)
	s.Want("orders", "count() FROM "+s.Database+".orders", "10")
	s.requireEqual()
}

func TestFix_RemovesAHundredWithoutANumber(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.addUnknown(maxUnknown)
	s.compare(Scope{Fix: true, RemoveUnknown: true})
	s.Want("orders", "count() FROM "+s.Database+".orders", "10")
}

// What was not counted, because it came later, stays: it is no part of what somebody allowed.
func TestFix_RemovesWhatWasCountedOnly(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	s.addUnknown(3)
	scope := Scope{From: s.today, To: s.today, Fix: true, RemoveUnknown: true, Timeout: timeout}
	testScope := scope
	testScope.reports = &operations.LateReports{}
	if err := s.reconciler.countUnknown(t.Context(), &testScope); err != nil || len(testScope.removable) != 3 {
		t.Fatalf("%d were counted: %v", len(testScope.removable), err)
	}

	var late delivery.OrderID
	for counted := range testScope.removable {
		late = counted.order
	}

	delete(testScope.removable, subject{order: late})
	held, err := s.reconciler.index(t.Context(), &testScope)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.reconciler.settledDay(t.Context(), &testScope, s.today, held[s.today])
	if err != nil || d.Left() != 1 {
		t.Errorf("%+v: %v", d, err)
	}

	s.Want("the one that was not counted", "count() FROM "+s.Database+".orders WHERE order_id = '"+late.String()+"'", "1")
	s.Want("orders", "count() FROM "+s.Database+".orders", "11")
}

func TestScope_MostRemoved(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ atMost, compared, want int }{
		{0, 0, 100}, {0, 10_000, 100}, {0, 10_100, 101}, {0, 5_000_000, 50_000}, {7, 5_000_000, 7}, {700, 0, 700},
	} {
		scope := Scope{AtMost: c.atMost}
		if got := scope.mostRemoved(c.compared); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
