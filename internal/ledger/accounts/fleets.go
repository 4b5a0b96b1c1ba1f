package accounts

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
	"vendorapi/internal/ledger/core"
)

// Fleets are the courier fleets and their limits.
type Fleets struct {
	core *core.Client

	// snapshot is nil before the first load. loaded is the beginning of the last load of the small
	// values that succeeded.
	snapshot                atomic.Pointer[FleetSnapshot]
	Loaded                  atomic.Pointer[time.Time]
	publishing              sync.Mutex // held while snapshot is replaced
	valueLoads, recordLoads SharedCalls

	guards      sync.Map     // *fleetGuard by FleetID
	PermitsAway atomic.Int64 // until when permits are taken from another server, Unix ns
}

// NewFleets returns the calls of fleets. Nothing is known of them before the first Load.
func NewFleets(c *core.Client) *Fleets { return &Fleets{core: c} }

// FleetPoll is how often Refresh is to be repeated: a change holds on every gateway within a
// second (decisions, "Private APIs").
const FleetPoll = 250 * time.Millisecond

// A fleet is stored in parts, by how they change. Gateways read the small parts of all fleets
// whenever one of them changes, and a record only when its version changes.

// FleetsKey is a hash of records, which are large and rarely change: up to 1 MB of area.
func (l *Fleets) FleetsKey() string { return l.core.Global.Prefix + "fleets" }

// FleetVersionsKey is a hash of the records' versions, and so the list of all fleets. A version
// is never used again.
func (l *Fleets) FleetVersionsKey() string { return l.core.Global.Prefix + "fleets_versions" }

// FleetControlsKey is a hash of what operators control: suspended, disabled, requests a second.
func (l *Fleets) FleetControlsKey() string { return l.core.Global.Prefix + "fleets_controls" }

// FleetCouriersKey is a hash of how many couriers there are, of fleets that have said so.
func (l *Fleets) FleetCouriersKey() string { return l.core.Global.Prefix + "fleets_couriers" }

// FleetSecretsKey is a hash of client secrets: the current one and those that still work.
func (l *Fleets) FleetSecretsKey() string { return l.core.Global.Prefix + "fleets_secrets" }

func codeFleet(c *core.Codec, f *delivery.Fleet, coverage *string) {
	c.All(&f.Name, &f.SubRegion, &f.DeliveryMinutes, &f.PickupMinutes, coverage)
}

func EncodeFleet(f *delivery.Fleet) []byte {
	coverage := string(f.Coverage.JSON())
	return core.Encode(func(c *core.Codec) { codeFleet(c, f, &coverage) })
}

func DecodeFleet(record string) (*delivery.Fleet, error) {
	var f delivery.Fleet
	var coverage string
	if err := core.Decode("fleet record", record, func(c *core.Codec) { codeFleet(c, &f, &coverage) }); err != nil {
		return nil, err
	}

	var err error
	f.Coverage, err = delivery.ParseCoverage([]byte(coverage))
	if err != nil {
		return nil, fmt.Errorf("fleet record: coverage %w", err)
	}

	return &f, nil
}

// FleetControls are what operators control of a fleet.
type FleetControls struct {
	Suspended, Disabled bool
	Requests            int // a second; 0: the default, whatever it becomes
}

func CodeControls(c *core.Codec, f *FleetControls) { c.All(&f.Suspended, &f.Disabled, &f.Requests) }

func EncodeControls(f *delivery.Fleet) []byte {
	controls := FleetControls{f.Suspended, f.Disabled, f.RequestsPerSecond}
	if controls.Requests == delivery.DefaultFleetRequests {
		controls.Requests = 0
	}
	return core.Encode(func(c *core.Codec) { CodeControls(c, &controls) })
}

