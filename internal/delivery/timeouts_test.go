package delivery

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

//rule:states/searching
func TestFirstTimeout_IsTheEndOfTheSearch(t *testing.T) {
	o := orderIn(Searching)
	for name, c := range map[string]struct {
		readyAt time.Time
		want    time.Time
	}{
		"ready at once":           {noon, noon.Add(15 * time.Minute)},
		"ready in pickup time":    {noon.Add(10 * time.Minute), noon.Add(15 * time.Minute)},
		"ready in half an hour":   {noon.Add(30 * time.Minute), noon.Add(35 * time.Minute)},
		"pre-order of four hours": {noon.Add(4 * time.Hour), noon.Add(4*time.Hour + 5*time.Minute)},
	} {
		o.ReadyAt = c.readyAt
		if _, _, got := DecideTimeout(o, o.CreatedAt); !got.Equal(c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}

	if _, due, got := DecideTimeout(orderIn(Delivered), noon); due || !got.IsZero() {
		t.Errorf("a terminal order: %v", got)
	}
}

//rule:order-states/an-order-lives-for-under states/searching states/every-order-reaches-a-terminal
func TestDecideTimeout_EndsSearchesAndLives(t *testing.T) {
	// Ready at 12:20, so the search ends at 12:25 and the life at 13:15.
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 21, hour, minute, 0, 0, Istanbul) }
	for name, c := range map[string]struct {
		status Status
		last   time.Time
		now    time.Time
		reason FailureReason // empty: not due
		next   time.Time
	}{
		"searching":                             {Searching, time.Time{}, at(12, 24), "", at(12, 25)},
		"searched enough":                       {Searching, time.Time{}, at(12, 25), NoCourierFound, time.Time{}},
		"searched for hours":                    {Searching, time.Time{}, at(15, 0), NoCourierFound, time.Time{}},
		"position of a stranger":                {Searching, at(12, 24), at(12, 25), NoCourierFound, time.Time{}},
		"assigned":                              {Assigned, at(12, 1), at(12, 30), "", at(13, 15)},
		"assigned, life over":                   {Assigned, at(12, 1), at(13, 15), TimedOut, time.Time{}},
		"never reported":                        {PickingUp, time.Time{}, at(13, 15), TimedOut, time.Time{}},
		"picked up, reported lately":            {PickedUp, at(13, 10), at(13, 15), "", at(13, 25)},
		"delivering, reported 15 min ago":       {Delivering, at(13, 0), at(13, 15), TimedOut, time.Time{}},
		"delivering, just under 15 min":         {Delivering, at(13, 1), at(13, 15), "", at(13, 16)},
		"delivering, silent afterwards":         {Delivering, at(14, 0), at(14, 15), TimedOut, time.Time{}},
		"delivering, reported after four hours": {Delivering, at(16, 19), at(16, 20), TimedOut, time.Time{}},
		"delivering, just under four hours":     {Delivering, at(16, 19), at(16, 19), "", at(16, 20)},
		"delivered":                             {Delivered, at(12, 1), at(20, 0), "", time.Time{}},
		"failed":                                {Failed, at(12, 1), at(20, 0), "", time.Time{}},
		"cancelled":                             {Cancelled, at(12, 1), at(20, 0), "", time.Time{}},
	} {
		o := orderIn(c.status)
		o.LastCourierUpdate, o.Location = c.last, Location{Point{41, 29}, noon}
		change, due, next := DecideTimeout(o, c.now)
		want := Change{}
		if c.reason != "" {
			want = Change{Status: Failed, At: c.now, Courier: o.Courier, Location: o.Location, Failure: c.reason}
		}
		check(t, change == want && due == (c.reason != "") && next.Equal(c.next), "%s: got %+v, %v, %v", name, change, due, next)
	}
}

// Whoever looks again at the time it returns ends every order, with a legal reason.
//
//rule:order-states/an-order-lives-for-under states/every-order-reaches-a-terminal
func TestTimeouts_EndEveryOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := orderIn(Status(rapid.IntRange(int(Searching), int(Delivering)).Draw(t, "status")))
		o.ReadyAt = noon.Add(time.Duration(rapid.IntRange(0, 240).Draw(t, "ready in")) * time.Minute)
		o.Fleet.PickupMinutes = rapid.IntRange(0, 60).Draw(t, "pickup")
		now := o.UpdatedAt()
		for looks := 0; ; looks++ {
			if rapid.Bool().Draw(t, "reported") { // however often
				o.LastCourierUpdate = now
			}

			change, due, next := DecideTimeout(o, now)
			if due {
				require(t, change.Failure.LegalFrom(o.Status) && !change.At.Before(o.UpdatedAt()), "%v ends with %+v", o.Status, change)
				return
			}

			require(t, next.After(now) && looks <= 20, "look %d at %v leads to %v", looks, now, next)
			now = next
		}
	})
}

func TestOverdue_IsWhatNoTimerHasEnded(t *testing.T) {
	end := noon.Add(30 * time.Minute).Add(LongestLife)
	for name, c := range map[string]struct {
		status Status
		now    time.Time
		want   bool
	}{
		"at the end of its longest life": {Delivering, end, false},
		"behind it":                      {Delivering, end.Add(time.Second), true},
		"nobody was ever found":          {Searching, end.Add(time.Second), true},
		"it has ended":                   {Delivered, end.Add(time.Second), false},
	} {
		o := orderIn(c.status)
		o.ReadyAt = noon.Add(30 * time.Minute)
		o.LastCourierUpdate = c.now

		check(t, o.Overdue(c.now) == c.want, "%s: %t", name, o.Overdue(c.now))
	}
}
