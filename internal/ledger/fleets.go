package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// FleetPoll is how often Load is to be repeated: a change holds on every gateway within a second
// (design section 5).
const FleetPoll = 250 * time.Millisecond

// updateTries bounds how often a change that met a conflict is repeated.
const updateTries = 16

type storedFleet struct {
	delivery.Fleet
	secretHash string
	// earlier are hashes of earlier client secrets: the first in the record, the others
	// in previous, which releases that know of one only do not overwrite.
	earlier []EarlierSecret
	stored  fleetRecords // as read, for the comparison
}

// fleetRecords is what is stored of one fleet; all but the record may be empty.
type fleetRecords struct{ record, previous, controls string }

func (c *codec) fleet(f *storedFleet, coverage *string) {
	couriers := f.Couriers + 1
	c.all(&f.Name, &f.SubRegion, &f.DeliveryMinutes, &f.PickupMinutes, &f.Suspended, &couriers, &f.secretHash, coverage)
	f.Couriers = couriers - 1
	if !c.writing && c.rest != "" {
		f.earlier = make([]EarlierSecret, 1)
	}
	if len(f.earlier) > 0 { // else as programs wrote it that knew of one secret only
		c.all(&f.earlier[0].Secret, &f.earlier[0].Until)
	}
}

func encodeFleet(f *storedFleet) []byte {
	coverage := string(f.Coverage.JSON())
	return encode(func(c *codec) { c.fleet(f, &coverage) })
}

// encodeControls is empty for a fleet with the defaults.
func encodeControls(f *delivery.Fleet) []byte {
	rate := f.RequestsPerSecond
	if rate == delivery.DefaultFleetRequests {
		rate = 0 // whatever the default becomes
	}
	if !f.Disabled && rate == 0 {
		return nil
	}
	return encode(func(c *codec) { c.all(&f.Disabled, &rate) })
}

func decodeFleet(id delivery.FleetID, stored fleetRecords) (*storedFleet, error) {
	f := &storedFleet{stored: stored}
	var coverage string
	err := decode("fleet record", stored.record, func(c *codec) { c.fleet(f, &coverage) })
	if err == nil && stored.controls != "" {
		err = decode("fleet controls", stored.controls, func(c *codec) { c.all(&f.Disabled, &f.RequestsPerSecond) })
	}
	f.ID, f.RequestsPerSecond = id, cmp.Or(f.RequestsPerSecond, delivery.DefaultFleetRequests)
	more, failed := parseEarlier(stored.previous)
	if err = cmp.Or(err, failed); err == nil {
		f.earlier = append(f.earlier, more...)
		f.Coverage, err = delivery.ParseCoverage([]byte(coverage))
	}
	if err != nil {
		return nil, fmt.Errorf("fleet %s: %w", id, err)
	}
	return f, nil
}

// fleetKeys are records, version, earlier client secrets, times of revocations.
func (l *core) fleetKeys() []string {
	g := l.global.prefix
	return []string{g + "fleets", g + "meta", g + "fleet_secrets", g + "revoked"}
}

func (l *core) controlsKey() string { return l.global.prefix + "fleets_controls" }

// Create stores a new fleet with the SHA-256 of its client secret.
func (l Fleets) Create(ctx context.Context, f *delivery.Fleet, secretHash [32]byte) error {
	stored := &storedFleet{Fleet: *f, secretHash: string(secretHash[:])}
	_, err := l.runWord(ctx, "write_fleet", refusals{"conflict": fmt.Errorf("fleet %s: %w", f.ID, ErrConflict)},
		append(l.fleetKeys()[:2:2], l.controlsKey()), f.ID[:], "", encodeFleet(stored), "", encodeControls(f))
	return err
}

// Update applies change to a fleet and writes it; it starts again when the fleet
// was changed in between. FLEET_NOT_FOUND; an error of change is returned as it is.
func (l Fleets) Update(ctx context.Context, id delivery.FleetID, change func(*delivery.Fleet) error) (*delivery.Fleet, error) {
	return l.writeFleet(ctx, id, func(f *storedFleet) ([]any, error) { return nil, change(&f.Fleet) })
}

