package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Fleets are the courier fleets and their limits.
type Fleets struct {
	*core

	// snapshot is nil before the first load. loaded is the beginning of the last load of the small
	// values that succeeded.
	snapshot                atomic.Pointer[FleetSnapshot]
	loaded                  atomic.Pointer[time.Time]
	publishing              sync.Mutex // held while snapshot is replaced
	valueLoads, recordLoads sharedCalls

	guards      sync.Map     // *fleetGuard by FleetID
	permitsAway atomic.Int64 // until when permits are taken from another server, Unix ns
}

// FleetPoll is how often Refresh is to be repeated: a change holds on every gateway within a
// second (decisions, "Private APIs").
const FleetPoll = 250 * time.Millisecond

// A fleet is stored in parts, by how they change. Gateways read the small parts of all fleets
// whenever one of them changes, and a record only when its version changes.

// fleetsKey is a hash of records, which are large and rarely change: up to 1 MB of area.
func (l *Fleets) fleetsKey() string { return l.global.prefix + "fleets" }

// fleetVersionsKey is a hash of the records' versions, and so the list of all fleets. A version
// is never used again.
func (l *Fleets) fleetVersionsKey() string { return l.global.prefix + "fleets_versions" }

// fleetControlsKey is a hash of what operators control: suspended, disabled, requests a second.
func (l *Fleets) fleetControlsKey() string { return l.global.prefix + "fleets_controls" }

// fleetCouriersKey is a hash of how many couriers there are, of fleets that have said so.
func (l *Fleets) fleetCouriersKey() string { return l.global.prefix + "fleets_couriers" }

// fleetSecretsKey is a hash of client secrets: the current one and those that still work.
func (l *Fleets) fleetSecretsKey() string { return l.global.prefix + "fleets_secrets" }

func (c *codec) fleet(f *delivery.Fleet, coverage *string) {
	c.all(&f.Name, &f.SubRegion, &f.DeliveryMinutes, &f.PickupMinutes, coverage)
}

func encodeFleet(f *delivery.Fleet) []byte {
	coverage := string(f.Coverage.JSON())
	return encode(func(c *codec) { c.fleet(f, &coverage) })
}

func decodeFleet(record string) (*delivery.Fleet, error) {
	var f delivery.Fleet
	var coverage string
	if err := decode("fleet record", record, func(c *codec) { c.fleet(&f, &coverage) }); err != nil {
		return nil, err
	}

	var err error
	f.Coverage, err = delivery.ParseCoverage([]byte(coverage))
	if err != nil {
		return nil, fmt.Errorf("fleet record: coverage %w", err)
	}

	return &f, nil
}

// fleetControls are what operators control of a fleet.
type fleetControls struct {
	suspended, disabled bool
	requests            int // a second; 0: the default, whatever it becomes
}

func (c *codec) controls(f *fleetControls) { c.all(&f.suspended, &f.disabled, &f.requests) }

func encodeControls(f *delivery.Fleet) []byte {
	controls := fleetControls{f.Suspended, f.Disabled, f.RequestsPerSecond}
	if controls.requests == delivery.DefaultFleetRequests {
		controls.requests = 0
	}
	return encode(func(c *codec) { c.controls(&controls) })
}

// decodeControls sets what operators control of a fleet. If that cannot be read, or is missing,
// the fleet is disabled, because it may have been.
func decodeControls(f *delivery.Fleet, stored string) error {
	var controls fleetControls
	err := decode("fleet controls", stored, func(c *codec) { c.controls(&controls) })
	if err != nil {
		f.Disabled, f.RequestsPerSecond = true, delivery.DefaultFleetRequests
		return err
	}

	f.Suspended, f.Disabled, f.RequestsPerSecond = controls.suspended, controls.disabled, controls.requests
	if f.RequestsPerSecond == 0 {
		f.RequestsPerSecond = delivery.DefaultFleetRequests
	}

	if !controls.isValid(stored) {
		f.Disabled = true
		return errors.New("fleet controls: unknown values")
	}

	return nil
}

// isValid reports whether controls that were read from stored are such as some release writes. It does
// not depend on the default, so that a number that becomes the default disables no fleet.
func (c *fleetControls) isValid(stored string) bool {
	canonical := encode(func(codec *codec) { codec.controls(c) })
	isInRange := c.requests >= 0 && c.requests <= delivery.MaxFleetRequests
	return isInRange && string(canonical) == stored
}

