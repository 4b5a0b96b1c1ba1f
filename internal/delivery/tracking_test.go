package delivery

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

var trackedDay = time.Date(2026, 11, 21, 22, 30, 0, 0, time.UTC)

func trackedOrder(at time.Time) OrderID {
	return MakeOrderID(3, DayOf(at), OrderDigest(AccountID{1}, "POS-1"))
}

func trackingRing(kids ...string) TrackingKeys {
	k := TrackingKeys{Current: kids[0], Keys: map[string][]byte{}}
	for i, kid := range kids {
		k.Keys[kid] = bytes.Repeat([]byte{byte(len(kids) - i)}, 32)
	}
	return k
}

// with adds a key in front, as a rotation does.
func (k TrackingKeys) with(kid string) TrackingKeys {
	next := TrackingKeys{Current: kid, Keys: map[string][]byte{kid: bytes.Repeat([]byte{0xee}, 32)}}
	for kid, key := range k.Keys {
		next.Keys[kid] = key
	}
	return next
}

func TestTracking_TokenLeadsBackToItsOrder(t *testing.T) {
	k, id := trackingRing("t1"), trackedOrder(trackedDay)
	token := k.Token(id)
	got, err := k.Parse(token)
	check(t, err == nil && got == id, "got %s, %v", got, err)
	check(t, token == k.Token(id), "two tokens for one order")
	check(t, !strings.ContainsAny(token, "+/="), "%q needs escaping in a URL", token)
	other := trackedOrder(trackedDay.AddDate(0, 0, 1))
	check(t, k.Token(other) != token, "one token for two orders")
}

//rule:decisions/trackingUrl
func TestTracking_RefusesWhatItDidNotMake(t *testing.T) {
	k, id := trackingRing("t1"), trackedOrder(trackedDay)
	token := k.Token(id)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	must(t, err)
	for i := range raw {
		forged := bytes.Clone(raw)
		forged[i] ^= 1
		if got, err := k.Parse(base64.RawURLEncoding.EncodeToString(forged)); err == nil {
			t.Errorf("byte %d changed: leads to %s", i, got)
		}
	}

	otherKey := TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": make([]byte, 32)}}
	for name, forged := range map[string]string{
		"empty":       "",
		"order id":    id.String(),
		"no base64":   token[:len(token)-1] + "!",
		"cut":         token[:40],
		"longer":      token + "AA",
		"padded":      token + "==",
		"line break":  token[:8] + "\n" + token[8:],
		"another key": otherKey.Token(id),
		"retired key": trackingRing("t0").Token(id),
	} {
		if got, err := k.Parse(forged); err == nil {
			t.Errorf("%s: leads to %s", name, got)
		}
	}
}

func TestTracking_RotationKeepsGivenLinks(t *testing.T) {
	before := trackingRing("t1")
	rotated := before.with("t2-20261122")
	id, next := trackedOrder(trackedDay), trackedOrder(trackedDay.AddDate(0, 0, 1))
	check(t, before.Token(id) == rotated.Token(id), "a replay after the rotation carries another link")
	check(t, before.Token(next) != rotated.Token(next), "the new key does not sign from its day on")
	again := rotated.with("t3-20270101")
	check(t, rotated.Token(id) == again.Token(id) && rotated.Token(next) == again.Token(next), "a second rotation changed links of earlier days")
	for _, token := range []string{before.Token(id), rotated.Token(next)} {
		if _, err := again.Parse(token); err != nil {
			t.Errorf("an old link no longer opens: %v", err)
		}
	}

	retired := again
	retired.Keys = map[string][]byte{again.Current: again.Keys[again.Current]}
	if _, err := retired.Parse(before.Token(id)); err == nil {
		t.Error("a link of a retired key opens")
	}
}

func TestTracking_OrdersBeforeEveryKeyUseTheCurrentOne(t *testing.T) {
	k := trackingRing("t2-20270101", "t3-20280101")
	id := trackedOrder(trackedDay)
	got, err := k.Parse(k.Token(id))
	check(t, err == nil && got == id, "got %s, %v", got, err)
}

func TestTracking_CheckRefusesAmbiguousRings(t *testing.T) {
	for name, c := range map[string]struct {
		ring TrackingKeys
		ok   bool
	}{
		"one":                   {trackingRing("t1"), true},
		"one with a day":        {trackingRing("t2-20261122"), true},
		"rotation":              {trackingRing("t2-20261122", "t1"), true},
		"two without a day":     {trackingRing("t2", "t1"), false},
		"a day that is no day":  {trackingRing("t2-20261322", "t1"), false},
		"two on the same day":   {trackingRing("a-20261122", "b-20261122"), false},
		"current is missing":    {TrackingKeys{Current: "x", Keys: trackingRing("t1").Keys}, false},
		"empty":                 {TrackingKeys{}, false},
		"dash in the name only": {trackingRing("my-key", "t2-20261122"), true},
	} {
		err := c.ring.Check()
		check(t, (err == nil) == c.ok, "%s: %v", name, err)
	}
}

func TestTrackingSigner_MakesTheRingsTokens(t *testing.T) {
	k := trackingRing("t1", "t2-20261122")
	s := k.Signer()
	for _, at := range []time.Time{trackedDay, trackedDay.AddDate(0, 0, 1), trackedDay} { // each key, and one again
		id := trackedOrder(at)
		got := string(s.AppendToken([]byte("https://x/"), id))
		check(t, got == "https://x/"+k.Token(id), "signed %s, want %s", got, k.Token(id))
	}
}
