package ledger

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/stack"
)

// garbage is no record of anything.
const garbage = "\x01garbage"

// largeArea is a ring of so many vertices around Taksim.
func largeArea(tb testing.TB, vertices int) *delivery.Coverage {
	tb.Helper()
	var ring []string
	for i := range vertices {
		angle := 2 * math.Pi * float64(i%(vertices-1)) / float64(vertices-1)
		ring = append(ring, fmt.Sprintf("[%.13f,%.13f]", 29+.1*math.Cos(angle), 41+.1*math.Sin(angle)))
	}
	return get(delivery.ParseCoverage([]byte(`{"type":"Polygon","coordinates":[[` + strings.Join(ring, ",") + `]]}`)))(tb)
}

func (l *Ledger) newFleetOf(tb testing.TB, name string, area *delivery.Coverage) *delivery.Fleet {
	tb.Helper()
	f := &delivery.Fleet{ID: delivery.NewFleetID(), Name: name, DeliveryMinutes: 25, Couriers: -1, Coverage: area}
	must(tb, l.Fleets.Create(tb.Context(), f, testHash))
	return f
}

// spoil overwrites a field of a fleets' hash and raises the version that gateways poll.
func (l *Ledger) spoil(tb testing.TB, key string, id delivery.FleetID, value string) {
	tb.Helper()
	must(tb, l.core.Redis.HSet(tb.Context(), key, string(id[:]), value).Err())
	must(tb, l.core.Redis.HIncrBy(tb.Context(), l.core.MetaKey(), "fleets", 1).Err())
}

// spoilRecord makes a fleet's record unreadable, under a version of its own.
func (l *Ledger) spoilRecord(tb testing.TB, id delivery.FleetID) {
	tb.Helper()
	l.spoil(tb, l.Fleets.FleetsKey(), id, garbage)
	l.spoil(tb, l.Fleets.FleetVersionsKey(), id, "1000000")
}

// loaded is a fleet as this process has it after a load.
func (l *Ledger) loaded(tb testing.TB, id delivery.FleetID) *delivery.Fleet {
	tb.Helper()
	must(tb, l.Fleets.Load(tb.Context()))
	return l.Fleets.Snapshot().Fleet(id)
}

// serverFigure is one of the figures of INFO.
func serverFigure(tb testing.TB, server *stack.Redis, section, name string) int {
	tb.Helper()
	info := get(server.Command(tb.Context(), "INFO", section))(tb)
	for line := range strings.Lines(info) {
		value, found := strings.CutPrefix(line, name+":")
		if found {
			return get(strconv.Atoi(strings.TrimSpace(value)))(tb)
		}
	}

	tb.Fatalf("INFO %s has no %s", section, name)

	return 0
}

// countCommands is a hook that counts commands by name and first key.
type countCommands struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *countCommands) note(cmd redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cmd.Name()
	if len(cmd.Args()) > 1 {
		name += fmt.Sprintf(" %v", cmd.Args()[1])
	}
	c.counts[name]++
}

func (c *countCommands) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

func (c *countCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *countCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd)
		return next(ctx, cmd)
	}
}

func (c *countCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.note(cmd)
		}
		return next(ctx, cmds)
	}
}

