package validate

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

func TestRowOf_HasAColumnForEachOfClickHouse(t *testing.T) {
	t.Parallel()

	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	o := &delivery.Order{CreatedAt: at(0), Version: 1<<32 | 4, Status: delivery.Cancelled, OrderDraft: delivery.OrderDraft{ExternalOrderID: "e", ExternalStoreID: "S-1",
		ReadyAt: at(60), OrderAmount: delivery.Money{Minor: 12550, Set: true}, Payment: delivery.Payment{Type: delivery.Cash}}}
	o.Changes = []delivery.Change{{Status: delivery.Assigned, At: at(1)}, {Status: delivery.PickingUp, At: at(2)}, {Status: delivery.Cancelled, At: at(3), Cancel: delivery.OtherCancel}}
	got := make(map[string]string)
	for i, text := range rowOf(o) {
		got[orderColumns[i].name] = text
	}

	want := map[string]string{"order": o.ID.String(), "account": o.Account.String(), "external id": "e", "status": "Cancelled", "version": "4294967300",
		"creation": "1795284000000", "failure reason": "", "cancel reason": "Other", "store": "S-1", "fleet": o.Fleet.ID.String(), "payment": "Cash",
		"order amount": "12550", "collection amount": "", "orderedAt": "", "readyAt": "1795284060000", "updatedAt": "1795284003000",
		"assignment": "1795284001000", "pickup": "", "delivery": "", "end": "1795284003000"}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Facts that were kept are checked again as they were.
func TestFacts_SurviveJSON(t *testing.T) {
	t.Parallel()

	e := day()
	e.arrival("failed", 3).Status = "PickedUp"
	_, before := e.check()
	text, err := json.Marshal(&e.facts)
	if err != nil {
		t.Fatal(err)
	}

	var back Facts
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if _, after := Check(e.log, &back); len(before) == 0 || !reflect.DeepEqual(before, after) {
		t.Errorf("before:%s\nafter:%s", listed(before), listed(after))
	}
}

func TestGather_FindsWhatIsUnsettled(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	v := e.Vendor()
	s := sourcesOf(t, e)
	s.Accounts = []Account{{ID: v.Account.String()}}
	_, _, err := e.Ledger.Webhooks.SetURL(t.Context(), v.Account, "https://vendor.example/hook")
	testenv.Must(t, err)
	v.Order("", time.Now())
	moved := v.Order("", time.Now())
	e.Move(moved, delivery.Assigned, time.Now())
	gather := func() *Facts {
		t.Helper()
		f, err := s.Gather(t.Context())
		testenv.Must(t, err)
		return f
	}

	wantLeft := func(what string, s *Sources, want ...string) {
		t.Helper()
		if got, want := s.left(t.Context()), strings.Join(want, ", "); got != want {
			t.Errorf("%s: left: %q, want %q", what, got, want)
		}
	}

	unread := func(group ledger.Role) string {
		return fmt.Sprintf("in partition %d 3 entries of group %s are unread and 0 pending", moved.ID.Partition(), group)
	}

	found := invariants(gather().Found)
	if !slices.Contains(found, PendingLeft) || !slices.Contains(found, IndexInconsistent) {
		t.Errorf("of an order that the owner has not listed: %v", found)
	}

	wantLeft("without an owner", s, unread(ledger.RoleStatus), unread(ledger.RoleWebhook), unread(ledger.RoleExport))

	e.Decide()
	remains := []Remains{{Account: v.Account.String(), Waiting: []string{Subject(moved.ID.String(), 2)}}}
	if f := gather(); !reflect.DeepEqual(f.Remains, remains) {
		t.Errorf("remains: %+v, want %+v", f.Remains, remains)
	}

	const webhooks = "1 webhooks of "
	wantLeft("decided", s, unread(ledger.RoleExport), webhooks+v.Account.String())
	wantLeft("where nothing is exported", &Sources{Ledger: s.Ledger, Redis: s.Redis, Accounts: s.Accounts}, webhooks+v.Account.String())
	wantLeft("where the webhooks are of nobody's interest", &Sources{Ledger: s.Ledger, Redis: s.Redis})

	e.Send(accepted)
	testenv.Must(t, e.Ledger.Streams.Ack(t.Context(), ledger.RoleExport, read(t, e, ledger.RoleExport)...))
	if f := gather(); len(f.Found) > 0 || len(f.Remains) > 0 {
		t.Errorf("of a system at rest: %+v, and%s", f.Remains, listed(f.Found))
	}

	wantLeft("at rest", s)
}
