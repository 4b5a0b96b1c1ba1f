package accounts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// RecordsPerRead is how many fleets' records are read at once: 4 MB at most, which arrive within
// the read timeout also where others use the network.
const RecordsPerRead = 4

// FleetSnapshot is every fleet as of one version, with revocations. Immutable.
type FleetSnapshot struct {
	version  string
	complete bool // all small values are of this version
	values   fleetValues
	Records  map[delivery.FleetID]*fleetRecord // by fleets of values; some may be older, or not read yet

	all       []*delivery.Fleet // by name
	byID      map[delivery.FleetID]*delivery.Fleet
	secrets   map[delivery.FleetID]FleetSecrets
	notBefore map[[16]byte]int64

	// problems tell by stored id, of 16 bytes or not, what cannot be read of a fleet.
	problems map[string]string
}

// fleetValues are the small values of all fleets, as stored by their ids.
type fleetValues struct {
	versions, controls, couriers, secrets map[string]string
	revoked                               []redis.Z
}

// fleetRecord is what is large of a fleet, as of a version. Immutable.
type fleetRecord struct {
	Version string
	fleet   delivery.Fleet // without controls and couriers

	// unreadable is why the stored record cannot be read. The fleet then serves nowhere.
	unreadable error
	// failure is why a newer record could not be fetched, and failures how often in a row. The fleet
	// goes on with this one.
	failure  error
	failures int
}

func newFleetRecord(id delivery.FleetID, version, stored string) *fleetRecord {
	f, err := DecodeFleet(stored)
	if err != nil {
		return &fleetRecord{Version: version, fleet: unreadFleet(id), unreadable: err}
	}

	f.ID = id
	return &fleetRecord{Version: version, fleet: *f}
}

// isKnown is false of nil, too: a record that was not read yet.
func (r *fleetRecord) isKnown() bool { return r != nil && r.Version != "" && r.unreadable == nil }

// unreadMinutes is the average that is shown of a fleet whose record is not known.
const unreadMinutes = 240

// unreadFleet stands for a fleet whose record is not known: it has its id for a name and serves
// nowhere.
func unreadFleet(id delivery.FleetID) delivery.Fleet {
	return delivery.Fleet{
		ID: id, Name: id.String(), Coverage: new(delivery.Coverage),
		DeliveryMinutes: unreadMinutes, PickupMinutes: delivery.DefaultPickupMinutes,
	}
}

// NotBefore is the Unix time before which a subject's tokens are revoked; 0: none.
func (s *FleetSnapshot) NotBefore(subject [16]byte) int64 { return s.notBefore[subject] }

// All lists the fleets by name.
func (s *FleetSnapshot) All() []*delivery.Fleet { return s.all }

// Fleet finds a fleet; nil when there is none. One whose record cannot be read is suspended and
// has neither an area nor a name of its own.
func (s *FleetSnapshot) Fleet(id delivery.FleetID) *delivery.Fleet { return s.byID[id] }

// HasRecord reports whether a fleet's name, averages and area are known.
func (s *FleetSnapshot) HasRecord(id delivery.FleetID) bool { return s.Records[id].isKnown() }

// NameFleetOf gives a store its fleet's name as it is now. The name that is stored with the store, as it
// was at the last write, stays where the fleet's record cannot be read.
func (s *FleetSnapshot) NameFleetOf(store *delivery.Store) {
	fleet := s.Fleet(store.Fleet)
	if fleet != nil && s.HasRecord(fleet.ID) {
		store.FleetName = fleet.Name
	}
}

