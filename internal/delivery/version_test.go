package delivery

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the clock does, the versions of an order grow, also for a client that reads them as
// floating-point numbers, and say which change they are.
func TestNextVersion_GrowsWhateverTheClockDoes(t *testing.T) {
	t.Parallel()

	clock := rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMilli(rapid.Int64Range(0, 5e12).Draw(t, "ms")) // 1970 to 2128
	})
	rapid.Check(t, func(t *rapid.T) {
		version := FirstVersion(clock.Draw(t, "created"))
		for sequence := uint32(2); sequence < 12; sequence++ {
			previous := version
			version = NextVersion(previous, clock.Draw(t, "at"), rapid.Uint16().Draw(t, "random"))
			if version <= previous || float64(version) <= float64(previous) {
				t.Fatalf("%x after %x", version, previous)
			}
			if Sequence(version) != sequence {
				t.Fatalf("%x has sequence %d, want %d", version, Sequence(version), sequence)
			}
		}
	})
}

func TestComposeVersion_KeepsItsParts(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		at := versionEra.Add(time.Duration(rapid.Int64Range(0, versionLatest).Draw(t, "ms")) * time.Millisecond)
		random := rapid.Uint16Range(0, 1<<versionRandomBits-1).Draw(t, "random")
		sequence := rapid.Uint32Range(0, 255).Draw(t, "sequence")
		version := ComposeVersion(at, random, sequence)
		if !VersionTime(version).Equal(at) || VersionRandom(version) != random || Sequence(version) != sequence {
			t.Fatalf("%x of %s, %d, %d", version, at, random, sequence)
		}
	})
}

// A failover may take a change back, and another one be written in its place, by a machine whose clock
// shows the very same moment.
func TestNextVersion_DiffersInTheSameMillisecond(t *testing.T) {
	t.Parallel()

	now := time.Now()
	created := FirstVersion(now)

	lost := NextVersion(created, now, 1)
	kept := NextVersion(created, now, 2)

	if lost == kept {
		t.Errorf("%x twice", lost)
	}
}

func TestComposeVersion_CutsPartsThatAreTooLarge(t *testing.T) {
	t.Parallel()

	beyond := time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC)

	version := ComposeVersion(beyond, 1<<15|5, 256|3)

	if VersionRandom(version) != 5 || Sequence(version) != 3 {
		t.Errorf("%x: a part has run into its neighbour", version)
	}
}
