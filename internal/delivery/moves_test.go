package delivery

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	mehmet = Courier{Name: "Mehmet Yılmaz", Phone: "5321234567", VehicleType: "Motorcycle"}
	ayse   = Courier{Name: "Ayşe Öztürk", Phone: "5329999999", VehicleType: "Bicycle"}
)

var allReasons = []FailureReason{
	NoCourierFound, TimedOut, CourierIncident, StoreClosed, PackageNotReady, PackageDamaged,
	AddressNotFound, CustomerUnreachable, CustomerRefused, PaymentRefused, OtherFailure,
}

// orderIn is an order that has reached a state by single steps of a minute,
// carried by mehmet once it is Assigned.
func orderIn(s Status) *Order {
	o := &Order{
		ID:         MakeOrderID(3, 20778, OrderDigest(AccountID{1}, "order-1")),
		Account:    AccountID{1},
		OrderDraft: OrderDraft{ExternalStoreID: "store-1", ExternalOrderID: "order-1", ReadyAt: noon.Add(20 * time.Minute)},
		Fleet:      FleetTerms{ID: FleetID{7}, Name: "Hızlı", PickupMinutes: 10, DeliveryMinutes: 25},
		CreatedAt:  noon, Status: Searching, Version: 1<<32 | 1,
	}

	last := s
	if s == Failed || s == Cancelled {
		last = Assigned
	}

	for step := Assigned; step <= last; step++ {
		o.Courier = mehmet
		o.apply(Change{Status: step, At: o.UpdatedAt().Add(time.Minute), Courier: mehmet})
	}

	if s != last {
		failure := map[Status]FailureReason{Failed: CourierIncident}[s]
		o.apply(Change{Status: s, At: o.UpdatedAt().Add(time.Minute), Courier: mehmet, Failure: failure})
	}

	return o
}

func (o *Order) apply(changes ...Change) {
	for _, c := range changes {
		o.Changes = append(o.Changes, c)
		o.Status = c.Status
		o.Version++
		o.Reach(&c)
	}
}

// moveTable is the table of the decisions ("States") in full: the state an order is in, what the
// fleet reports, and what becomes of it: the statuses it then passes through,
// or "drop", "illegal". Failed stands for a reason that is legal.
var moveTable = map[Status]map[Status]string{
	Searching: {
		Searching: "illegal", Assigned: "Assigned", PickingUp: "Assigned PickingUp", PickedUp: "Assigned PickingUp PickedUp",
		Delivering: "Assigned PickingUp PickedUp Delivering", Delivered: "Assigned PickingUp PickedUp Delivering Delivered",
		Failed: "Failed", Cancelled: "illegal",
	},
	Assigned: {
		Searching: "illegal", Assigned: "drop", PickingUp: "PickingUp", PickedUp: "PickingUp PickedUp",
		Delivering: "PickingUp PickedUp Delivering", Delivered: "PickingUp PickedUp Delivering Delivered",
		Failed: "Failed", Cancelled: "illegal",
	},
	PickingUp: {
		Searching: "illegal", Assigned: "drop", PickingUp: "drop", PickedUp: "PickedUp", Delivering: "PickedUp Delivering",
		Delivered: "PickedUp Delivering Delivered", Failed: "Failed", Cancelled: "illegal",
	},
	PickedUp: {
		Searching: "illegal", Assigned: "drop", PickingUp: "drop", PickedUp: "drop", Delivering: "Delivering",
		Delivered: "Delivering Delivered", Failed: "Failed", Cancelled: "illegal",
	},
	Delivering: {
		Searching: "illegal", Assigned: "drop", PickingUp: "drop", PickedUp: "drop", Delivering: "drop", Delivered: "Delivered",
		Failed: "Failed", Cancelled: "illegal",
	},
	Delivered: {
		Searching: "illegal", Assigned: "illegal", PickingUp: "illegal", PickedUp: "illegal", Delivering: "illegal",
		Delivered: "drop", Failed: "illegal", Cancelled: "illegal",
	},
	Failed: {
		Searching: "illegal", Assigned: "illegal", PickingUp: "illegal", PickedUp: "illegal", Delivering: "illegal",
		Delivered: "illegal", Failed: "drop", Cancelled: "illegal",
	},
	Cancelled: {
		Searching: "illegal", Assigned: "illegal", PickingUp: "illegal", PickedUp: "illegal", Delivering: "illegal",
		Delivered: "illegal", Failed: "illegal", Cancelled: "illegal",
	},
}