func TestLoadFleets_AvailabilityReadsAndWritesNoArea(t *testing.T) {
	server, config := ownServer(t)
	l := openTest(t, config)
	area := largeArea(t, 5000)
	var fleets []*delivery.Fleet
	for i := range 6 {
		fleets = append(fleets, l.newFleetOf(t, fmt.Sprint("Fleet ", i), area))
	}

	other := openTest(t, config)
	counted := &countCommands{counts: map[string]int{}}
	other.core.Redis.AddHook(counted)
	before := other.loaded(t, fleets[0].ID)
	require(t, before != nil && before.Couriers == -1, "%+v", before)

	records := counted.of("hmget " + l.Fleets.FleetsKey())
	sent, received := serverFigure(t, server, "stats", "total_net_output_bytes"), serverFigure(t, server, "stats", "total_net_input_bytes")
	const changes = 50
	for n := range changes {
		must(t, l.Fleets.SetCouriers(t.Context(), fleets[0].ID, n))
		equal(t, other.loaded(t, fleets[0].ID).Couriers, n, "couriers at the other process")
	}

	sent = serverFigure(t, server, "stats", "total_net_output_bytes") - sent
	received = serverFigure(t, server, "stats", "total_net_input_bytes") - received

	equal(t, counted.of("hmget "+l.Fleets.FleetsKey()), records, "reads of records")
	check(t, other.Fleets.Snapshot().Fleet(fleets[0].ID).Coverage == before.Coverage, "the area was parsed again")
	areaBytes := len(area.JSON())
	check(t, sent < areaBytes && received < areaBytes, "%d changes sent %d bytes and received %d; one area has %d", changes, sent, received, areaBytes)
}

func TestLoadFleets_AChangedRecordIsReadAlone(t *testing.T) {
	l := openTest(t)
	one, other := newFleet(t, l), newFleet(t, l)
	before := l.loaded(t, other.ID).Coverage
	version := l.Fleets.Snapshot().Records[other.ID].Version
	get(l.Fleets.Update(t.Context(), one.ID, func(f *delivery.Fleet) error { f.Name = "Yeni"; return nil }))(t)
	equal(t, l.loaded(t, one.ID).Name, "Yeni", "name")
	check(t, l.loaded(t, other.ID).Coverage == before && l.Fleets.Snapshot().Records[other.ID].Version == version, "the other record was read, too")
}

func TestSetCouriers_TheSameNumberRaisesNothing(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	version := func() string { return l.core.Redis.HGet(t.Context(), l.core.MetaKey(), "fleets").Val() }
	equal(t, get(l.Fleets.Couriers(t.Context(), f.ID))(t), -1, "couriers of a fleet that never reported")
	must(t, l.Fleets.SetCouriers(t.Context(), f.ID, 3))
	before := version()
	must(t, l.Fleets.SetCouriers(t.Context(), f.ID, 3))
	equal(t, version(), before, "version")
	equal(t, get(l.Fleets.Couriers(t.Context(), f.ID))(t), 3, "couriers")
	wantCode(t, l.Fleets.SetCouriers(t.Context(), delivery.NewFleetID(), 3), delivery.CodeFleetNotFound)
}

// A caller relies on seeing what it wrote, however many load at the same time.
func TestLoadFleets_ManyAtOnceShareReadsAndEachSeesItsOwnChange(t *testing.T) {
	l := openTest(t)
	var fleets []*delivery.Fleet
	for range 20 {
		fleets = append(fleets, newFleet(t, l))
	}

	var all sync.WaitGroup
	for i, f := range fleets {
		all.Go(func() {
			equal(t, l.Fleets.SetCouriers(t.Context(), f.ID, i), nil, "report")
			equal(t, l.Fleets.Load(t.Context()), nil, "load")
			equal(t, l.Fleets.Snapshot().Fleet(f.ID).Couriers, i, "couriers")
		})
	}

	all.Wait()

	// While one call runs, all that ask wait for the same next one.
	var calls accounts.SharedCalls
	began, goOn := make(chan struct{}), make(chan struct{})
	first := calls.Begin(t.Context(), func(context.Context) error { close(began); <-goOn; return nil })
	<-began
	ran := 0
	second := calls.Begin(t.Context(), func(context.Context) error { ran++; return nil })
	for range 100 {
		check(t, calls.Begin(t.Context(), nil) == second, "a call of its own for each caller")
	}

	close(goOn)
	must(t, first.Wait(t.Context()))
	must(t, second.Wait(t.Context()))
	equal(t, ran, 1, "calls for all who waited")
}

