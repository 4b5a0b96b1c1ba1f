package owner

import (
	"strconv"
	"testing"
	"time"

	"vendorapi/internal/ledger/partitions"
)

// polls lets a worker poll so many times while the workers named beat, and returns how often it reads the tokens.
func polls(s *sharing, now *time.Time, n int, tokens []partitions.Stored, beating ...string) (looks int) {
	for range n {
		*now = now.Add(pollEvery)
		workers := make(map[string]string)
		for _, name := range beating {
			workers[name] = strconv.FormatInt(now.UnixNano()/int64(beatEvery), 10)
		}

		if s.shouldLook(workers, "", *now) {
			looks++
			s.observe(len(tokens), numbered(tokens), workers, *now)
		}
	}

	return looks
}

func TestShouldLook_ReadsTokensOnceASecondWhileNothingChanges(t *testing.T) {
	s, now := &sharing{worker: "w 1"}, time.Unix(1_795_284_000, 0)
	tokens := []partitions.Stored{stored("w 1", 1, 1), stored("w 2", 1, 1)}
	polls(s, &now, 1, tokens, "w 1", "w 2")

	looks := polls(s, &now, 100, tokens, "w 1", "w 2")

	wantLooks := int(100 * pollEvery / lookEvery)
	if looks != wantLooks {
		t.Errorf("%d looks in 100 polls, want %d", looks, wantLooks)
	}

	wantWatched := 10 * time.Second
	if s.watched != wantWatched {
		t.Errorf("watched for %s, want %s: all time counts while looks succeed", s.watched, wantWatched)
	}
}

func TestShouldLook_AtOnceWhenWorkersChange(t *testing.T) {
	s, now := &sharing{worker: "w 1"}, time.Unix(1_795_284_000, 0)
	tokens := []partitions.Stored{stored("w 1", 1, 1), stored("w 2", 1, 1)}
	polls(s, &now, 1, tokens, "w 1", "w 2")

	check := func(what string, looks, want int) {
		t.Helper()
		if looks != want {
			t.Errorf("%s: %d looks, want %d", what, looks, want)
		}
	}

	check("nothing has changed", polls(s, &now, 1, tokens, "w 1", "w 2"), 0)
	check("a worker has come", polls(s, &now, 1, tokens, "w 1", "w 2", "w 3"), 1)
	check("it is known", polls(s, &now, 1, tokens, "w 1", "w 2", "w 3"), 0)
	check("it has gone, another has come", polls(s, &now, 1, tokens, "w 1", "w 2", "w 4"), 1)
	check("it has gone", polls(s, &now, 1, tokens, "w 1", "w 2"), 1)
	if !s.shouldLook(map[string]string{"w 1": "1", "w 2": "1"}, "7", now) {
		t.Error("some worker has given something up: no look")
	}

	check("an owner's name has gone", polls(s, &now, 5, tokens, "w 1"), 5)
}

func TestShouldLook_AtEveryPollWhileAnOwnerIsSilent(t *testing.T) {
	s, now := &sharing{worker: "w 1"}, time.Unix(1_795_284_000, 0)
	tokens := []partitions.Stored{stored("w 1", 1, 1), stored("w 2", 1, 1)}
	workers := map[string]string{"w 1": "1", "w 2": "1"}
	looks := 0
	for range 30 {
		now = now.Add(pollEvery)
		workers["w 1"] += "1"
		if s.shouldLook(workers, "", now) {
			looks++
			s.observe(len(tokens), numbered(tokens), workers, now)
		}
	}

	want := 1 + int((30*pollEvery-suspectAfter)/pollEvery)
	if looks != want {
		t.Errorf("%d looks in 30 polls, want %d", looks, want)
	}
}

func TestTurn_PublishesPositionsSeldomWhileNothingChanges(t *testing.T) {
	now := time.Unix(1_795_284_000, 0)
	token := partitions.Token{Owner: "w 1", Epoch: 1, Events: "5-0", Updates: "6-0", Webhooks: "5-0"}
	publishes := func(since time.Duration, edit func(*partitions.Token)) bool {
		p := &partition{Owned: &partitions.Owned{Token: token, From: "5-0"}, groupPositionsAt: now.Add(-since)}
		p.groupPositions = p.positions()
		turn := &turn{partition: p, step: &partitions.Step{Token: token}}
		edit(&turn.step.Token)
		return turn.shouldPublishPositions(now)
	}

	idle := func(*partitions.Token) {}
	moved := func(t *partitions.Token) { t.Updates = "7-0" }
	leaves := func(t *partitions.Token) { t.Owner = "" }

	for _, c := range []struct {
		name  string
		since time.Duration
		edit  func(*partitions.Token)
		want  bool
	}{
		{"idle", renewEvery, idle, false},
		{"idle for long: somebody may have destroyed the groups", positionsIdleEvery, idle, true},
		{"got on", positionsEvery, moved, true},
		{"got on, and has just published", positionsEvery - 1, moved, false},
		{"gives up", 0, leaves, true},
	} {
		got := publishes(c.since, c.edit)
		if got != c.want {
			t.Errorf("%s: publishes %t, want %t", c.name, got, c.want)
		}
	}
}