// outcome writes a decision as moveTable does.
func outcome(d Decision) string {
	if d.Action != Move {
		between := d.Action == Swap || d.Action == Revise
		if len(d.Changes) > 1 || len(d.Changes) == 1 != between {
			return "changes without Move"
		}
		return map[Action]string{Drop: "drop", Illegal: "illegal", Swap: "swap", Revise: "revise"}[d.Action]
	}

	names := ""
	for i, c := range d.Changes {
		if i > 0 {
			names += " "
		}
		names += c.Status.String()
	}

	return names
}

//rule:order-states/searching order-states/assigned order-states/PickingUp order-states/PickedUp order-states/delivering order-states/delivered
//rule:order-states/failed order-states/cancelled order-states/searching-to-assigned order-states/assigned-to-pickingup
//rule:order-states/pickingup-to-pickedup order-states/pickedup-to-delivering order-states/the-five-non-terminal-rows-follow states/searching
//rule:states/assigned states/PickingUp states/PickedUp states/delivering states/terminal states/a-repeated-or-backward-update
func TestDecide_EveryStatusFromEveryOther(t *testing.T) {
	for from := Searching; from <= Cancelled; from++ {
		for to := Searching; to <= Cancelled; to++ {
			o := orderIn(from)
			u := Update{Kind: KindStatus, Status: to, At: o.UpdatedAt().Add(time.Minute)}
			if to == Failed {
				u.Failure = OtherFailure
			}
			got := outcome(Decide(o, u, noon.Add(time.Hour)))
			want := moveTable[from][to]
			check(t, got == want, "%v, %v reported: got %q, want %q", from, to, got, want)
		}

		for _, nonsense := range []Status{0, 9, 255} {
			if got := outcome(Decide(orderIn(from), Update{Kind: KindStatus, Status: nonsense, At: noon}, noon)); got != "illegal" {
				t.Errorf("%v, %v reported: got %q", from, nonsense, got)
			}
		}
	}
}

//rule:states/searching states/assigned states/PickingUp states/PickedUp states/delivering states/other decisions/failureReason
func TestDecide_EveryFailureFromEveryStatus(t *testing.T) {
	legal := map[Status][]FailureReason{
		Searching:  {NoCourierFound, TimedOut, OtherFailure},
		Assigned:   {CourierIncident, StoreClosed, TimedOut, OtherFailure},
		PickingUp:  {CourierIncident, StoreClosed, TimedOut, PackageNotReady, OtherFailure},
		PickedUp:   {CourierIncident, PackageDamaged, TimedOut, OtherFailure},
		Delivering: {AddressNotFound, CustomerUnreachable, CustomerRefused, PaymentRefused, PackageDamaged, CourierIncident, TimedOut, OtherFailure},
	}

	for from := Status(0); from <= Cancelled+1; from++ {
		for _, reason := range append(slices.Clone(allReasons), "", "other") {
			want := slices.Contains(legal[from], reason)
			got := reason.LegalFrom(from)
			check(t, got == want, "%v, %q: legal %v", from, reason, got)
			if from < Searching || from > Delivering {
				continue
			}

			d := Decide(orderIn(from), Update{Kind: KindStatus, Status: Failed, At: noon, Failure: reason}, noon.Add(time.Hour))
			moved := outcome(d) == "Failed" && d.Changes[0].Failure == reason
			check(t, moved == want && (moved || d.Action == Illegal), "%v, %q: got %+v", from, reason, d)
		}
	}
}