// decodeCouriers sets how many couriers a fleet has; none are known of one that never said so.
// A figure that cannot be read counts as no couriers.
func decodeCouriers(f *delivery.Fleet, stored string, reported bool) error {
	if !reported {
		f.Couriers = -1
		return nil
	}

	n, err := strconv.Atoi(stored)
	if err != nil || n < 0 {
		f.Couriers = 0
		return fmt.Errorf("couriers: %q is no number of them", stored)
	}

	f.Couriers = n

	return nil
}

// fleetSecrets are the SHA-256s of a fleet's client secrets. Without any, none works.
type fleetSecrets struct {
	current string
	earlier []EarlierSecret // the one that was replaced last comes first
}

func encodeSecrets(s *fleetSecrets) []byte {
	earlier := packEarlier(s.earlier)
	return encode(func(c *codec) { c.all(&s.current, &earlier) })
}

func decodeSecrets(stored string) (fleetSecrets, error) {
	var s fleetSecrets
	var earlier string
	if err := decode("client secrets", stored, func(c *codec) { c.all(&s.current, &earlier) }); err != nil {
		return fleetSecrets{}, err
	}

	var err error
	s.earlier, err = parseEarlier(earlier)
	if err != nil {
		return fleetSecrets{}, err
	}

	return s, nil
}

// Create stores a new fleet with the SHA-256 of its client secret.
func (l *Fleets) Create(ctx context.Context, f *delivery.Fleet, secretHash [32]byte) error {
	secrets := fleetSecrets{current: string(secretHash[:])}
	couriers := ""
	if f.Couriers >= 0 {
		couriers = strconv.Itoa(f.Couriers)
	}

	keys := []string{l.fleetVersionsKey(), l.metaKey(), l.fleetsKey(), l.fleetControlsKey(), l.fleetSecretsKey(), l.fleetCouriersKey()}
	conflict := refusals{"conflict": fmt.Errorf("fleet %s: %w", f.ID, ErrConflict)}
	_, err := l.runWord(ctx, "write_fleet", conflict, keys,
		f.ID[:], "", "", encodeControls(f), encodeFleet(f), encodeSecrets(&secrets), couriers)

	return err
}

// Update applies change to a fleet and writes what it changed, but for the couriers; it starts
// again when the fleet was changed in between. FLEET_NOT_FOUND; delivery.ErrUnavailable when
// others change the fleet all the time; an error of change is returned as it is.
//
// Of a fleet whose record cannot be read the controls can be changed all the same, and the record
// by a change that sets name and area.
func (l *Fleets) Update(ctx context.Context, id delivery.FleetID, change func(*delivery.Fleet) error) (*delivery.Fleet, error) {
	for range updateTries {
		before, err := l.readFleet(ctx, id)
		if err != nil {
			return nil, err
		}

		after := before.Fleet
		if err := change(&after); err != nil {
			return nil, err
		}

		written, err := l.writeFleet(ctx, before, &after)
		if err != nil {
			return nil, err
		}

		if written {
			return &after, nil
		}
	}

	return nil, contended("fleet " + id.String())
}

// contended reports that others changed a record whenever this caller tried to. Sending the
// request again may help.
func contended(what string) error {
	return fmt.Errorf("%s: %w; %w", what, ErrConflict, delivery.ErrUnavailable)
}

// editedFleet is a fleet as it was read for a change.
type editedFleet struct {
	delivery.Fleet
	version, controls string // as stored, for the comparison
	unreadable        error  // why the record cannot be read
}

func (l *Fleets) readFleet(ctx context.Context, id delivery.FleetID) (*editedFleet, error) {
	field := string(id[:])
	pipe := l.rdb.Pipeline()
	version := pipe.HGet(ctx, l.fleetVersionsKey(), field)
	controls := pipe.HGet(ctx, l.fleetControlsKey(), field)
	couriers := pipe.HGet(ctx, l.fleetCouriersKey(), field)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, failed("reading a fleet", err)
	}
	if version.Val() == "" {
		return nil, fleetNotFound()
	}

	record, err := l.readFleetRecord(ctx, id, version.Val())
	if err != nil {
		return nil, err
	}

	f := &editedFleet{Fleet: record.fleet, version: version.Val(), controls: controls.Val(), unreadable: record.unreadable}
	// What is unreadable here counts as disabled, and as no couriers; a change may repair it.
	_ = decodeControls(&f.Fleet, controls.Val())
	_ = decodeCouriers(&f.Fleet, couriers.Val(), couriers.Err() == nil)

	return f, nil
}