func TestLoadFleets_AnUnreadableRecordConcernsItsFleetAlone(t *testing.T) {
	var logs lockedBuffer
	l := openTest(t, func(c *core.Config) { c.Log = slog.New(slog.NewTextHandler(&logs, nil)) })
	account, good, bad := newAccount(t, l, plenty()), newFleet(t, l), newFleet(t, l)
	l.spoilRecord(t, bad.ID)
	got := l.loaded(t, bad.ID)
	require(t, got != nil && got.Suspended && !got.Disabled && len(got.Coverage.JSON()) == 0, "the unreadable fleet is %+v", got)
	equal(t, l.Fleets.Unreadable(), 1, "unreadable fleets")
	must(t, l.Fleets.Load(t.Context()))
	equal(t, strings.Count(logs.String(), "cannot be read"), 1, "lines in the log")
	for _, c := range l.Fleets.Snapshot().AppendCandidates(nil, taksim) {
		check(t, c.TakesOrders() == (c.Terms.ID == good.ID), "%+v", c)
	}

	// What operators do holds, of this fleet and of others.
	get(l.Fleets.Update(t.Context(), good.ID, func(f *delivery.Fleet) error { f.Suspended = true; return nil }))(t)
	get(l.Fleets.Update(t.Context(), bad.ID, func(f *delivery.Fleet) error { f.Disabled = true; return nil }))(t)
	get(l.Accounts.RotateSecret(t.Context(), account, [32]byte{9}, 0, true))(t)
	get(l.Fleets.RotateSecret(t.Context(), bad.ID, [32]byte{9}, 0, true))(t)
	must(t, l.Fleets.Load(t.Context()))
	s := l.Fleets.Snapshot()
	check(t, s.Fleet(good.ID).Suspended && s.Fleet(bad.ID).Disabled, "%+v and %+v", s.Fleet(good.ID), s.Fleet(bad.ID))
	check(t, s.NotBefore(account) > 0 && s.NotBefore(bad.ID) > 0, "revoked tokens are good")
	check(t, l.Fleets.VerifySecret(bad.ID, [32]byte{9}, time.Now()) && !l.Fleets.VerifySecret(bad.ID, testHash, time.Now()), "client secrets")

	// A change of a part is no repair; one of the whole is.
	rename := func(f *delivery.Fleet) error { f.Name = "Yeni"; return nil }
	check(t, errOf(l.Fleets.Update(t.Context(), bad.ID, rename)) != nil, "a record of nothing but a name was written")
	get(l.Fleets.Update(t.Context(), bad.ID, func(f *delivery.Fleet) error {
		f.Name, f.DeliveryMinutes, f.Coverage, f.Disabled = "Yeni", 30, good.Coverage, false
		return nil
	}))(t)

	got = l.loaded(t, bad.ID)
	check(t, got.Name == "Yeni" && got.Available() && got.Coverage.Contains(taksim), "repaired, it is %+v", got)
	equal(t, l.Fleets.Unreadable(), 0, "unreadable fleets after the repair")
}