func TestParseFailureReason_KnowsItsNamesOnly(t *testing.T) {
	for _, reason := range allReasons {
		if got, err := ParseFailureReason(string(reason)); err != nil || got != reason {
			t.Errorf("%s: got %q, %v", reason, got, err)
		}
	}

	for _, name := range []string{"", "other", "Nothing"} {
		if got, err := ParseFailureReason(name); err == nil || got != "" {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
}

//rule:states/a-courier-swap-never-goes
func TestDecide_AcceptsAndSwaps(t *testing.T) {
	for from := Searching; from <= Cancelled; from++ {
		same, other, swap, again := "drop", "illegal", "swap", "drop"
		switch {
		case from == Searching:
			same, other, swap, again = "Assigned", "Assigned", "illegal", "illegal"
		case from.Terminal():
			same, swap, again = "illegal", "illegal", "illegal"
		}

		for _, c := range []struct {
			name string
			u    Update
			want string
		}{
			{"accept by its courier", Update{Kind: KindAccept, Status: Assigned, Courier: mehmet}, same},
			{"accept by another", Update{Kind: KindAccept, Status: Assigned, Courier: ayse}, other},
			{"swap to another", Update{Kind: KindSwap, Courier: ayse}, swap},
			{"swap to its courier", Update{Kind: KindSwap, Courier: mehmet}, again},
			{"swap to nobody", Update{Kind: KindSwap}, "illegal"},
			{"no kind", Update{Status: Delivered}, "illegal"},
		} {
			c.u.At = noon.Add(30 * time.Minute)
			decision := Decide(orderIn(from), c.u, noon.Add(time.Hour))
			if got := outcome(decision); got != c.want {
				t.Errorf("%v, %s: got %q, want %q", from, c.name, got, c.want)
			}
			if decision.Action == Swap && decision.Changes[0].Status != from {
				t.Errorf("%v, %s: the status becomes %v", from, c.name, decision.Changes[0].Status)
			}
		}
	}

	nameless := orderIn(PickingUp)
	nameless.Courier = Courier{}
	for _, kind := range []UpdateKind{KindAccept, KindSwap} {
		got := Decide(nameless, Update{Kind: kind, Status: Assigned, At: noon, Courier: ayse}, noon)
		if got.Action != Swap || got.Changes[0].Kind != CourierNamed {
			t.Errorf("a courier after a status without one: %+v", got)
		}
	}
}

// No webhook tells of the first courier, but one tells of another estimate.
func TestDecide_AnEstimateThatComesWithTheFirstCourierIsTold(t *testing.T) {
	told := noon.Add(45 * time.Minute)
	for name, c := range map[string]struct {
		eta  time.Time
		want []Change
	}{
		"none":               {time.Time{}, nil},
		"less than a minute": {told.Add(59 * time.Second), nil},
		"a minute": {told.Add(time.Minute), []Change{
			{Kind: EstimateRevised, Status: PickingUp, At: noon.Add(5*time.Minute + time.Millisecond), Courier: ayse, ETA: told.Add(time.Minute)}}},
	} {
		o := orderIn(PickingUp)
		o.Courier = Courier{}
		u := Update{Kind: KindAccept, Status: Assigned, At: noon.Add(5 * time.Minute), Courier: ayse, ETA: c.eta}

		got := Decide(o, u, noon.Add(9*time.Minute))

		want := append([]Change{{Kind: CourierNamed, Status: PickingUp, At: noon.Add(5 * time.Minute), Courier: ayse}}, c.want...)
		check(t, got.Action == Swap && slices.Equal(got.Changes, want), "%s: %+v", name, got)
		o.apply(got.Changes...)
		repeated := Decide(o, Update{Kind: KindStatus, Status: PickingUp, At: u.At, ETA: c.eta}, noon.Add(9*time.Minute))
		check(t, len(repeated.Changes) == 0, "%s, reported again: %+v", name, repeated)
	}
}

// Vendors tell by the time which of two events of one status is the newer.
func TestDecide_ASwapSaysHowThingsStandFromThenOn(t *testing.T) {
	known := Location{Point{41, 29}, noon.Add(time.Minute)}
	last := noon.Add(2 * time.Minute)
	for name, c := range map[string]struct{ at, now, want time.Time }{
		"as reported":              {noon.Add(5 * time.Minute), noon.Add(9 * time.Minute), noon.Add(5 * time.Minute)},
		"at the last change":       {last, noon.Add(9 * time.Minute), last.Add(time.Millisecond)},
		"by a clock that is slow":  {noon, noon.Add(9 * time.Minute), last.Add(time.Millisecond)},
		"by a clock that is ahead": {noon.Add(time.Hour), noon.Add(9 * time.Minute), noon.Add(9 * time.Minute)},
	} {
		o := orderIn(PickingUp)
		o.Location = known
		got := Decide(o, Update{Kind: KindSwap, Courier: ayse, At: c.at}, c.now)
		require(t, got.Action == Swap && len(got.Changes) == 1, "%s: %+v", name, got)
		change := got.Changes[0]
		check(t, change.Location.IsZero(), "%s, the former courier's place: %+v", name, change.Location)
		change.Location = Location{}
		check(t, change == Change{Kind: CourierReplaced, Status: PickingUp, At: c.want, Courier: ayse}, "%s: %+v", name, change)
	}
}

// orderIn gives no estimate, so that of PickingUp is 45 minutes after noon: the fleet's minutes after readyAt.
func TestDecide_RevisesAnEstimateByAMinuteAtLeast(t *testing.T) {
	told := noon.Add(45 * time.Minute)
	given := func(o *Order, eta time.Time) *Order {
		o.apply(Change{Kind: EstimateRevised, Status: o.Status, At: o.UpdatedAt(), Courier: o.Courier, ETA: eta})
		return o
	}

	for name, c := range map[string]struct {
		o      *Order
		status Status
		eta    time.Time
		want   string
	}{
		"a minute later than was computed":      {orderIn(PickingUp), PickingUp, told.Add(time.Minute), "revise"},
		"a minute earlier":                      {orderIn(PickingUp), PickingUp, told.Add(-time.Minute), "revise"},
		"less than a minute later":              {orderIn(PickingUp), PickingUp, told.Add(time.Minute - time.Millisecond), "drop"},
		"less than a minute earlier":            {orderIn(PickingUp), PickingUp, told.Add(time.Millisecond - time.Minute), "drop"},
		"none":                                  {orderIn(PickingUp), PickingUp, time.Time{}, "drop"},
		"what was given before counts":          {given(orderIn(PickingUp), told.Add(time.Hour)), PickingUp, told, "revise"},
		"given before":                          {given(orderIn(PickingUp), told.Add(time.Hour)), PickingUp, told.Add(time.Hour), "drop"},
		"with a status that was left":           {orderIn(PickingUp), Assigned, told.Add(time.Hour), "drop"},
		"with the next status it is the move's": {orderIn(PickingUp), PickedUp, told.Add(time.Hour), "PickedUp"},
		"after the pickup":                      {orderIn(PickedUp), PickedUp, told.Add(time.Hour), "revise"},
		"before anybody accepts":                {orderIn(Searching), Searching, told, "illegal"},
		"after the delivery":                    {orderIn(Delivered), Delivered, told.Add(time.Hour), "drop"},
		"after a failure":                       {orderIn(Failed), Delivering, told, "illegal"},
		"after a cancellation":                  {orderIn(Cancelled), Assigned, told, "illegal"},
	} {
		for _, at := range []time.Time{noon.Add(-time.Hour), noon.Add(30 * time.Minute), noon.Add(2 * time.Hour)} { // no phone's clock decides
			got := Decide(c.o, Update{Kind: KindStatus, Status: c.status, At: at, ETA: c.eta}, noon.Add(time.Hour))
			check(t, outcome(got) == c.want, "%s, at %v: %s", name, at, outcome(got))
			if got.Action != Revise {
				continue
			}
			change := got.Changes[0]
			asItWas := change.Status == c.o.Status && change.Courier == mehmet && change.At.After(c.o.UpdatedAt())
			check(t, asItWas && change.Kind == EstimateRevised && change.ETA.Equal(c.eta), "%s, at %v: %+v", name, at, change)
		}
	}
}

//rule:states/a-skipped-step-is-filled
func TestDecide_FillsInTheChangeAndSkippedSteps(t *testing.T) {
	now := noon.Add(time.Hour)
	at, eta := noon.Add(10*time.Minute+1234567), noon.Add(40*time.Minute)
	known := Location{Point{41, 29}, noon.Add(time.Minute)}
	reported := Location{Point{40.99, 29.01}, at}

	o := orderIn(Searching)
	got := Decide(o, Update{Kind: KindAccept, Status: Assigned, At: at, Courier: mehmet, ETA: eta, Location: reported}, now)
	want := Change{Status: Assigned, At: at.Truncate(time.Millisecond), Courier: mehmet, ETA: eta, Location: reported}
	check(t, got.Action == Move && slices.Equal(got.Changes, []Change{want}), "accept: %+v", got)

	o = orderIn(Assigned)
	o.Location, o.Courier = known, ayse // swapped since
	got = Decide(o, Update{Kind: KindStatus, Status: PickedUp, At: at}, now)
	first := Change{Status: PickingUp, At: at.Truncate(time.Millisecond), Courier: ayse, Location: known}
	second := first
	second.Status = PickedUp
	check(t, got.Action == Move && slices.Equal(got.Changes, []Change{first, second}), "skipped step: %+v", got)
}

// The position of a former courier is nobody's: not the new one's, and not that of an order that goes on.
//
//rule:fleet-api/put-jobs-orderid-courier
func TestDecide_ASwapForgetsWhereTheFormerCourierWas(t *testing.T) {
	at := noon.Add(10 * time.Minute)
	before := Location{Point{41, 29}, at.Add(-time.Second)}
	since := Location{Point{40.97, 29.04}, at}
	correctedMehmet := Courier{Name: "Mehmet YILMAZ", Phone: mehmet.Phone, VehicleType: "Car"}

	for name, c := range map[string]struct {
		had      Courier
		known    Location
		to       Courier
		reported Location // by the next status
		want     Location
	}{
		"another courier":                           {had: mehmet, known: before, to: ayse},
		"another courier, who has reported":         {had: mehmet, known: since, to: ayse, want: since},
		"another courier, who reports":              {had: mehmet, known: before, to: ayse, reported: since, want: since},
		"another courier, and a late one's report":  {had: mehmet, known: before, to: ayse, reported: before},
		"another courier with the same name":        {had: mehmet, known: before, to: Courier{Name: mehmet.Name, Phone: "5330000000"}},
		"the same one, corrected":                   {had: mehmet, known: before, to: correctedMehmet, want: before},
		"the first one, of whom a status was known": {known: before, to: ayse, want: before},
	} {
		o := orderIn(Assigned)
		o.Courier, o.Location = c.had, c.known
		d := Decide(o, Update{Kind: KindSwap, At: at, Courier: c.to}, at)
		require(t, d.Action == Swap, "%s: %+v", name, d)
		o.apply(d.Changes...)
		check(t, o.Courier == c.to && o.UpdatedAt().Equal(at), "%s: %+v", name, o)

		d = Decide(o, Update{Kind: KindStatus, Status: PickingUp, At: at.Add(time.Minute), Location: c.reported}, at.Add(time.Minute))
		got := d.Changes[0].Location
		isAsWanted := got == c.want || got.IsZero() && c.want.IsZero()
		check(t, isAsWanted, "%s: at %+v, want %+v", name, got, c.want)
	}
}

func TestDecide_AStatusOfAnotherCourierForgetsWhereTheFormerOneWas(t *testing.T) {
	o := orderIn(Assigned)
	o.Location = Location{Point{41, 29}, noon.Add(5 * time.Minute)}
	u := Update{Kind: KindStatus, Status: PickedUp, At: noon.Add(3 * time.Minute), Courier: ayse}
	now := noon.Add(10 * time.Minute)
	for _, change := range Decide(o, u, now).Changes {
		check(t, change.Courier == ayse && change.Location.IsZero(), "%+v", change)
	}

	u.Location = Location{Point{40.97, 29.04}, u.At}
	for _, change := range Decide(o, u, now).Changes {
		check(t, change.Location == u.Location, "%+v", change)
	}
}

func TestDecide_KeepsTheNewestPosition(t *testing.T) {
	o := orderIn(Assigned)
	o.Location = Location{Point{41, 29}, noon.Add(5 * time.Minute)}
	late := Update{Kind: KindStatus, Status: PickingUp, At: noon.Add(2 * time.Minute), Location: Location{Point{40.97, 29.04}, noon.Add(2 * time.Minute)}}
	change := Decide(o, late, noon.Add(6*time.Minute)).Changes[0]
	check(t, change.Location == o.Location, "%+v", change.Location)
}

func TestDecide_KeepsTimeInOrder(t *testing.T) {
	o := orderIn(PickingUp) // reached at noon + 2 min
	last := noon.Add(2 * time.Minute)
	for name, c := range map[string]struct{ at, now, want time.Time }{
		"as reported":            {noon.Add(5 * time.Minute), noon.Add(9 * time.Minute), noon.Add(5 * time.Minute)},
		"before the last change": {noon.Add(time.Minute), noon.Add(9 * time.Minute), last},
		"in the future":          {noon.Add(time.Hour), noon.Add(9 * time.Minute), noon.Add(9 * time.Minute)},
		"our clock is behind":    {noon.Add(time.Hour), noon.Add(time.Minute), last},
		"long before creation":   {noon.Add(-time.Hour), noon.Add(9 * time.Minute), last},
	} {
		d := Decide(o, Update{Kind: KindStatus, Status: Delivered, At: c.at}, c.now)
		for _, change := range d.Changes {
			check(t, change.At.Equal(c.want), "%s: %v at %v, want %v", name, change.Status, change.At, c.want)
		}
	}
}

//rule:states/a-delivered-reported-after-that
func TestLateDelivery_IsADeliveredAfterAnyOtherEnd(t *testing.T) {
	late := Update{Kind: KindStatus, Status: Delivered, At: noon}
	timedOut := orderIn(Delivering)
	timedOut.apply(Change{Status: Failed, At: noon.Add(time.Hour), Failure: TimedOut})
	for name, c := range map[string]struct {
		o    *Order
		u    Update
		want bool
	}{
		"Delivered after TimedOut":   {timedOut, late, true},
		"PickedUp after TimedOut":    {timedOut, Update{Kind: KindStatus, Status: PickedUp}, false},
		"accept after TimedOut":      {timedOut, Update{Kind: KindAccept, Status: Delivered}, false},
		"Delivered after incident":   {orderIn(Failed), late, true},
		"Delivered after Cancelled":  {orderIn(Cancelled), late, true},
		"Delivered after Delivered":  {orderIn(Delivered), late, false},
		"Delivered while Delivering": {orderIn(Delivering), late, false},
	} {
		got := LateDelivery(c.o, c.u)
		check(t, got == c.want, "%s: got %v", name, got)
		check(t, !c.want || Decide(c.o, c.u, noon).Action == Illegal, "%s is not illegal", name)
	}
}

// Any sequence of updates, cancellations and timeouts leaves a legal history.
//
//rule:order-states/the-five-non-terminal-rows-follow order-states/once-a-terminal-status-is
func TestHistories_AreLegalWhateverIsReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := orderIn(Searching)
		now := noon
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "pause")))
			step(t, o, now)
		}
		checkHistory(t, o, now)
	})
}