// readFleetRecord takes a record of this version from the snapshot, or reads it. It may be newer
// than the version; then the comparison of the versions fails.
func (l *Fleets) readFleetRecord(ctx context.Context, id delivery.FleetID, version string) (*fleetRecord, error) {
	s := l.snapshot.Load()
	if s != nil && s.records[id] != nil && s.records[id].version == version {
		return s.records[id], nil
	}

	stored, err := l.rdb.HGet(ctx, l.fleetsKey(), string(id[:])).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, failed("reading a fleet", err)
	}
	return newFleetRecord(id, version, stored), nil
}

func fleetNotFound() error {
	return delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
}

// writeFleet writes what differs; it is false when the fleet was changed since it was read.
func (l *Fleets) writeFleet(ctx context.Context, before *editedFleet, after *delivery.Fleet) (bool, error) {
	record, controls := encodeFleet(after), encodeControls(after)
	sameRecord := bytes.Equal(record, encodeFleet(&before.Fleet))
	if sameRecord && string(controls) == before.controls {
		return true, nil
	}

	// A fleet whose record cannot be read has its id for a name and no area (unreadFleet).
	setsName := after.Name != before.Name
	setsArea := len(after.Coverage.JSON()) > 0
	isComplete := setsName && setsArea
	switch {
	case sameRecord:
		record = nil // is left as it is
	case before.unreadable != nil && !isComplete:
		return false, fmt.Errorf("fleet %s cannot be read; a change must set its name and its area: %w", before.ID, before.unreadable)
	}

	keys := []string{l.fleetVersionsKey(), l.metaKey(), l.fleetsKey(), l.fleetControlsKey()}
	reply, err := l.runText(ctx, "write_fleet", keys, before.ID[:], before.version, before.controls, controls, record)

	return reply == "written", err
}

// Couriers is how many couriers a fleet has said that it has; -1: it never said so.
func (l *Fleets) Couriers(ctx context.Context, id delivery.FleetID) (int, error) {
	stored, err := l.rdb.HGet(ctx, l.fleetCouriersKey(), string(id[:])).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, failed("reading a fleet's couriers", err)
	}

	n, unreadable := strconv.Atoi(stored)
	if unreadable != nil {
		return -1, nil // the next report replaces it
	}

	return n, nil
}

// SetCouriers stores how many couriers a fleet has. The last call wins. FLEET_NOT_FOUND.
func (l *Fleets) SetCouriers(ctx context.Context, id delivery.FleetID, couriers int) error {
	keys := []string{l.fleetCouriersKey(), l.metaKey(), l.fleetVersionsKey()}
	_, err := l.runWord(ctx, "set_couriers", refusals{"missing": fleetNotFound()}, keys, id[:], couriers)
	return err
}

// RotateSecret replaces the client secret; the previous one works for overlap, until the time that is
// returned. revokeOld ends all earlier ones and every token issued before, within a poll. It may be
// repeated. FLEET_NOT_FOUND, TOO_MANY_SECRETS; delivery.ErrUnavailable when others rotate it all
// the time.
func (l *Fleets) RotateSecret(ctx context.Context, id delivery.FleetID, secretHash [32]byte, overlap time.Duration, revokeOld bool) (oldUntil time.Time, err error) {
	keys := []string{l.fleetSecretsKey(), l.metaKey(), l.revokedKey()}
	for range updateTries {
		stored, err := l.rdb.HGet(ctx, l.fleetSecretsKey(), string(id[:])).Result()
		if errors.Is(err, redis.Nil) {
			return time.Time{}, fleetNotFound()
		}

		if err != nil {
			return time.Time{}, failed("reading client secrets", err)
		}

		secrets, err := decodeSecrets(stored)
		if err != nil && !revokeOld {
			return time.Time{}, fmt.Errorf("fleet %s: %w", id, err)
		}

		now, err := l.timeOf(ctx, l.global)
		if err != nil {
			return time.Time{}, err
		}
		changed, err := secrets.rotate(string(secretHash[:]), overlap, revokeOld, now)
		if err != nil {
			return time.Time{}, err
		}

		oldUntil := now
		if len(secrets.earlier) > 0 {
			oldUntil = secrets.earlier[0].Until
		}

		if !changed {
			return oldUntil, nil
		}

		reply, err := l.runText(ctx, "rotate_fleet_secret", keys, id[:], stored, encodeSecrets(&secrets), flag(revokeOld))
		if err != nil {
			return time.Time{}, err
		}

		if reply == "written" {
			return oldUntil, nil
		}
	}

	return time.Time{}, contended("fleet " + id.String())
}