// DecodeControls sets what operators control of a fleet. If that cannot be read, or is missing,
// the fleet is disabled, because it may have been.
func DecodeControls(f *delivery.Fleet, stored string) error {
	var controls FleetControls
	err := core.Decode("fleet controls", stored, func(c *core.Codec) { CodeControls(c, &controls) })
	if err != nil {
		f.Disabled, f.RequestsPerSecond = true, delivery.DefaultFleetRequests
		return err
	}

	f.Suspended, f.Disabled, f.RequestsPerSecond = controls.Suspended, controls.Disabled, controls.Requests
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
func (c *FleetControls) isValid(stored string) bool {
	canonical := core.Encode(func(codec *core.Codec) { CodeControls(codec, c) })
	isInRange := c.Requests >= 0 && c.Requests <= delivery.MaxFleetRequests
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

// FleetSecrets are the SHA-256s of a fleet's client secrets. Without any, none works.
type FleetSecrets struct {
	Current string
	Earlier []core.EarlierSecret // the one that was replaced last comes first
}

func EncodeSecrets(s *FleetSecrets) []byte {
	earlier := core.PackEarlier(s.Earlier)
	return core.Encode(func(c *core.Codec) { c.All(&s.Current, &earlier) })
}

func DecodeSecrets(stored string) (FleetSecrets, error) {
	var s FleetSecrets
	var earlier string
	if err := core.Decode("client secrets", stored, func(c *core.Codec) { c.All(&s.Current, &earlier) }); err != nil {
		return FleetSecrets{}, err
	}

	var err error
	s.Earlier, err = core.ParseEarlier(earlier)
	if err != nil {
		return FleetSecrets{}, err
	}

	return s, nil
}

// Create stores a new fleet with the SHA-256 of its client secret.
func (l *Fleets) Create(ctx context.Context, f *delivery.Fleet, secretHash [32]byte) error {
	secrets := FleetSecrets{Current: string(secretHash[:])}
	couriers := ""
	if f.Couriers >= 0 {
		couriers = strconv.Itoa(f.Couriers)
	}

	keys := []string{l.FleetVersionsKey(), l.core.MetaKey(), l.FleetsKey(), l.FleetControlsKey(), l.FleetSecretsKey(), l.FleetCouriersKey()}
	conflict := core.Refusals{"conflict": fmt.Errorf("fleet %s: %w", f.ID, core.ErrConflict)}
	_, err := l.core.RunWord(ctx, "write_fleet", conflict, keys,
		f.ID[:], "", "", EncodeControls(f), EncodeFleet(f), EncodeSecrets(&secrets), couriers)

	return err
}

// Update applies change to a fleet and writes what it changed, but for the couriers; it starts
// again when the fleet was changed in between. FLEET_NOT_FOUND; delivery.ErrUnavailable when
// others change the fleet all the time; an error of change is returned as it is.
//
// Of a fleet whose record cannot be read the controls can be changed all the same, and the record
// by a change that sets name and area.
func (l *Fleets) Update(ctx context.Context, id delivery.FleetID, change func(*delivery.Fleet) error) (*delivery.Fleet, error) {
	for range core.UpdateTries {
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
	return fmt.Errorf("%s: %w; %w", what, core.ErrConflict, delivery.ErrUnavailable)
}

// editedFleet is a fleet as it was read for a change.
type editedFleet struct {
	delivery.Fleet
	version, controls string // as stored, for the comparison
	unreadable        error  // why the record cannot be read
}

func (l *Fleets) readFleet(ctx context.Context, id delivery.FleetID) (*editedFleet, error) {
	field := string(id[:])
	pipe := l.core.Redis.Pipeline()
	version := pipe.HGet(ctx, l.FleetVersionsKey(), field)
	controls := pipe.HGet(ctx, l.FleetControlsKey(), field)
	couriers := pipe.HGet(ctx, l.FleetCouriersKey(), field)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, core.Failed("reading a fleet", err)
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
	_ = DecodeControls(&f.Fleet, controls.Val())
	_ = decodeCouriers(&f.Fleet, couriers.Val(), couriers.Err() == nil)

	return f, nil
}

// readFleetRecord takes a record of this version from the snapshot, or reads it. It may be newer
// than the version; then the comparison of the versions fails.
func (l *Fleets) readFleetRecord(ctx context.Context, id delivery.FleetID, version string) (*fleetRecord, error) {
	s := l.snapshot.Load()
	if s != nil && s.Records[id] != nil && s.Records[id].Version == version {
		return s.Records[id], nil
	}

	stored, err := l.core.Redis.HGet(ctx, l.FleetsKey(), string(id[:])).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, core.Failed("reading a fleet", err)
	}
	return newFleetRecord(id, version, stored), nil
}

func fleetNotFound() error {
	return delivery.Refuse(delivery.CodeFleetNotFound, "no fleet has this id")
}

// writeFleet writes what differs; it is false when the fleet was changed since it was read.
func (l *Fleets) writeFleet(ctx context.Context, before *editedFleet, after *delivery.Fleet) (bool, error) {
	record, controls := EncodeFleet(after), EncodeControls(after)
	sameRecord := bytes.Equal(record, EncodeFleet(&before.Fleet))
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

	keys := []string{l.FleetVersionsKey(), l.core.MetaKey(), l.FleetsKey(), l.FleetControlsKey()}
	reply, err := l.core.RunText(ctx, "write_fleet", keys, before.ID[:], before.version, before.controls, controls, record)

	return reply == "written", err
}

// Couriers is how many couriers a fleet has said that it has; -1: it never said so.
func (l *Fleets) Couriers(ctx context.Context, id delivery.FleetID) (int, error) {
	stored, err := l.core.Redis.HGet(ctx, l.FleetCouriersKey(), string(id[:])).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, core.Failed("reading a fleet's couriers", err)
	}

	n, unreadable := strconv.Atoi(stored)
	if unreadable != nil {
		return -1, nil // the next report replaces it
	}

	return n, nil
}

// SetCouriers stores how many couriers a fleet has. The last call wins. FLEET_NOT_FOUND.
func (l *Fleets) SetCouriers(ctx context.Context, id delivery.FleetID, couriers int) error {
	keys := []string{l.FleetCouriersKey(), l.core.MetaKey(), l.FleetVersionsKey()}
	_, err := l.core.RunWord(ctx, "set_couriers", core.Refusals{"missing": fleetNotFound()}, keys, id[:], couriers)
	return err
}

// RotateSecret replaces the client secret; the previous one works for overlap, until the time that is
// returned. revokeOld ends all earlier ones and every token issued before, within a poll. It may be
// repeated. FLEET_NOT_FOUND, TOO_MANY_SECRETS; delivery.ErrUnavailable when others rotate it all
// the time.
func (l *Fleets) RotateSecret(ctx context.Context, id delivery.FleetID, secretHash [32]byte, overlap time.Duration, revokeOld bool) (oldUntil time.Time, err error) {
	keys := []string{l.FleetSecretsKey(), l.core.MetaKey(), l.core.RevokedKey()}
	for range core.UpdateTries {
		stored, err := l.core.Redis.HGet(ctx, l.FleetSecretsKey(), string(id[:])).Result()
		if errors.Is(err, redis.Nil) {
			return time.Time{}, fleetNotFound()
		}

		if err != nil {
			return time.Time{}, core.Failed("reading client secrets", err)
		}

		secrets, err := DecodeSecrets(stored)
		if err != nil && !revokeOld {
			return time.Time{}, fmt.Errorf("fleet %s: %w", id, err)
		}

		now, err := l.core.TimeOf(ctx, l.core.Global)
		if err != nil {
			return time.Time{}, err
		}
		changed, err := secrets.Rotate(string(secretHash[:]), overlap, revokeOld, now)
		if err != nil {
			return time.Time{}, err
		}

		oldUntil := now
		if len(secrets.Earlier) > 0 {
			oldUntil = secrets.Earlier[0].Until
		}

		if !changed {
			return oldUntil, nil
		}

		reply, err := l.core.RunText(ctx, "rotate_fleet_secret", keys, id[:], stored, EncodeSecrets(&secrets), core.FlagText(revokeOld))
		if err != nil {
			return time.Time{}, err
		}

		if reply == "written" {
			return oldUntil, nil
		}
	}

	return time.Time{}, contended("fleet " + id.String())
}

// Rotate makes fresh the current secret; it is false when fresh was issued before.
// TOO_MANY_SECRETS.
func (s *FleetSecrets) Rotate(fresh string, overlap time.Duration, revokeOld bool, now time.Time) (bool, error) {
	s.Earlier = core.ValidSecrets(s.Earlier, now)
	isFresh := func(one core.EarlierSecret) bool { return one.Secret == fresh }
	if s.Current == fresh || slices.ContainsFunc(s.Earlier, isFresh) {
		return false, nil
	}

	switch {
	case revokeOld:
		s.Earlier = nil
	case len(s.Earlier) >= core.MostEarlier:
		return false, core.TooManySecrets()
	default:
		s.Earlier = slices.Insert(s.Earlier, 0, core.EarlierSecret{Secret: s.Current, Until: now.Add(overlap)})
	}

	s.Current = fresh

	return true, nil
}

// A fleet's requests are held to its limit by permits. Redis has the bucket; each gateway
// takes blocks of it and spends them without asking. A gateway that dies loses its block.
const (
	// FleetBurst is the bucket's size in seconds of permits.
	FleetBurst = 5
	// FleetBlocks is how many blocks a second's worth is taken in.
	FleetBlocks = 10
)

// FleetGuard is what this process holds of a fleet's permits. It is locked while Redis is
// asked: the fleet's other requests wait for the same answer.
type FleetGuard struct {
	mu      sync.Mutex
	rate    int // permits a second; what is held was taken under it
	permits int
	// Until then requests, or batches, are refused without asking Redis.
	closedUntil, batchesUntil time.Time
	refused                   time.Time // the last refusal that operators do not know of; zero: none
}

// TakePermits asks the bucket for up to n permits of so many a second.
type TakePermits func(rate, n int) (*redis_rate.Result, error)

// Admit spends a permit. RATE_LIMITED with RetryAfter.
func (g *FleetGuard) Admit(rate int, now time.Time, take TakePermits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rate != rate {
		g.rate, g.permits = rate, 0
		g.closedUntil, g.batchesUntil = time.Time{}, time.Time{}
	}
	return g.spend(1, max(rate/FleetBlocks, 1), 0, &g.closedUntil, now, take)
}

// Charge spends n permits, capped at the bucket, or none. RATE_LIMITED with RetryAfter.
func (g *FleetGuard) Charge(n int, now time.Time, take TakePermits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, FleetBurst*g.rate-1)
	return g.spend(n, n, 1, &g.batchesUntil, now, take) // the request that asks again takes one, too
}