func step(t *rapid.T, o *Order, now time.Time) {
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		if o.Status.Cancellable() && o.Reported < PickedUp { // as the ledger cancels
			change := o.change(now)
			change.Status = Cancelled
			o.apply(change)
		}
		return
	case 1:
		if change, due, _ := DecideTimeout(o, now); due {
			o.apply(change)
		}
		return
	}

	u := Update{
		Kind:    UpdateKind(rapid.IntRange(0, 4).Draw(t, "kind")),
		Status:  Status(rapid.IntRange(0, 9).Draw(t, "status")),
		At:      now.Add(time.Duration(rapid.Int64Range(int64(-time.Hour), int64(time.Hour)).Draw(t, "at"))),
		Courier: rapid.SampledFrom([]Courier{{}, mehmet, ayse}).Draw(t, "courier"),
		Failure: rapid.SampledFrom(allReasons).Draw(t, "failure"),
		ETA:     rapid.SampledFrom([]time.Time{{}, now, now.Add(30 * time.Second), now.Add(time.Hour)}).Draw(t, "estimate"),
	}

	if u.Kind == KindStatus {
		u.Courier = Courier{} // who reports a status names nobody
	}

	o.LastCourierUpdate = now
	d := Decide(o, u, now)
	changes := d.Action == Move || d.Action == Swap || d.Action == Revise
	require(t, len(d.Changes) > 0 == changes, "%v with %d changes", d.Action, len(d.Changes))
	if changes {
		o.apply(d.Changes...)
	}

	again := Decide(o, u, now)
	require(t, len(again.Changes) == 0, "%+v, decided twice, makes %+v", u, again)
}

