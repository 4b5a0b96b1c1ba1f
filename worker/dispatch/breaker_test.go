package dispatch

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

const moment = 1_800_000_000_000 // ms

func TestBreaker_Fails(t *testing.T) {
	for name, c := range map[string]struct {
		before breaker
		pause  int64
		first  int64
		want   breaker
	}{
		"first":                          {breaker{}, 0, never, breaker{Failures: 1}},
		"busy":                           {breaker{}, 1, never, breaker{Failures: 1, Rate: 10, Calm: 10, Hold: moment + 1000}},
		"busy, asks for long":            {breaker{}, 90_000, never, breaker{Failures: 1, Rate: 10, Calm: 10, Hold: moment + 90_000}},
		"busy, asks for too long":        {breaker{}, 86_400_000, never, breaker{Failures: 1, Rate: 10, Calm: 10, Hold: moment + 3_600_000}},
		"busy while it recovers":         {breaker{Rate: 300}, 1, never, breaker{Failures: 1, Rate: 150, Calm: 150, Hold: moment + 1000}},
		"least rate":                     {breaker{Rate: 1.5, Calm: 1.5}, 1, never, breaker{Failures: 1, Rate: 1, Calm: 1, Hold: moment + 1000}},
		"in flight when held":            {breaker{Failures: 1, Rate: 10, Calm: 10, Hold: moment + 500}, 0, never, breaker{Failures: 2, Rate: 10, Calm: 10, Hold: moment + 500}},
		"in flight when held, asks more": {breaker{Failures: 1, Rate: 10, Calm: 10, Hold: moment + 500}, 600, never, breaker{Failures: 2, Rate: 10, Calm: 10, Hold: moment + 600}},
		"opens":                          {breaker{Failures: 4, Rate: 40, Calm: 20, Forward: 7}, 0, never, breaker{Failures: 5, Open: true, Calm: 20, Since: moment, Hold: moment + 1000}},
		"opens and asks for long":        {breaker{Failures: 4}, 5000, never, breaker{Failures: 5, Open: true, Since: moment, Hold: moment + 5000}},
		"opens while held":               {breaker{Failures: 4, Hold: moment + 60_000}, 0, never, breaker{Failures: 5, Open: true, Since: moment, Hold: moment + 60_000}},
		"opens, an event is due soon":    {breaker{Failures: 4}, 0, moment + 1500, breaker{Failures: 5, Open: true, Since: moment, Hold: moment + 1500}},
		"opens, one is due very soon":    {breaker{Failures: 4}, 0, moment + 10, breaker{Failures: 5, Open: true, Since: moment, Hold: moment + 1000}},
		"opens, one is due now":          {breaker{Failures: 4}, 0, moment, breaker{Failures: 5, Open: true, Since: moment, Hold: moment + 1000}},
		"opens, one is due later":        {breaker{Failures: 4}, 0, moment + 2001, breaker{Failures: 5, Open: true, Since: moment, Hold: moment + 1000}},
		"second probe":                   {breaker{Failures: 5, Open: true, Since: 1}, 0, never, breaker{Failures: 6, Probes: 1, Open: true, Since: 1, Hold: moment + 2000}},
		"fifth probe":                    {breaker{Failures: 5, Probes: 3, Open: true}, 0, never, breaker{Failures: 6, Probes: 4, Open: true, Hold: moment + 16_000}},
		"sixth probe":                    {breaker{Failures: 5, Probes: 4, Open: true}, 0, never, breaker{Failures: 6, Probes: 5, Open: true, Hold: moment + 30_000}},
		"probe that asks for long":       {breaker{Failures: 5, Open: true}, 600_000, never, breaker{Failures: 6, Probes: 1, Open: true, Hold: moment + 600_000}},
		"probe that asks for too long":   {breaker{Failures: 5, Open: true}, 86_400_000, never, breaker{Failures: 6, Probes: 1, Open: true, Hold: moment + 3_600_000}},
		"probe that asks for little":     {breaker{Failures: 5, Open: true}, 1, never, breaker{Failures: 6, Probes: 1, Open: true, Hold: moment + 2000}},
		"late probe":                     {breaker{Failures: 5, Probes: 900, Open: true}, 0, never, breaker{Failures: 6, Probes: 901, Open: true, Hold: moment + 30_000}},
		"straggler before the probe":     {breaker{Failures: 5, Open: true, Hold: moment + 1}, 0, never, breaker{Failures: 6, Open: true, Hold: moment + 1}},
		"straggler asks for long":        {breaker{Failures: 5, Open: true, Hold: moment + 1}, 9000, never, breaker{Failures: 6, Open: true, Hold: moment + 9000}},
		"counts no further":              {breaker{Failures: math.MaxUint16, Probes: math.MaxUint16, Open: true}, 0, never, breaker{Failures: math.MaxUint16, Probes: math.MaxUint16, Open: true, Hold: moment + 30_000}},
	} {
		b := c.before
		b.fail(moment, c.pause, 5, c.first)
		if b != c.want {
			t.Errorf("%s: %+v\nwant %+v", name, b, c.want)
		}
	}
}