// spend spends n permits, of a new block if need be, or refuses until closed, when the
// bucket has the block and so many permits besides.
func (g *FleetGuard) spend(n, block, besides int, closed *time.Time, now time.Time, take TakePermits) error {
	if g.permits < n {
		if now.Before(*closed) {
			return g.refuse(now, *closed)
		}

		result, err := take(g.rate, min(block-g.permits, FleetBurst*g.rate))
		if err != nil {
			return core.Failed("permits of a fleet", err)
		}

		g.permits += result.Allowed
		if g.permits < n {
			// When the empty bucket has the block; one more, because it rounds down.
			*closed = now.Add(time.Duration(block-g.permits+besides+1) * time.Second / time.Duration(g.rate))
			return g.refuse(now, *closed)
		}
	}

	g.permits -= n

	return nil
}

func (g *FleetGuard) refuse(now, until time.Time) error {
	g.refused = now
	return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: until.Sub(now),
		Message: fmt.Sprintf("the fleet's limit of %d requests a second is used up; wait as Retry-After says", g.rate)}
}

func (l *Fleets) fleetGuard(id delivery.FleetID) *FleetGuard {
	if g, there := l.guards.Load(id); there {
		return g.(*FleetGuard)
	}
	g, _ := l.guards.LoadOrStore(id, new(FleetGuard))
	return g.(*FleetGuard)
}