// AppendCandidates appends the fleets that cover p, and closed ones.
func (s *FleetSnapshot) AppendCandidates(dst []Candidate, p delivery.Point) []Candidate {
	for _, f := range s.all {
		covers := f.Coverage.Contains(p)
		closed := f.Suspended || f.Disabled
		if covers || closed {
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
func (l *Fleets) VerifySecret(id delivery.FleetID, secretHash [32]byte, now time.Time) bool {
	s := l.snapshot.Load()
	if s == nil || s.byID[id] == nil {
		return false
	}
	secrets := s.secrets[id]
	return core.KnowsSecret(secrets.Current, secrets.Earlier, secretHash, now)
}

// Replaced reports whether there is a newer secret than one that VerifySecret knows.
func (s *FleetSnapshot) Replaced(id delivery.FleetID, secretHash [32]byte) bool {
	return s.byID[id] != nil && s.secrets[id].Current != string(secretHash[:])
}

// Snapshot is the latest snapshot; nil before the first was loaded.
func (l *Fleets) Snapshot() *FleetSnapshot { return l.snapshot.Load() }

// Age is how long ago controls, couriers, secrets and revocations were last read, or found
// unchanged; 0 before that has happened.
func (l *Fleets) Age() time.Duration {
	loaded := l.Loaded.Load()
	if loaded == nil {
		return 0
	}
	return time.Since(*loaded)
}

// CannotChange reports that the masters of a cluster have agreed that the one with the fleets has failed, and
// that no replica has taken its place: nobody can suspend or revoke anything, so whoever goes on with what
// it knows misses nothing. It is false where that is not known.
func (l *Fleets) CannotChange(ctx context.Context) bool {
	cluster, ok := l.core.Redis.(*redis.ClusterClient)
	if !ok {
		return false
	}

	views, err := core.OnBoards(ctx, l.core, "asking for the cluster's nodes", func(ctx context.Context, board string) (string, error) {
		master, err := cluster.MasterForKey(ctx, board)
		if err != nil {
			return "", err
		}
		return master.ClusterNodes(ctx).Result()
	})
	if err != nil {
		return false
	}

	slot := int(core.HashSlot(strings.Trim(l.core.Global.Prefix, "{}")))

	return slices.ContainsFunc(views, func(nodes string) bool { return HasFailed(nodes, slot) })
}

// HasFailed reports whether the master of a slot has the flag fail in what CLUSTER NODES answers. A node sets it
// when most masters find that one gone; until then it has the flag fail?.
func HasFailed(nodes string, slot int) bool {
	for line := range strings.Lines(nodes) {
		// id, address, flags, master, ping, pong, epoch, state of the link, then ranges of slots
		fields := strings.Fields(line)
		if len(fields) < 9 || !slices.Contains(strings.Split(fields[2], ","), "fail") {
			continue
		}

		for _, slots := range fields[8:] {
			first, last, isRange := strings.Cut(slots, "-")
			if !isRange {
				last = first
			}

			from, err := strconv.Atoi(first)
			to, badEnd := strconv.Atoi(last)
			if err == nil && badEnd == nil && from <= slot && slot <= to {
				return true
			}
		}
	}

	return false
}

// Unreadable is of how many fleets something cannot be read.
func (l *Fleets) Unreadable() int {
	s := l.snapshot.Load()
	if s == nil {
		return 0
	}
	return len(s.problems)
}

// Load brings the snapshot up to date with all that was written before the call, and compares the
// clocks. Calls at the same time share their reads. With an error
// the snapshot holds what could be read, and the last known of the rest.
func (l *Fleets) Load(ctx context.Context) error {
	err := l.Refresh(ctx)
	s := l.snapshot.Load()
	if s == nil || len(s.outdated()) == 0 {
		return err
	}
	return errors.Join(err, l.recordLoads.Begin(ctx, l.loadFleetRecords).Wait(ctx))
}

// Refresh is Load without waiting for records, which a change of controls, couriers, secrets or
// revocations needs not.
func (l *Fleets) Refresh(ctx context.Context) error {
	err := l.valueLoads.Begin(ctx, l.loadFleetValues).Wait(ctx)

	s := l.snapshot.Load()
	if s != nil && len(s.outdated()) > 0 {
		l.recordLoads.Begin(ctx, l.loadFleetRecords)
	}
	return err
}

// loadFleetValues reads the small values of all fleets if any has changed. What cannot be read of
// them stays as it was.
func (l *Fleets) loadFleetValues(ctx context.Context) error {
	began := time.Now()
	meta, err := l.core.Redis.HMGet(ctx, l.core.MetaKey(), "fleets").Result()
	if err != nil {
		return core.Failed("reading the fleets' version", err)
	}

	_, clocks := l.core.ServerTime(ctx)

	version, before := core.Text(meta[0]), l.snapshot.Load()
	if before != nil && before.complete && before.version == version {
		l.Loaded.Store(&began)
		return clocks
	}

	var known fleetValues
	if before != nil {
		known = before.values
	}

	values, err := l.readFleetValues(ctx, known)
	if err != nil && before == nil {
		return errors.Join(core.Failed("reading the fleets", err), clocks)
	}

	l.publishFleets(func(s *FleetSnapshot) {
		s.version, s.complete, s.values = version, err == nil, values
	})
	if err != nil {
		return errors.Join(core.Failed("reading the fleets", err), clocks)
	}

	l.Loaded.Store(&began)

	return clocks
}

// readFleetValues returns with an error those of known in the place of what cannot be read.
func (l *Fleets) readFleetValues(ctx context.Context, known fleetValues) (fleetValues, error) {
	// A revocation is written together with a secret or behind it. So it is read
	// first: who knows it knows the secret, and issues no token to the one before.
	pipe := l.core.Redis.Pipeline()
	revoked := pipe.ZRangeWithScores(ctx, l.core.RevokedKey(), 0, -1)
	secrets := pipe.HGetAll(ctx, l.FleetSecretsKey())
	versions := pipe.HGetAll(ctx, l.FleetVersionsKey())
	controls := pipe.HGetAll(ctx, l.FleetControlsKey())
	couriers := pipe.HGetAll(ctx, l.FleetCouriersKey())
	_, _ = pipe.Exec(ctx) // each command has its own error

	values := known
	if revoked.Err() == nil {
		values.revoked = revoked.Val()
	}

	for _, read := range []struct {
		cmd  *redis.MapStringStringCmd
		into *map[string]string
	}{
		{secrets, &values.secrets}, {versions, &values.versions}, {controls, &values.controls}, {couriers, &values.couriers},
	} {
		if read.cmd.Err() == nil {
			*read.into = read.cmd.Val()
		}
	}

	return values, core.JoinCounted([]error{revoked.Err(), secrets.Err(), versions.Err(), controls.Err(), couriers.Err()})
}

// loadFleetRecords reads the records that are outdated, some at a time, and puts each into the
// snapshot as soon as it is there. It ends at the first failure; the next call begins with those that
// have failed less often, so that one that cannot be fetched keeps no other from being read.
func (l *Fleets) loadFleetRecords(ctx context.Context) error {
	before := l.snapshot.Load()
	for _, ids := range before.recordReads() {
		fields := make([]string, len(ids))
		for i, id := range ids {
			fields[i] = string(id[:])
		}

		stored, err := l.core.Redis.HMGet(ctx, l.FleetsKey(), fields...).Result()

		fresh := make(map[delivery.FleetID]*fleetRecord, len(ids))
		for i, id := range ids {
			if err == nil {
				fresh[id] = newFleetRecord(id, before.values.versions[fields[i]], core.Text(stored[i]))
				continue
			}

			record := fleetRecord{fleet: unreadFleet(id)}
			if before.Records[id] != nil {
				record = *before.Records[id]
			}

			record.failure = err
			record.failures++
			fresh[id] = &record
		}

		l.publishFleets(func(s *FleetSnapshot) {
			s.Records = maps.Clone(s.Records)
			maps.Copy(s.Records, fresh)
		})
		if err != nil {
			return core.Failed("reading fleets' records", err)
		}
	}

	return nil
}

// recordReads groups the fleets whose records are outdated into reads. A fleet whose record could not be
// fetched gets a read of its own, because it or another of its group may have been the reason.
func (s *FleetSnapshot) recordReads() [][]delivery.FleetID {
	ids := s.outdated()
	firstFailed := slices.IndexFunc(ids, func(id delivery.FleetID) bool { return s.failures(id) > 0 })
	if firstFailed < 0 {
		firstFailed = len(ids)
	}

	reads := slices.Collect(slices.Chunk(ids[:firstFailed], RecordsPerRead))
	return slices.AppendSeq(reads, slices.Chunk(ids[firstFailed:], 1))
}

// failures returns how often in a row a fleet's record could not be fetched.
func (s *FleetSnapshot) failures(id delivery.FleetID) int {
	if s.Records[id] == nil {
		return 0
	}
	return s.Records[id].failures
}

// outdated lists the fleets whose record is of another version than the one that is stored; those
// that could not be fetched come last, the ones that failed most often at the end.
func (s *FleetSnapshot) outdated() []delivery.FleetID {
	var ids []delivery.FleetID
	for stored, version := range s.values.versions {
		id, ok := parseFleetID(stored)
		if ok && (s.Records[id] == nil || s.Records[id].Version != version) {
			ids = append(ids, id)
		}
	}

	slices.SortFunc(ids, func(a, b delivery.FleetID) int {
		return cmp.Or(s.failures(a)-s.failures(b), bytes.Compare(a[:], b[:]))
	})

	return ids
}

func parseFleetID(stored string) (id delivery.FleetID, ok bool) {
	if len(stored) != len(id) {
		return id, false
	}
	return delivery.FleetID([]byte(stored)), true
}

// publishFleets replaces the snapshot by one with other values or records. Of each fleet it logs when
// something begins to be unreadable, and when it ends.
func (l *Fleets) publishFleets(change func(*FleetSnapshot)) {
	l.publishing.Lock()
	defer l.publishing.Unlock()

	before := l.snapshot.Load()
	if before == nil {
		before = new(FleetSnapshot)
	}

	s := &FleetSnapshot{version: before.version, complete: before.complete, values: before.values, Records: before.Records}
	change(s)
	s.compose()
	l.snapshot.Store(s)

	for stored, problem := range s.problems {
		if before.problems[stored] == "" {
			l.core.Log.Error("a fleet cannot be read; the others are in force", "fleet", nameStoredFleet(stored), "error", problem)
		}
	}

	for stored := range before.problems {
		if s.problems[stored] == "" {
			l.core.Log.Info("a fleet is read again", "fleet", nameStoredFleet(stored))
		}
	}
}

func nameStoredFleet(stored string) string {
	id, ok := parseFleetID(stored)
	if !ok {
		return fmt.Sprintf("%q", stored)
	}
	return id.String()
}

// compose derives the fleets from values and records. Each fleet stands for itself: what cannot be
// read of one is noted in problems and changes no other.
func (s *FleetSnapshot) compose() {
	s.byID = make(map[delivery.FleetID]*delivery.Fleet, len(s.values.versions))
	s.secrets = make(map[delivery.FleetID]FleetSecrets, len(s.values.versions))
	s.problems = map[string]string{}

	records := make(map[delivery.FleetID]*fleetRecord, len(s.values.versions))
	for stored := range s.values.versions {
		id, ok := parseFleetID(stored)
		if !ok {
			s.problems[stored] = fmt.Sprintf("it is stored under %d bytes instead of %d", len(stored), len(id))
			continue
		}

		record := s.Records[id]
		f, err := s.composeFleet(id, record)
		if err != nil {
			s.problems[stored] = err.Error()
		}

		if record != nil {
			records[id] = record
		}

		s.byID[id] = f
		s.all = append(s.all, f)
	}

	s.Records = records
	slices.SortFunc(s.all, func(a, b *delivery.Fleet) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), bytes.Compare(a.ID[:], b.ID[:]))
	})

	s.notBefore = make(map[[16]byte]int64, len(s.values.revoked))
	for _, one := range s.values.revoked {
		subject, _ := one.Member.(string)
		if len(subject) == 16 {
			s.notBefore[[16]byte([]byte(subject))] = int64(one.Score)
		}
	}
}