func TestBreaker_Succeeds(t *testing.T) {
	for name, c := range map[string]struct{ before, want breaker }{
		"closed":              {breaker{Failures: 3}, breaker{}},
		"open":                {breaker{Failures: 9, Probes: 4, Open: true, Since: 7, Hold: moment + 5, Calm: 3}, breaker{Rate: 10, Forward: moment, Since: 7}},
		"grows":               {breaker{Rate: 10, Failures: 1}, breaker{Rate: 11}},
		"grows up to calm":    {breaker{Rate: 39, Calm: 40, Hold: moment}, breaker{Rate: 40, Calm: 40, Hold: moment}},
		"grows from calm":     {breaker{Rate: 40, Calm: 40, Hold: moment - 250}, breaker{Rate: 42.5, Calm: 40, Hold: moment - 250}},
		"after a minute":      {breaker{Rate: 40, Calm: 40, Hold: moment - 60_000}, breaker{Rate: 640, Calm: 40, Hold: moment - 60_000}},
		"never less":          {breaker{Rate: 50, Calm: 40, Hold: moment - 1}, breaker{Rate: 50, Calm: 40, Hold: moment - 1}},
		"last step":           {breaker{Rate: 1998.5}, breaker{Rate: 1999.5}},
		"full":                {breaker{Rate: 1999}, breaker{}},
		"full, slowly":        {breaker{Rate: 100, Calm: 100, Hold: moment - 190_000}, breaker{Hold: moment - 190_000}},
		"full during a pause": {breaker{Rate: 1999.5, Hold: moment + 30_000}, breaker{Hold: moment + 30_000}},
	} {
		b := c.before
		b.succeed(moment)
		if b != c.want {
			t.Errorf("%s: %+v\nwant %+v", name, b, c.want)
		}
	}
}

func TestBreaker_EndsRecovery(t *testing.T) {
	for _, c := range []struct{ before, want breaker }{
		{breaker{Rate: 10, Forward: 5}, breaker{}},
		{breaker{Rate: 10, Calm: 20}, breaker{Rate: 10, Calm: 20}},
		{breaker{Open: true, Failures: 5}, breaker{Open: true, Failures: 5}},
	} {
		b := c.before
		b.endRecovery()
		if b != c.want {
			t.Errorf("%+v, want %+v", b, c.want)
		}
	}
}

func TestBreaker_IsStoredWhenItTurns(t *testing.T) {
	for _, c := range []struct {
		was, is breaker
		want    bool
	}{
		{breaker{Rate: 10}, breaker{Rate: 11}, false},
		{breaker{Failures: 1}, breaker{Failures: 2}, false},
		{breaker{}, breaker{Rate: 10}, true},
		{breaker{Rate: 1999}, breaker{}, true},
		{breaker{Open: true}, breaker{Open: true, Hold: 1}, true},
		{breaker{Open: true, Failures: 5}, breaker{Rate: 10, Forward: 1}, true},
	} {
		if got := c.is.turned(c.was); got != c.want {
			t.Errorf("from %+v to %+v: %v", c.was, c.is, got)
		}
	}

	held := breaker{Hold: moment}
	if b := held.stored(moment); b != (breaker{}) {
		t.Errorf("what holds nothing back is stored as %+v", b)
	}
	if b := held.stored(moment - 1); b != held {
		t.Errorf("stored as %+v", b)
	}
}

// In every window no more goes than the burst and the rate allow, and what waits goes when next
// says.
func TestBreaker_BucketIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Float64Range(1, 10_000).Draw(rt, "rate")
		var b bucket
		now := int64(moment)
		var sent []int64
		for range rapid.IntRange(1, 300).Draw(rt, "events") {
			now += rapid.Int64Range(0, int64(3000/rate)).Draw(rt, "gap")
			if next := b.next(now, rate); next > now {
				if b.next(next-2, rate) == 0 { // rounding
					rt.Fatalf("it could have gone before %d", next)
				}

				now = next
				if b.next(now, rate) > now+1 { // rounding
					rt.Fatalf("at %d it has to wait until %d", now, b.next(now, rate))
				}

				for b.next(now, rate) > now {
					now++
				}
			}

			b.take(now, rate)
			sent = append(sent, now)
		}

		for first := range sent {
			for last := first; last < len(sent); last++ {
				most := max(2, rate/5) + rate*float64(sent[last]-sent[first])/1000
				if n := float64(last - first + 1); n > most+1e-3 {
					rt.Fatalf("%v events in %d ms at %v per second", n, sent[last]-sent[first], rate)
				}
			}
		}
	})
}