// rotate makes fresh the current secret; it is false when fresh was issued before.
// TOO_MANY_SECRETS.
func (s *fleetSecrets) rotate(fresh string, overlap time.Duration, revokeOld bool, now time.Time) (bool, error) {
	s.earlier = valid(s.earlier, now)
	isFresh := func(one EarlierSecret) bool { return one.Secret == fresh }
	if s.current == fresh || slices.ContainsFunc(s.earlier, isFresh) {
		return false, nil
	}

	switch {
	case revokeOld:
		s.earlier = nil
	case len(s.earlier) >= mostEarlier:
		return false, tooManySecrets()
	default:
		s.earlier = slices.Insert(s.earlier, 0, EarlierSecret{Secret: s.current, Until: now.Add(overlap)})
	}

	s.current = fresh

	return true, nil
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

func (l *Fleets) fleetGuard(id delivery.FleetID) *fleetGuard {
	if g, there := l.guards.Load(id); there {
		return g.(*fleetGuard)
	}
	g, _ := l.guards.LoadOrStore(id, new(fleetGuard))
	return g.(*fleetGuard)
}

// Admit counts a request of a fleet. RATE_LIMITED with RetryAfter.
func (l *Fleets) Admit(ctx context.Context, f *delivery.Fleet, now time.Time) error {
	return l.fleetGuard(f.ID).admit(f.RequestsPerSecond, now, l.fleetPermits(ctx, f.ID))
}

// Charge counts an admitted request as n more. RATE_LIMITED with RetryAfter.
func (l *Fleets) Charge(ctx context.Context, id delivery.FleetID, n int, now time.Time) error {
	return l.fleetGuard(id).charge(n, now, l.fleetPermits(ctx, id))
}

func (l *Fleets) fleetPermits(ctx context.Context, id delivery.FleetID) takePermits {
	return func(rate, n int) (*redis_rate.Result, error) {
		limit := redis_rate.Limit{Rate: rate, Burst: fleetBurst * rate, Period: time.Second}
		bucket := "fleet:" + string(id[:])
		isAway := l.now().UnixNano() < l.permitsAway.Load()
		if !isAway {
			result, err := l.allow(ctx, l.global.prefix+bucket, limit, n)
			if err == nil || !l.cluster || ctx.Err() != nil || !errors.Is(failure(err), delivery.ErrUnavailable) {
				return result, err
			}
			l.permitsAway.Store(l.now().Add(permitsAwayFor).UnixNano())
		}

		// One dead master of a cluster must not keep every fleet out. Every process takes the permits from
		// the same other server, so that the limit holds there, too; a fleet has one burst more.
		other, err := l.partitionElsewhere(ctx)
		if err != nil {
			return nil, err
		}

		return l.allow(ctx, other.prefix+bucket, limit, n)
	}
}

// permitsAwayFor is for how long permits are taken elsewhere until their own server is asked again.
const permitsAwayFor = 5 * time.Second

// partitionElsewhere is the first partition that is not on the server of the global keys.
func (l *Fleets) partitionElsewhere(ctx context.Context) (partition, error) {
	own := l.serverOf(ctx, l.global)
	for _, p := range l.partitions {
		if l.serverOf(ctx, p) != own {
			return p, nil
		}
	}
	return partition{}, fmt.Errorf("permits of a fleet: all partitions are on one server: %w", delivery.ErrUnavailable)
}

func (l *Fleets) limitedFleetsKey() string { return l.global.prefix + "fleets_limited" }

// FlushLimited stores which fleets this process has refused for their limit since the last call (Limited).
func (l *Fleets) FlushLimited(ctx context.Context) error {
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
func (l *Fleets) Limited(ctx context.Context) (map[delivery.FleetID]time.Time, error) {
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