// checkHistory: dense, monotonic, nothing after the end, and between two statuses only another courier or
// another estimate, later than what it follows.
func checkHistory(t *rapid.T, o *Order, now time.Time) {
	status, at, courier := Searching, o.CreatedAt, Courier{}
	for i, c := range o.Changes {
		require(t, !status.Terminal(), "%v follows %v", c.Status, status)
		told := (&Order{OrderDraft: o.OrderDraft, Fleet: o.Fleet, CreatedAt: o.CreatedAt, Changes: o.Changes[:i]}).ToldDropoff()
		differs := c.ETA.Sub(told).Abs() >= minRevision
		legal := map[ChangeKind]bool{
			StatusReached: c.Status == status+1 && c.Status <= Delivered ||
				c.Status == Failed && c.Failure.LegalFrom(status) ||
				c.Status == Cancelled && status.Cancellable(),
			CourierNamed:    c.Status == status && courier.IsZero() && !c.Courier.IsZero(),
			CourierReplaced: c.Status == status && !courier.IsZero() && c.Courier != courier && !c.Courier.IsZero(),
			EstimateRevised: c.Status == status && c.Courier == courier && !c.ETA.IsZero() && (told.IsZero() || differs),
		}[c.Kind]

		isFailure := c.Kind == StatusReached && c.Status == Failed
		require(t, legal && isFailure == (c.Failure != ""), "kind %v: %v (%s) follows %v", c.Kind, c.Status, c.Failure, status)
		require(t, c.Kind == StatusReached || status != Searching && c.At.After(at), "kind %v in %v at %v, after %v", c.Kind, status, c.At, at)
		latest := now.Add(time.Duration(i) * time.Millisecond) // those between two statuses are a millisecond apart
		require(t, !c.At.Before(at) && !c.At.After(latest), "%v at %v, after %v, now %v", c.Status, c.At, at, now)
		status, at, courier = c.Status, c.At, c.Courier
	}

	require(t, o.Status == status && int(Sequence(o.Version)) == len(o.Changes)+1, "%v version %d with %d changes", o.Status, Sequence(o.Version), len(o.Changes))
}