func TestLoadFleets_UnreadableValuesCloseTheirFleetAlone(t *testing.T) {
	l := openTest(t)
	good, bad := newFleet(t, l), newFleet(t, l)
	for name, c := range map[string]struct {
		key    string
		value  string
		closed func(f *delivery.Fleet) bool
	}{
		"controls":                   {l.Fleets.FleetControlsKey(), garbage, func(f *delivery.Fleet) bool { return f.Disabled }},
		"controls of another format": {l.Fleets.FleetControlsKey(), "\x7f", func(f *delivery.Fleet) bool { return f.Disabled }},
		"no controls":                {l.Fleets.FleetControlsKey(), "", func(f *delivery.Fleet) bool { return f.Disabled }},
		"couriers":                   {l.Fleets.FleetCouriersKey(), garbage, func(f *delivery.Fleet) bool { return f.Couriers == 0 }},
		"couriers below none":        {l.Fleets.FleetCouriersKey(), "-7", func(f *delivery.Fleet) bool { return f.Couriers == 0 }},
		"client secrets": {l.Fleets.FleetSecretsKey(), garbage, func(f *delivery.Fleet) bool {
			return !l.Fleets.VerifySecret(f.ID, testHash, time.Now())
		}},
	} {
		before := l.core.Redis.HGet(t.Context(), c.key, string(bad.ID[:])).Val()
		l.spoil(t, c.key, bad.ID, c.value)
		got := l.loaded(t, bad.ID)
		check(t, c.closed(got) && got.Coverage.Contains(taksim), "%s: the fleet is %+v", name, got)
		equal(t, l.Fleets.Unreadable(), 1, name+": unreadable fleets")
		other := l.Fleets.Snapshot().Fleet(good.ID)
		check(t, other.Available() && l.Fleets.VerifySecret(good.ID, testHash, time.Now()), "%s: the other fleet is %+v", name, other)
		if before != "" {
			l.spoil(t, c.key, bad.ID, before)
		}
	}

	// What cannot be read is replaced by what is set.
	l.spoil(t, l.Fleets.FleetControlsKey(), bad.ID, garbage)
	l.spoil(t, l.Fleets.FleetSecretsKey(), bad.ID, garbage)
	get(l.Fleets.Update(t.Context(), bad.ID, func(f *delivery.Fleet) error { f.Disabled = false; return nil }))(t)
	check(t, errOf(l.Fleets.RotateSecret(t.Context(), bad.ID, [32]byte{9}, 0, false)) != nil, "secrets that cannot be read were kept")
	get(l.Fleets.RotateSecret(t.Context(), bad.ID, [32]byte{9}, 0, true))(t)
	must(t, l.Fleets.SetCouriers(t.Context(), bad.ID, 2))
	check(t, l.loaded(t, bad.ID).Available() && l.Fleets.VerifySecret(bad.ID, [32]byte{9}, time.Now()), "not repaired")
	l.spoil(t, l.Fleets.FleetVersionsKey(), delivery.FleetID{}, "7")
	must(t, l.core.Redis.HSet(t.Context(), l.Fleets.FleetVersionsKey(), "short", "7").Err())
	must(t, l.core.Redis.HIncrBy(t.Context(), l.core.MetaKey(), "fleets", 1).Err())
	check(t, l.loaded(t, good.ID).Available(), "a fleet under no id closes another")
}

// What cannot be fetched, other than what is spoilt, is fetched again until it can be.
func TestLoadFleets_ControlsAndRevocationsHoldWhenAreasCannotBeFetched(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	must(t, l.core.Redis.Rename(t.Context(), l.Fleets.FleetsKey(), "{sg}away").Err())
	must(t, l.core.Redis.Set(t.Context(), l.Fleets.FleetsKey(), "no hash", 0).Err())
	late := l.newFleetControls(t)
	get(l.Fleets.Update(t.Context(), f.ID, func(f *delivery.Fleet) error { f.Suspended = true; return nil }))(t)
	get(l.Fleets.RotateSecret(t.Context(), f.ID, [32]byte{9}, 0, true))(t)
	must(t, l.Fleets.Refresh(t.Context()))
	check(t, l.Fleets.Load(t.Context()) != nil, "an area that cannot be fetched is no error")

	s := l.Fleets.Snapshot()
	got := s.Fleet(f.ID)
	check(t, got.Suspended && got.Coverage.Contains(taksim) && s.NotBefore(f.ID) > 0, "%+v, not before %d", got, s.NotBefore(f.ID))
	check(t, s.Fleet(late).Suspended, "a fleet of unknown area takes orders")
	equal(t, l.Fleets.Unreadable(), 1, "fleets that cannot be read")

	must(t, l.core.Redis.Rename(t.Context(), "{sg}away", l.Fleets.FleetsKey()).Err())
	must(t, l.core.Redis.HSet(t.Context(), l.Fleets.FleetsKey(), string(late[:]), accounts.EncodeFleet(f)).Err())
	check(t, l.loaded(t, late).Available(), "the area was not fetched again")
	equal(t, l.Fleets.Unreadable(), 0, "fleets that cannot be read")
}

