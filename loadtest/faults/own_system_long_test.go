//go:build long

package main

import (
	"slices"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// briefForm is the form of `make test-long`: the same rounds, short. It demands nothing
// of the time that anything takes, only that it ends.
var briefForm = form{
	wide:     4,
	ordinary: 4,
	phase:    time.Second,
	timeout:  2 * time.Minute,

	share:    0.5,
	quick:    time.Minute,
	recovery: time.Minute,
	normal:   time.Minute,

	load:        3 * time.Second,
	times:       10,
	connections: 256,
	maxInFlight: "64",

	pastTime: 5_000,

	neighbour: time.Second,
	punctual:  0.5,
	ratio:     1000,
	fleets:    3,
}

func TestOwnSystems_FiguresAreAsWanted(t *testing.T) {
	bin := testserver.Programs(t)
	faults, err := loadFaults(&options{overload: true})
	noError(t, err)
	for _, f := range faults {
		if f.Name == "clickhouse" {
			continue // the reporting tests kill ClickHouse
		}

		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()

			s := newSuite(options{form: briefForm}, t.Output())
			s.dir, s.plainBin = t.TempDir(), bin

			err := s.playOwn(t.Context(), []fault{f})

			noError(t, err)
			if s.result.Rounds != 1 {
				t.Errorf("%d rounds, want 1", s.result.Rounds)
			}

			for _, v := range s.result.Violations {
				t.Error(v)
			}
		})
	}
}

func TestLoadFaults_ThoseWithSystemsOfTheirOwnAreAskedFor(t *testing.T) {
	t.Parallel()

	plain, err := loadFaults(new(options))
	noError(t, err)
	long, err := loadFaults(&options{overload: true})
	noError(t, err)
	named, err := loadFaults(&options{only: "load,kill-redis,memory"})
	noError(t, err)

	if shared, own := bySystem(plain); len(shared) == 0 || len(own) > 0 {
		t.Errorf("a plain run plays %d on its system, %d on others", len(shared), len(own))
	}
	if shared, own := bySystem(long); len(shared) > 0 || len(own) != len(ownActions) {
		t.Errorf("-overload plays %d on its system, %d on others, want 0 and %d", len(shared), len(own), len(ownActions))
	}

	shared, own := bySystem(named)
	isNamed := func(f fault) bool { return slices.Contains([]string{"load", "memory"}, f.Name) }
	if len(shared) != 1 || len(own) != 2 || !isNamed(own[0]) || !isNamed(own[1]) {
		t.Errorf("-only plays %v and %v", shared, own)
	}
}
