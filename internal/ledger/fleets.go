package ledger

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// fleetPoll is how often the fleets' version is asked for: a change holds on
// every gateway within a second (design section 5).
const fleetPoll = 250 * time.Millisecond

// updateTries bounds how often a change is applied anew because somebody else
// wrote in between.
const updateTries = 16

// storedFleet is a fleet with its credentials.
type storedFleet struct {
	delivery.Fleet
	secretHash string
	// oldSecretHash works until oldUntil, Unix milliseconds; empty: there is none.
	oldSecretHash string
	oldUntil      int64
	record        string // as read, for the comparison
}

func appendFleet(b []byte, f *storedFleet) []byte {
	b = append(b, recordFormat)
	b = appendText(b, f.Name)
	b = appendText(b, f.SubRegion)
	b = binary.AppendUvarint(b, uint64(f.DeliveryMinutes))
	b = binary.AppendUvarint(b, uint64(f.PickupMinutes))
	b = append(b, flag(f.Suspended)...)
	b = binary.AppendUvarint(b, uint64(f.Couriers+1))
	b = appendText(b, f.secretHash)
	b = appendText(b, string(f.Coverage.JSON()))
	if f.oldSecretHash == "" {
		return b // as programs wrote it that knew of one secret only
	}
	b = appendText(b, f.oldSecretHash)
	return binary.AppendUvarint(b, uint64(f.oldUntil))
}

func decodeFleet(id delivery.FleetID, record string) (*storedFleet, error) {
	r := fields{rest: record}
	if r.byte() != recordFormat {
		return nil, fmt.Errorf("fleet record: %w", errShortRecord)
	}
	f := &storedFleet{record: record}
	f.ID = id
	f.Name = r.text()
	f.SubRegion = r.text()
	f.DeliveryMinutes = int(r.uvarint())
	f.PickupMinutes = int(r.uvarint())
	f.Suspended = r.byte() == '1'
	f.Couriers = int(r.uvarint()) - 1
	f.secretHash = r.text()
	coverage := r.text()
	if r.rest != "" {
		f.oldSecretHash, f.oldUntil = r.text(), int64(r.uvarint())
	}
	if r.err != nil {
		return nil, fmt.Errorf("fleet record: %w", r.err)
	}
	var err error
	if f.Coverage, err = delivery.ParseCoverage([]byte(coverage)); err != nil {
		return nil, fmt.Errorf("fleet %s: %w", id, err)
	}
	return f, nil
}

func (l *Ledger) fleetKeys() []string {
	return []string{l.global.prefix + "fleets", l.global.prefix + "meta"}
}

// CreateFleet stores a new fleet with the SHA-256 of its client secret.
func (l *Ledger) CreateFleet(ctx context.Context, f *delivery.Fleet, secretHash [32]byte) error {
	stored := &storedFleet{Fleet: *f, secretHash: string(secretHash[:])}
	reply, err := l.runText(ctx, l.scripts.writeFleet, l.fleetKeys(), f.ID[:], "", appendFleet(nil, stored))
	if err == nil && reply == "conflict" {
		err = fmt.Errorf("fleet %s: %w", f.ID, ErrConflict)
	}
	return err
}

// UpdateFleet reads a fleet, applies change, and writes it if nobody wrote in
// between; otherwise it starts again with what is there. FLEET_NOT_FOUND; an
// error of change is returned as it is.
func (l *Ledger) UpdateFleet(ctx context.Context, id delivery.FleetID, change func(*delivery.Fleet) error) (*delivery.Fleet, error) {
	return l.updateFleet(ctx, id, func(f *storedFleet) error { return change(&f.Fleet) })
}

// RotateFleetSecret replaces the client secret; the old one works until
// oldValidUntil. A repeated call with the same hash keeps the old one old.
// FLEET_NOT_FOUND.
func (l *Ledger) RotateFleetSecret(ctx context.Context, id delivery.FleetID, secretHash [32]byte, oldValidUntil time.Time) error {
	_, err := l.updateFleet(ctx, id, func(f *storedFleet) error {
		if f.secretHash != string(secretHash[:]) {
			f.oldSecretHash, f.oldUntil = f.secretHash, oldValidUntil.UnixMilli()
			f.secretHash = string(secretHash[:])
		}
		return nil
	})
	return err
}

func (l *Ledger) updateFleet(ctx context.Context, id delivery.FleetID, change func(*storedFleet) error) (*delivery.Fleet, error) {
	for range updateTries {
		record, err := l.rdb.HGet(ctx, l.fleetKeys()[0], string(id[:])).Result()
		if errors.Is(err, redis.Nil) {
			return nil, delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
		}
		if err != nil {
			return nil, fmt.Errorf("reading a fleet: %w", failure(err))
		}
		f, err := decodeFleet(id, record)
		if err != nil {
			return nil, err
		}
		if err := change(f); err != nil {
			return nil, err
		}
		reply, err := l.runText(ctx, l.scripts.writeFleet, l.fleetKeys(), id[:], record, appendFleet(nil, f))
		if err != nil {
			return nil, err
		}
		if reply != "conflict" {
			return &f.Fleet, nil
		}
	}
	return nil, fmt.Errorf("fleet %s: %w", id, ErrConflict)
}

