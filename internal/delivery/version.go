package delivery

import "time"

// A version says where in its history an order is, and no two histories share one. Its 64 bits are:
//
//	42  the time at which it was written, in milliseconds since versionEra, by Redis's clock
//	14  random bits
//	 8  the sequence: 1 at creation, one more with every change
//
// A master that fails over, or a backup that is restored, may take the last changes of an order back.
// The order then gets other changes with the same sequences. Their versions are greater, because time
// has passed, so that what reached ClickHouse before is replaced. And they differ, by the random bits
// even where the clocks of two machines disagree, so that no event id names two contents.
//
// As a floating-point number, which is how JavaScript reads it, a later version of an order is greater,
// too: its time is.
const (
	versionSequenceBits = 8
	versionRandomBits   = 14
	versionTimeShift    = versionSequenceBits + versionRandomBits
	versionLatest       = 1<<(64-versionTimeShift) - 1 // ms since versionEra; in the year 2159
)

// versionDistance is how far apart the versions of an order are in time. With a single millisecond random
// bits could make two of them equal as floating-point numbers.
const versionDistance = 2 * time.Millisecond

var versionEra = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// FirstVersion is the version of an order that is created at a time. It has no random bits, because no
// event is sent for it, and orders keep it only in the time of their creation.
func FirstVersion(created time.Time) uint64 { return ComposeVersion(created, 0, 1) }

// NextVersion is the version that follows another one of the same order when a change is written at a
// time. It is greater also when the clock has gone back. Of random only the low 14 bits count.
func NextVersion(previous uint64, at time.Time, random uint16) uint64 {
	soonest := VersionTime(previous).Add(versionDistance)
	if at.Before(soonest) {
		at = soonest
	}
	return ComposeVersion(at, random, Sequence(previous)+1)
}

// ComposeVersion puts a version together. Times outside of the era count as its first or its last
// millisecond; of random the low 14 bits are taken, of the sequence the low 8.
func ComposeVersion(at time.Time, random uint16, sequence uint32) uint64 {
	ms := min(max(at.Sub(versionEra).Milliseconds(), 0), versionLatest)
	randomBits := uint64(random) & (1<<versionRandomBits - 1)
	sequenceBits := uint64(sequence) & (1<<versionSequenceBits - 1)
	return uint64(ms)<<versionTimeShift | randomBits<<versionSequenceBits | sequenceBits
}

// Sequence is the place of a version in its order's history: 1 at creation, one more with every change.
func Sequence(version uint64) uint32 { return uint32(version & (1<<versionSequenceBits - 1)) }

// VersionTime is when the version was written, by Redis's clock.
func VersionTime(version uint64) time.Time {
	return versionEra.Add(time.Duration(version>>versionTimeShift) * time.Millisecond)
}

// VersionRandom is the random part of a version.
func VersionRandom(version uint64) uint16 {
	return uint16(version>>versionSequenceBits) & (1<<versionRandomBits - 1)
}