// Admit counts a request of a fleet. RATE_LIMITED with RetryAfter.
func (l *Fleets) Admit(ctx context.Context, f *delivery.Fleet, now time.Time) error {
	return l.fleetGuard(f.ID).Admit(f.RequestsPerSecond, now, l.FleetPermits(ctx, f.ID))
}

// Charge counts an admitted request as n more. RATE_LIMITED with RetryAfter.
func (l *Fleets) Charge(ctx context.Context, id delivery.FleetID, n int, now time.Time) error {
	return l.fleetGuard(id).Charge(n, now, l.FleetPermits(ctx, id))
}

func (l *Fleets) FleetPermits(ctx context.Context, id delivery.FleetID) TakePermits {
	return func(rate, n int) (*redis_rate.Result, error) {
		limit := redis_rate.Limit{Rate: rate, Burst: FleetBurst * rate, Period: time.Second}
		bucket := "fleet:" + string(id[:])
		isAway := l.core.LocalNow().UnixNano() < l.PermitsAway.Load()
		if !isAway {
			result, err := l.core.Allow(ctx, l.core.Global.Prefix+bucket, limit, n)
			if err == nil || !l.core.IsCluster || ctx.Err() != nil || !errors.Is(core.Failure(err), delivery.ErrUnavailable) {
				return result, err
			}
			l.PermitsAway.Store(l.core.LocalNow().Add(permitsAwayFor).UnixNano())
		}

		// One dead master of a cluster must not keep every fleet out. Every process takes the permits from
		// the same other server, so that the limit holds there, too; a fleet has one burst more.
		other, err := l.partitionElsewhere(ctx)
		if err != nil {
			return nil, err
		}

		return l.core.Allow(ctx, other.Prefix+bucket, limit, n)
	}
}