// holdReads is a hook that holds reads of records until it is released.
type holdReads struct {
	key      string
	began    chan struct{}
	released chan struct{}
}

func (h *holdReads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *holdReads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hmget" && cmd.Args()[1] == h.key {
			h.began <- struct{}{}
			<-h.released
		}
		return next(ctx, cmd)
	}
}

func (h *holdReads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A record that takes long to arrive keeps nobody's suspension from being known.
func TestRefresh_DoesNotWaitForRecords(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	hold := &holdReads{key: l.Fleets.FleetsKey(), began: make(chan struct{}, 10), released: make(chan struct{})}
	l.core.Redis.AddHook(hold)
	large := l.newFleetOf(t, "Large", f.Coverage)
	must(t, l.Fleets.Refresh(t.Context()))
	<-hold.began
	get(l.Fleets.Update(t.Context(), f.ID, func(f *delivery.Fleet) error { f.Suspended = true; return nil }))(t)
	must(t, l.Fleets.Refresh(t.Context()))
	s := l.Fleets.Snapshot()
	check(t, s.Fleet(f.ID).Suspended && s.Fleet(large.ID).Suspended, "%+v and %+v", s.Fleet(f.ID), s.Fleet(large.ID))
	close(hold.released)
	check(t, l.loaded(t, large.ID).Available(), "the record was not taken over")
}

// newFleetControls makes a fleet without a record.
func (l *Ledger) newFleetControls(tb testing.TB) delivery.FleetID {
	tb.Helper()
	id := delivery.NewFleetID()
	l.spoil(tb, l.Fleets.FleetControlsKey(), id, string(accounts.EncodeControls(new(delivery.Fleet))))
	secrets := accounts.FleetSecrets{Current: string(testHash[:])}
	l.spoil(tb, l.Fleets.FleetSecretsKey(), id, string(accounts.EncodeSecrets(&secrets)))
	l.spoil(tb, l.Fleets.FleetVersionsKey(), id, "5")

	return id
}

func TestLoadFleets_EachPartThatCannotBeFetchedStaysAsItWas(t *testing.T) {
	for _, broken := range []string{"fleets_versions", "fleets_controls", "fleets_couriers", "fleets_secrets"} {
		l := openTest(t)
		f := newFleet(t, l)
		must(t, l.core.Redis.Del(t.Context(), "{sg}"+broken).Err())
		must(t, l.core.Redis.Set(t.Context(), "{sg}"+broken, "no hash", 0).Err())
		must(t, l.core.Redis.ZAdd(t.Context(), l.core.RevokedKey(), redis.Z{Score: 7, Member: string(f.ID[:])}).Err())
		must(t, l.core.Redis.HIncrBy(t.Context(), l.core.MetaKey(), "fleets", 1).Err())
		age := l.Fleets.Loaded.Load()
		check(t, l.Fleets.Load(t.Context()) != nil, "%s: no error", broken)
		got := l.Fleets.Snapshot().Fleet(f.ID)
		check(t, got.Available() && l.Fleets.VerifySecret(f.ID, testHash, time.Now()), "%s: the fleet is %+v", broken, got)
		equal(t, l.Fleets.Snapshot().NotBefore(f.ID), 7, broken+": good from")
		check(t, l.Fleets.Loaded.Load() == age, "%s: counts as up to date", broken)
	}
}

func TestFleets_ControlsHaveAPlaceOfTheirOwn(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	known := l.loaded(t, f.ID)
	check(t, !known.Disabled && known.RequestsPerSecond == delivery.DefaultFleetRequests, "a new fleet is %+v", known)
	version := l.Fleets.Snapshot().Records[f.ID].Version
	change := func(change func(f *delivery.Fleet)) *delivery.Fleet {
		get(l.Fleets.Update(t.Context(), f.ID, func(f *delivery.Fleet) error { change(f); return nil }))(t)
		return l.loaded(t, f.ID)
	}

	got := change(func(f *delivery.Fleet) { f.Disabled = true })
	check(t, got.Disabled && !got.Suspended && !got.Available() && got.RequestsPerSecond == delivery.DefaultFleetRequests, "%+v", got)
	check(t, !known.Disabled, "a snapshot that is in use was changed")
	c := l.Fleets.Snapshot().AppendCandidates(nil, delivery.Point{Latitude: 39, Longitude: 32})
	if len(c) != 1 || !c[0].Suspended {
		t.Errorf("a disabled fleet takes orders: %+v", c)
	}

	got = change(func(f *delivery.Fleet) { f.RequestsPerSecond = 7 })
	check(t, got.Disabled && got.RequestsPerSecond == 7, "%+v", got)
	must(t, l.Fleets.SetCouriers(t.Context(), f.ID, 3))
	got = change(func(f *delivery.Fleet) { f.Disabled, f.RequestsPerSecond = false, delivery.DefaultFleetRequests })
	check(t, got.Available() && got.Couriers == 3 && got.RequestsPerSecond == delivery.DefaultFleetRequests, "%+v", got)
	equal(t, l.Fleets.Snapshot().Records[f.ID].Version, version, "the record's version")
}

func TestUpdateFleet_LosesNoConcurrentChange(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			equal(t, errOf(l.Fleets.Update(t.Context(), f.ID, func(f *delivery.Fleet) error { f.DeliveryMinutes++; return nil })), nil, "update")
			equal(t, l.Fleets.SetCouriers(t.Context(), f.ID, n), nil, "report")
		})
	}

	all.Wait()
	equal(t, l.loaded(t, f.ID).DeliveryMinutes, f.DeliveryMinutes+6, "minutes")
}