// FleetSnapshot is every fleet as of one version. It is immutable.
type FleetSnapshot struct {
	version string
	all     []*delivery.Fleet // by name
	byID    map[delivery.FleetID]*storedFleet
}

// All lists the fleets by name.
func (s *FleetSnapshot) All() []*delivery.Fleet { return s.all }

// Fleet finds a fleet; nil when there is none.
func (s *FleetSnapshot) Fleet(id delivery.FleetID) *delivery.Fleet {
	if f := s.byID[id]; f != nil {
		return &f.Fleet
	}
	return nil
}

// AppendCandidates appends what an order at p must be judged against: every
// fleet that covers it, and every suspended one.
func (s *FleetSnapshot) AppendCandidates(dst []Candidate, p delivery.Point) []Candidate {
	for _, f := range s.all {
		covers := f.Coverage.Contains(p)
		if covers || f.Suspended {
			dst = append(dst, Candidate{Terms: f.Terms(), Covers: covers, Suspended: f.Suspended, NoCouriers: f.Couriers == 0})
		}
	}
	return dst
}

// Covering lists the fleets that serve p by name, suspended ones included.
func (s *FleetSnapshot) Covering(p delivery.Point) []*delivery.Fleet {
	var serving []*delivery.Fleet
	for _, f := range s.all {
		if f.Coverage.Contains(p) {
			serving = append(serving, f)
		}
	}
	return serving
}

// VerifyFleetSecret compares the SHA-256 of a client secret with the snapshot's,
// in constant time; false for an unknown fleet too. A secret that was replaced is
// right until its time is over.
func (l *Ledger) VerifyFleetSecret(id delivery.FleetID, secretHash [32]byte, now time.Time) bool {
	s := l.fleets.Load()
	if s == nil {
		return false
	}
	f := s.byID[id]
	if f == nil {
		return false
	}
	current := subtle.ConstantTimeCompare([]byte(f.secretHash), secretHash[:])
	old := subtle.ConstantTimeCompare([]byte(f.oldSecretHash), secretHash[:])
	return current == 1 || old == 1 && now.UnixMilli() < f.oldUntil
}

// Fleets is the latest snapshot; nil before the first was loaded.
func (l *Ledger) Fleets() *FleetSnapshot { return l.fleets.Load() }

// LoadFleets makes the snapshot anew if anything has changed. Fleets that are
// unchanged keep their parsed coverage.
func (l *Ledger) LoadFleets(ctx context.Context) error {
	keys, before := l.fleetKeys(), l.fleets.Load()
	meta, err := l.rdb.HMGet(ctx, keys[1], "fleets", "epoch").Result()
	if err != nil {
		return fmt.Errorf("reading the fleets' version: %w", failure(err))
	}
	if epoch, err := metaNumber(meta, 1); err == nil {
		l.raiseEpoch(uint32(epoch))
	}
	version, _ := meta[0].(string)
	if before != nil && before.version == version {
		return nil
	}
	records, err := l.rdb.HGetAll(ctx, keys[0]).Result()
	if err != nil {
		return fmt.Errorf("reading the fleets: %w", failure(err))
	}
	s, err := newFleetSnapshot(version, records, before)
	if err != nil {
		return err
	}
	if !l.fleets.CompareAndSwap(before, s) {
		return l.LoadFleets(ctx) // another call was quicker: this snapshot may be the older one
	}
	return nil
}

// raiseEpoch takes over an epoch that was read or written. It never goes back: a
// reply may be older than what this process has learned since it was asked for.
func (l *Ledger) raiseEpoch(epoch uint32) {
	for {
		known := l.epoch.Load()
		if epoch <= known || l.epoch.CompareAndSwap(known, epoch) {
			return
		}
	}
}

func newFleetSnapshot(version string, records map[string]string, before *FleetSnapshot) (*FleetSnapshot, error) {
	s := &FleetSnapshot{version: version, byID: make(map[delivery.FleetID]*storedFleet, len(records))}
	for raw, record := range records {
		if len(raw) != 16 {
			return nil, fmt.Errorf("a fleet is stored under %d bytes instead of 16", len(raw))
		}
		id := delivery.FleetID([]byte(raw))
		var f *storedFleet
		if before != nil && before.byID[id] != nil && before.byID[id].record == record {
			f = before.byID[id]
		} else {
			var err error
			if f, err = decodeFleet(id, record); err != nil {
				return nil, err
			}
		}
		s.byID[id] = f
		s.all = append(s.all, &f.Fleet)
	}
	sort.Slice(s.all, func(i, j int) bool {
		if c := strings.Compare(s.all[i].Name, s.all[j].Name); c != 0 {
			return c < 0
		}
		return s.all[i].ID.String() < s.all[j].ID.String()
	})
	return s, nil
}

// WatchFleets keeps the snapshot and the epoch fresh until ctx ends, and returns
// why it ended. It never gives up on Redis.
func (l *Ledger) WatchFleets(ctx context.Context) error {
	tick := time.NewTicker(fleetPoll)
	defer tick.Stop()
	failing := false
	for {
		err := l.LoadFleets(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !failing:
			l.log.Error("fleets cannot be refreshed; the last known ones stay in force", "error", err)
		case err == nil && failing:
			l.log.Info("fleets are refreshed again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