// composeFleet joins a fleet's parts; record is nil while it was not read. The fleet is usable
// with an error, too, which says what of it cannot be read.
func (s *FleetSnapshot) composeFleet(id delivery.FleetID, record *fleetRecord) (*delivery.Fleet, error) {
	if record == nil {
		record = &fleetRecord{fleet: unreadFleet(id)}
	}

	f := record.fleet
	controls := DecodeControls(&f, s.values.controls[string(id[:])])

	count, reported := s.values.couriers[string(id[:])]
	couriers := decodeCouriers(&f, count, reported)

	var secrets error
	s.secrets[id], secrets = DecodeSecrets(s.values.secrets[string(id[:])])

	if !record.isKnown() {
		f.Suspended = true // takes no orders, because nobody knows where it serves
	}

	return &f, errors.Join(record.unreadable, record.failure, controls, couriers, secrets)
}

// SharedCalls lets callers share the calls of one function, of which at most one runs and one
// waits. A caller gets a call that begins after it asked, so that it sees what it wrote before.
// The zero value is ready.
type SharedCalls struct {
	mu      sync.Mutex
	next    *sharedCall // begins when the running one has ended; nil: nobody waits for another
	running sync.Mutex  // held by the call that runs
}

type sharedCall struct {
	done chan struct{}
	err  error // once done is closed
}