// Whoever meets others at each of its tries is asked to come again.
func TestUpdate_ContentionIsUnavailability(t *testing.T) {
	l := openTest(t)
	f, account := newFleet(t, l), newAccount(t, l, plenty())
	_, err := l.Fleets.Update(t.Context(), f.ID, func(mine *delivery.Fleet) error {
		mine.Suspended = true
		_, err := l.Fleets.Update(t.Context(), f.ID, func(theirs *delivery.Fleet) error { theirs.DeliveryMinutes++; return nil })
		return err
	})

	wantError(t, err, delivery.ErrUnavailable)
	_, err = l.Accounts.Update(t.Context(), account, func(mine *delivery.Account) error {
		mine.Name = "mine"
		_, err := l.Accounts.Update(t.Context(), account, func(theirs *delivery.Account) error { theirs.Name += "x"; return nil })
		return err
	})

	wantError(t, err, delivery.ErrUnavailable)
}

// lockedBuffer is text that several write.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A number that an operator once chose may become the default of a later release.
func TestDecodeControls_NoNumberOfRequestsDependsOnTheDefault(t *testing.T) {
	for _, requests := range []int{0, 1, 7, delivery.DefaultFleetRequests - 1, delivery.DefaultFleetRequests, 500, delivery.MaxFleetRequests} {
		for _, suspended := range []bool{false, true} {
			for _, disabled := range []bool{false, true} {
				controls := accounts.FleetControls{Suspended: suspended, Disabled: disabled, Requests: requests}
				stored := core.Encode(func(c *core.Codec) { accounts.CodeControls(c, &controls) })
				var f delivery.Fleet
				equal(t, accounts.DecodeControls(&f, string(stored)), nil, fmt.Sprint(controls))
				check(t, f.Suspended == suspended && f.Disabled == disabled, "%+v became %+v", controls, f)
				equal(t, f.RequestsPerSecond, cmp.Or(requests, delivery.DefaultFleetRequests), "requests a second")
			}
		}
	}
}