// permitsAwayFor is for how long permits are taken elsewhere until their own server is asked again.
const permitsAwayFor = 5 * time.Second

// partitionElsewhere is the first partition that is not on the server of the global keys.
func (l *Fleets) partitionElsewhere(ctx context.Context) (core.Partition, error) {
	own := l.core.ServerOf(ctx, l.core.Global)
	for _, p := range l.core.Partitions {
		if l.core.ServerOf(ctx, p) != own {
			return p, nil
		}
	}
	return core.Partition{}, fmt.Errorf("permits of a fleet: all partitions are on one server: %w", delivery.ErrUnavailable)
}

func (l *Fleets) limitedFleetsKey() string { return l.core.Global.Prefix + "fleets_limited" }

// FlushLimited stores which fleets this process has refused for their limit since the last call (Limited).
func (l *Fleets) FlushLimited(ctx context.Context) error {
	var values []any
	l.guards.Range(func(id, guard any) bool {
		g, fleet := guard.(*FleetGuard), id.(delivery.FleetID)
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

	return core.Failure(l.core.Redis.HSet(ctx, l.limitedFleetsKey(), values...).Err())
}

// Limited is when each fleet last exceeded its limit, within some seconds.
func (l *Fleets) Limited(ctx context.Context) (map[delivery.FleetID]time.Time, error) {
	known, err := l.core.Redis.HGetAll(ctx, l.limitedFleetsKey()).Result()
	if err != nil {
		return nil, core.Failed("reading the fleets over their limit", err)
	}

	at := make(map[delivery.FleetID]time.Time, len(known))
	for id, ms := range known {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && len(id) == len(delivery.FleetID{}) {
			at[delivery.FleetID([]byte(id))] = time.UnixMilli(n)
		}
	}

	return at, nil
}