// Begin returns a call of do that has not begun yet. It outlives ctx, because others share it.
func (s *SharedCalls) Begin(ctx context.Context, do func(context.Context) error) *sharedCall {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.next == nil {
		s.next = &sharedCall{done: make(chan struct{})}
		go s.run(context.WithoutCancel(ctx), s.next, do)
	}
	return s.next
}

func (s *SharedCalls) run(ctx context.Context, c *sharedCall, do func(context.Context) error) {
	s.running.Lock()
	defer s.running.Unlock()

	s.mu.Lock()
	s.next = nil // whoever asks from now on needs a later call
	s.mu.Unlock()

	defer close(c.done)
	c.err = do(ctx)
}

// Wait returns the call's error, or delivery.ErrUnavailable when ctx ends before.
func (c *sharedCall) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return core.Failed("waiting for the fleets", ctx.Err())
	}
}

// Candidate is a fleet that an order at this drop-off could belong to.
type Candidate struct {
	Terms      delivery.FleetTerms
	Covers     bool
	Suspended  bool
	NoCouriers bool
}

func (c *Candidate) TakesOrders() bool { return c.Covers && !c.Suspended && !c.NoCouriers }

// Flags is the byte that create_order.lua reads of a fleet that takes no orders.
func (c *Candidate) Flags() byte {
	var b byte
	if c.Covers {
		b |= 1
	}

	if c.Suspended {
		b |= 2
	}
	return b
}