func TestDecodeControls_WhatNoReleaseWritesDisables(t *testing.T) {
	tooMany, negative := accounts.FleetControls{Requests: delivery.MaxFleetRequests + 1}, accounts.FleetControls{Requests: -1}
	valid := string(accounts.EncodeControls(&delivery.Fleet{RequestsPerSecond: 7}))
	for _, stored := range []string{
		string(core.Encode(func(c *core.Codec) { accounts.CodeControls(c, &tooMany) })), string(core.Encode(func(c *core.Codec) { accounts.CodeControls(c, &negative) })),
		valid[:1] + "2" + valid[2:], valid[:2] + "x" + valid[3:], valid + "x", valid[:3], "",
	} {
		var f delivery.Fleet
		check(t, accounts.DecodeControls(&f, stored) != nil && f.Disabled, "%q is %+v", stored, f)
	}
}

// failReads is a hook that lets a read of several records, or of a certain one, fail.
type failReads struct {
	key    string
	never  string // the fleet whose record never arrives
	groups bool   // whether more than one record does not arrive
}

func (f *failReads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failReads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hmget" || cmd.Args()[1] != f.key {
			return next(ctx, cmd)
		}

		fields := cmd.Args()[2:]
		if f.groups && len(fields) > 1 || slices.Contains(fields, any(f.never)) {
			cmd.SetErr(context.DeadlineExceeded)
			return context.DeadlineExceeded
		}
		return next(ctx, cmd)
	}
}

func (f *failReads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A record that never arrives keeps only its own fleet from being known, whatever shares its read.
func TestLoadFleets_ARecordThatNeverArrivesKeepsNoOtherUnread(t *testing.T) {
	for _, groups := range []bool{false, true} {
		l := openTest(t)
		area := largeArea(t, 10)
		var ids []delivery.FleetID
		for i := range 2*accounts.RecordsPerRead + 1 {
			ids = append(ids, l.newFleetOf(t, fmt.Sprint("Fleet ", i), area).ID)
		}

		// The smallest id is the first of those that have failed equally often.
		never := slices.MinFunc(ids, func(a, b delivery.FleetID) int { return bytes.Compare(a[:], b[:]) })
		l.core.Redis.AddHook(&failReads{key: l.Fleets.FleetsKey(), never: string(never[:]), groups: groups})

		for range 3 * len(ids) {
			check(t, l.Fleets.Load(t.Context()) != nil, "a record that does not arrive is no error")
		}

		for _, f := range l.Fleets.Snapshot().All() {
			equal(t, f.Available(), f.ID != never, fmt.Sprintf("groups fail %v: fleet %s takes orders", groups, f.ID))
		}

		equal(t, l.Fleets.Unreadable(), 1, "fleets that cannot be read")
	}
}

func TestHasFailed_IsWhatTheMastersHaveAgreedOn(t *testing.T) {
	t.Parallel()

	nodes := func(flags, slots string) string {
		return "07c3 127.0.0.1:30004@31004,host master - 0 1426238317239 4 connected 0-99 200\n" +
			"67ed 127.0.0.1:30002@31002 " + flags + " - 0 1426238316232 2 disconnected " + slots + "\n" +
			"292f 127.0.0.1:30003@31003 slave 07c3 0 1426238318243 3 connected\n"
	}

	for name, c := range map[string]struct {
		nodes string
		want  bool
	}{
		"its master has failed":                  {nodes("master,fail", "150 300-400"), true},
		"its only slot":                          {nodes("master,fail", "350"), true},
		"at the end of the range":                {nodes("master,fail", "300-350"), true},
		"another node suspects it alone":         {nodes("master,fail?", "300-400"), false},
		"its master lives":                       {nodes("master", "300-400"), false},
		"a master of other slots has failed":     {nodes("master,fail", "100-349 351-400"), false},
		"a replica has taken its place":          {nodes("master,fail", ""), false},
		"a slot that is being moved is no range": {nodes("master,fail", "[350->-07c3]"), false},
		"something else":                         {"OK\r\n", false},
		"nothing":                                {"", false},
		"a line that ends early is passed over":  {"67ed 127.0.0.1:30002 master,fail\n", false},
		"a replica has failed":                   {nodes("slave,fail", ""), false},
	} {
		check(t, accounts.HasFailed(c.nodes, 350) == c.want, "%s: %t", name, !c.want)
	}
}