// RotateSecret replaces the client secret; the previous one works until validUntil.
// revokeOld ends all earlier ones and every token issued before, within a poll. It may be
// repeated. FLEET_NOT_FOUND, TOO_MANY_SECRETS.
func (l Fleets) RotateSecret(ctx context.Context, id delivery.FleetID, secretHash [32]byte, validUntil time.Time, revokeOld bool) error {
	errUnchanged := errors.New("unchanged")
	_, err := l.writeFleet(ctx, id, func(f *storedFleet) ([]any, error) {
		hash, now := string(secretHash[:]), l.now()
		f.earlier = valid(f.earlier, now)
		switch {
		case f.secretHash == hash || slices.ContainsFunc(f.earlier, func(one EarlierSecret) bool { return one.Secret == hash }):
			return nil, errUnchanged
		case revokeOld:
			f.earlier = nil
		case len(f.earlier) >= mostEarlier:
			return nil, tooManySecrets()
		default:
			f.earlier = slices.Insert(f.earlier, 0, EarlierSecret{f.secretHash, validUntil})
		}
		f.secretHash = hash
		return []any{packEarlier(f.earlier[min(1, len(f.earlier)):]), flag(revokeOld), now.Unix()}, nil
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// writeFleet reads, changes and writes a fleet, with the script's arguments about client
// secrets if change returns some. The compared record guards those, too.
func (l *core) writeFleet(ctx context.Context, id delivery.FleetID, change func(*storedFleet) ([]any, error)) (*delivery.Fleet, error) {
	keys := l.fleetKeys()
	for range updateTries {
		pipe := l.rdb.Pipeline()
		read, previous := pipe.HGet(ctx, keys[0], string(id[:])), pipe.HGet(ctx, keys[2], string(id[:]))
		controls := pipe.HGet(ctx, l.controlsKey(), string(id[:]))
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return nil, failed("reading a fleet", err)
		}
		stored := fleetRecords{read.Val(), previous.Val(), controls.Val()}
		if stored.record == "" {
			return nil, delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
		}
		f, err := decodeFleet(id, stored)
		if err != nil {
			return nil, err
		}
		secrets, err := change(f)
		if err != nil {
			return nil, err
		}
		written := []string{keys[0], keys[1], l.controlsKey()}
		if secrets != nil {
			written = append(written, keys[2:]...)
		}
		args := []any{id[:], stored.record, encodeFleet(f), stored.controls, encodeControls(&f.Fleet)}
		reply, err := l.runText(ctx, "write_fleet", written, append(args, secrets...)...)
		if err != nil {
			return nil, err
		}
		if reply != "conflict" {
			return &f.Fleet, nil
		}
	}
	return nil, fmt.Errorf("fleet %s: %w", id, ErrConflict)
}

// FleetSnapshot is every fleet as of one version, with revocations. Immutable.
type FleetSnapshot struct {
	version   string
	all       []*delivery.Fleet // by name
	byID      map[delivery.FleetID]*storedFleet
	notBefore map[[16]byte]int64
}

// NotBefore is the Unix time before which a subject's tokens are revoked; 0: none.
func (s *FleetSnapshot) NotBefore(subject [16]byte) int64 { return s.notBefore[subject] }

// All lists the fleets by name.
func (s *FleetSnapshot) All() []*delivery.Fleet { return s.all }

// Fleet finds a fleet; nil when there is none.
func (s *FleetSnapshot) Fleet(id delivery.FleetID) *delivery.Fleet {
	if f := s.byID[id]; f != nil {
		return &f.Fleet
	}
	return nil
}

// AppendCandidates appends the fleets that cover p, and closed ones.
func (s *FleetSnapshot) AppendCandidates(dst []Candidate, p delivery.Point) []Candidate {
	for _, f := range s.all {
		covers := f.Coverage.Contains(p)
		if closed := f.Suspended || f.Disabled; covers || closed {
			dst = append(dst, Candidate{Terms: f.Terms(), Covers: covers, Suspended: closed, NoCouriers: f.Couriers == 0})
		}
	}
	return dst
}

// Covering lists the fleets that serve p by name, suspended ones included.
func (s *FleetSnapshot) Covering(p delivery.Point) []*delivery.Fleet {
	return slices.DeleteFunc(slices.Clone(s.all), func(f *delivery.Fleet) bool { return !f.Coverage.Contains(p) })
}

// VerifySecret compares the SHA-256 of a client secret with the snapshot's.
func (l Fleets) VerifySecret(id delivery.FleetID, secretHash [32]byte, now time.Time) bool {
	s := l.fleets.Load()
	if s == nil || s.byID[id] == nil {
		return false
	}
	return knows(s.byID[id].secretHash, s.byID[id].earlier, secretHash, now)
}

// Replaced reports whether there is a newer secret than one that VerifySecret knows.
func (s *FleetSnapshot) Replaced(id delivery.FleetID, secretHash [32]byte) bool {
	f := s.byID[id]
	return f != nil && f.secretHash != string(secretHash[:])
}

// Snapshot is the latest snapshot; nil before the first was loaded.
func (l Fleets) Snapshot() *FleetSnapshot { return l.fleets.Load() }

// Load compares Redis's clock, and replaces the snapshot and the epoch if anything has changed.
func (l Fleets) Load(ctx context.Context) error {
	keys, before := l.fleetKeys(), l.fleets.Load()
	meta, err := l.rdb.HMGet(ctx, keys[1], "fleets", "epoch").Result()
	if err != nil {
		return failed("reading the fleets' version", err)
	}
	if err := l.compareClocks(ctx); err != nil {
		return err
	}
	if epoch, err := strconv.Atoi(text(meta[1])); err == nil {
		l.raiseEpoch(uint32(epoch))
	}
	version := text(meta[0])
	if before != nil && before.version == version {
		return nil
	}
	// A revocation is written together with a secret or behind it. So it is read
	// first: who knows it knows the secret, and issues no token to the one before.
	pipe := l.rdb.Pipeline()
	revoked, previous, controls := pipe.ZRangeWithScores(ctx, keys[3], 0, -1), pipe.HGetAll(ctx, keys[2]), pipe.HGetAll(ctx, l.controlsKey())
	_, err = pipe.Exec(ctx)
	var records map[string]string
	if err == nil {
		records, err = l.rdb.HGetAll(ctx, keys[0]).Result()
	}
	if err != nil {
		return failed("reading the fleets", err)
	}
	s, err := newFleetSnapshot(version, records, previous.Val(), controls.Val(), before)
	if err != nil {
		return err
	}
	for _, one := range revoked.Val() {
		if subject, _ := one.Member.(string); len(subject) == 16 {
			s.notBefore[[16]byte([]byte(subject))] = int64(one.Score)
		}
	}
	if !l.fleets.CompareAndSwap(before, s) {
		return l.Load(ctx) // another call was quicker: this snapshot may be the older one
	}
	return nil
}

// raiseEpoch takes over a newer epoch; a late reply may carry an older one.
func (l *core) raiseEpoch(epoch uint32) {
	for {
		known := l.epoch.Load()
		if epoch <= known || l.epoch.CompareAndSwap(known, epoch) {
			return
		}
	}
}

func newFleetSnapshot(version string, records, previous, controls map[string]string, before *FleetSnapshot) (*FleetSnapshot, error) {
	s := &FleetSnapshot{version: version, byID: make(map[delivery.FleetID]*storedFleet, len(records)), notBefore: map[[16]byte]int64{}}
	for raw, record := range records {
		if len(raw) != 16 {
			return nil, fmt.Errorf("a fleet is stored under %d bytes instead of 16", len(raw))
		}
		id := delivery.FleetID([]byte(raw))
		stored := fleetRecords{record, previous[raw], controls[raw]}
		var f *storedFleet
		if before != nil {
			f = before.byID[id]
		}
		if f == nil || f.stored != stored {
			var err error
			if f, err = decodeFleet(id, stored); err != nil {
				return nil, err
			}
		}
		s.byID[id] = f
		s.all = append(s.all, &f.Fleet)
	}
	slices.SortFunc(s.all, func(a, b *delivery.Fleet) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return s, nil
}

// A fleet's requests are held to its limit by permits. Redis has the bucket; each gateway
// takes blocks of it and spends them without asking. A gateway that dies loses its block.
const (
	// fleetBurst is the bucket's size in seconds of permits.
	fleetBurst = 5
	// fleetBlocks is how many blocks a second's worth is taken in.
	fleetBlocks = 10
)

// fleetGuard is what this process holds of a fleet's permits. It is locked while Redis is
// asked: the fleet's other requests wait for the same answer.
type fleetGuard struct {
	mu      sync.Mutex
	rate    int // permits a second; what is held was taken under it
	permits int
	// Until then requests, or batches, are refused without asking Redis.
	closedUntil, batchesUntil time.Time
	refused                   time.Time // the last refusal that operators do not know of; zero: none
}

// takePermits asks the bucket for up to n permits of so many a second.
type takePermits func(rate, n int) (*redis_rate.Result, error)

// admit spends a permit. RATE_LIMITED with RetryAfter.
func (g *fleetGuard) admit(rate int, now time.Time, take takePermits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rate != rate {
		g.rate, g.permits = rate, 0
		g.closedUntil, g.batchesUntil = time.Time{}, time.Time{}
	}
	return g.spend(1, max(rate/fleetBlocks, 1), 0, &g.closedUntil, now, take)
}

// charge spends n permits, capped at the bucket, or none. RATE_LIMITED with RetryAfter.
func (g *fleetGuard) charge(n int, now time.Time, take takePermits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, fleetBurst*g.rate-1)
	return g.spend(n, n, 1, &g.batchesUntil, now, take) // the request that asks again takes one, too
}

// spend spends n permits, of a new block if need be, or refuses until closed, when the
// bucket has the block and so many permits besides.
func (g *fleetGuard) spend(n, block, besides int, closed *time.Time, now time.Time, take takePermits) error {
	if g.permits < n {
		if now.Before(*closed) {
			return g.refuse(now, *closed)
		}
		result, err := take(g.rate, min(block-g.permits, fleetBurst*g.rate))
		if err != nil {
			return failed("permits of a fleet", err)
		}
		if g.permits += result.Allowed; g.permits < n {
			// When the empty bucket has the block; one more, because it rounds down.
			*closed = now.Add(time.Duration(block-g.permits+besides+1) * time.Second / time.Duration(g.rate))
			return g.refuse(now, *closed)
		}
	}
	g.permits -= n
	return nil
}

func (g *fleetGuard) refuse(now, until time.Time) error {
	g.refused = now
	return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: until.Sub(now),
		Message: fmt.Sprintf("the fleet's limit of %d requests a second is used up; wait as Retry-After says", g.rate)}
}

func (l *core) fleetGuard(id delivery.FleetID) *fleetGuard {
	if g, there := l.guards.Load(id); there {
		return g.(*fleetGuard)
	}
	g, _ := l.guards.LoadOrStore(id, new(fleetGuard))
	return g.(*fleetGuard)
}

// Admit counts a request of a fleet. RATE_LIMITED with RetryAfter.
func (l Fleets) Admit(ctx context.Context, f *delivery.Fleet, now time.Time) error {
	return l.fleetGuard(f.ID).admit(f.RequestsPerSecond, now, l.fleetPermits(ctx, f.ID))
}

// Charge counts an admitted request as n more. RATE_LIMITED with RetryAfter.
func (l Fleets) Charge(ctx context.Context, id delivery.FleetID, n int, now time.Time) error {
	return l.fleetGuard(id).charge(n, now, l.fleetPermits(ctx, id))
}

func (l *core) fleetPermits(ctx context.Context, id delivery.FleetID) takePermits {
	return func(rate, n int) (*redis_rate.Result, error) {
		limit := redis_rate.Limit{Rate: rate, Burst: fleetBurst * rate, Period: time.Second}
		return l.allow(ctx, l.global.prefix+"fleet:"+string(id[:]), limit, n)
	}
}

func (l *core) limitedFleetsKey() string { return l.global.prefix + "fleets_limited" }

// flushLimitedFleets stores which fleets this process has refused since the last call.
func (l *core) flushLimitedFleets(ctx context.Context) error {
	var values []any
	l.guards.Range(func(id, guard any) bool {
		g, fleet := guard.(*fleetGuard), id.(delivery.FleetID)
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.refused.IsZero() {
			values = append(values, fleet[:], g.refused.UnixMilli())
			g.refused = time.Time{}
		}
		return true
	})
	if len(values) == 0 {
		return nil
	}
	return failure(l.rdb.HSet(ctx, l.limitedFleetsKey(), values...).Err())
}

// Limited is when each fleet last exceeded its limit, within some seconds.
func (l Fleets) Limited(ctx context.Context) (map[delivery.FleetID]time.Time, error) {
	known, err := l.rdb.HGetAll(ctx, l.limitedFleetsKey()).Result()
	if err != nil {
		return nil, failed("reading the fleets over their limit", err)
	}
	at := make(map[delivery.FleetID]time.Time, len(known))
	for id, ms := range known {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && len(id) == len(delivery.FleetID{}) {
			at[delivery.FleetID([]byte(id))] = time.UnixMilli(n)
		}
	}
	return at, nil
}
