package ledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/operations"
)

// testClock is a process's clock that a test moves.
type testClock struct{ at time.Time }

func (c *testClock) pass(d time.Duration)       { c.at = c.at.Add(d) }
func (c *testClock) config(config *core.Config) { config.Now = func() time.Time { return c.at } }

func newSessions(t *testing.T) (*Ledger, *testClock) {
	t.Helper()
	clock := &testClock{at: time.Date(2026, 11, 22, 9, 0, 0, 123_456, time.UTC)}
	return openTest(t, clock.config), clock
}

var ayse = operations.Session{User: "ayşe", Roles: []string{"operator", "finance"}, Credential: sha256.Sum256([]byte("line"))}

func signIn(t *testing.T, l *Ledger) (string, *operations.Session) {
	t.Helper()
	id := operations.NewSessionID()
	return id, get(l.Sessions.Create(t.Context(), id, ayse))(t)
}

func TestSession_IsFoundByItsIDOnly(t *testing.T) {
	l, _ := newSessions(t)
	id, created := signIn(t, l)
	other, _ := signIn(t, l)
	check(t, id != other && len(id) == 43 && len(created.CSRF) == 43 && created.CSRF != id, "ids %q, %q, csrf %q", id, other, created.CSRF)
	got := get(l.Sessions.Get(t.Context(), id))(t)
	want := ayse
	want.CSRF = created.CSRF
	want.CreatedAt = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	want.SeenAt = want.CreatedAt
	check(t, reflect.DeepEqual(*got, want), "got %+v, want %+v", *got, want)
	digest := sha256.Sum256([]byte(id))
	for _, unknown := range []string{"", "x", id[:42], id + "A", strings.ToLower(id), "\x00" + id[1:], string(digest[:]), strings.Repeat("A", 43)} {
		wantCode(t, errOf(l.Sessions.Get(t.Context(), unknown)), delivery.CodeTokenInvalid)
	}
}

// Whoever reads Redis, or a copy of its file, can sign in as nobody.
func TestSession_IDIsNotStored(t *testing.T) {
	l, _ := newSessions(t)
	id, _ := signIn(t, l)
	keys := get(l.core.Redis.Keys(t.Context(), "*").Result())(t)
	found := 0
	for _, key := range keys {
		check(t, !strings.Contains(key, id), "the key %q holds the id", key)
		if !strings.HasPrefix(key, "sessions:{sg}") {
			continue
		}
		found++
		value := get(l.core.Redis.Get(t.Context(), key).Result())(t)
		check(t, !strings.Contains(value, id), "the value of %q holds the id", key)
	}

	check(t, found == 1, "%d sessions are stored", found)
}

func TestSession_EndsIdleAndByAge(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []time.Duration // a request after each
		alive bool            // at the last one
	}{
		{"at once", []time.Duration{0}, true},
		{"within the idle time", []time.Duration{operations.SessionIdle - time.Millisecond}, true},
		{"when the idle time is over", []time.Duration{operations.SessionIdle}, false},
		{"requests put the end off", []time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}, true},
		{"idle after a request", []time.Duration{20 * time.Minute, operations.SessionIdle}, false},
		{"requests within a minute count once", []time.Duration{59 * time.Second, operations.SessionIdle - 59*time.Second}, false},
		{"a minute later they count again", []time.Duration{time.Minute, operations.SessionIdle - time.Millisecond}, true},
		{"just before its greatest age", append(every(20*time.Minute, 35), 20*time.Minute-time.Millisecond), true},
		{"at its greatest age, however busy", every(20*time.Minute, 36), false},
		{"a clock that went back", []time.Duration{-time.Hour}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, clock := newSessions(t)
			id, _ := signIn(t, l)
			for i, step := range c.steps {
				clock.pass(step)
				_, err := l.Sessions.Get(t.Context(), id)
				if last := i == len(c.steps)-1; last && !c.alive {
					wantCode(t, err, delivery.CodeTokenInvalid)
				} else if err != nil {
					t.Fatalf("after step %d: %v", i, err)
				}
			}
		})
	}
}

func every(step time.Duration, times int) []time.Duration {
	steps := make([]time.Duration, times)
	for i := range steps {
		steps[i] = step
	}
	return steps
}

func TestSession_LeavesRedisByItself(t *testing.T) {
	l, clock := newSessions(t)
	id, _ := signIn(t, l)
	remaining := func() time.Duration {
		return get(l.core.Redis.PTTL(t.Context(), l.Sessions.SessionKey(id)).Result())(t)
	}
	if d := remaining(); d <= operations.SessionIdle-time.Minute || d > operations.SessionIdle {
		t.Errorf("a new one stays for %s", d)
	}

	for range 35 {
		clock.pass(20 * time.Minute)
		get(l.Sessions.Get(t.Context(), id))(t)
	}

	if d := remaining(); d <= 19*time.Minute || d > 20*time.Minute {
		t.Errorf("with 20 minutes to live it stays for %s", d)
	}
}

func TestEndSession_HoldsForEverybody(t *testing.T) {
	l, clock := newSessions(t)
	id, _ := signIn(t, l)
	bystander, _ := signIn(t, l)
	clock.pass(5 * time.Minute)
	must(t, l.Sessions.End(t.Context(), id))
	must(t, l.Sessions.End(t.Context(), id))
	must(t, l.Sessions.End(t.Context(), "unknown"))
	wantCode(t, errOf(l.Sessions.Get(t.Context(), id)), delivery.CodeTokenInvalid)
	get(l.Sessions.Get(t.Context(), bystander))(t)
}

func TestEndSession_IsNotUndoneByRequestsUnderWay(t *testing.T) {
	l, clock := newSessions(t)
	id, _ := signIn(t, l)
	clock.pass(2 * time.Minute) // the request wants to store its time
	once := &afterReply{command: "get", do: func() { must(t, l.Sessions.End(t.Context(), id)) }}
	l.core.Redis.AddHook(once)
	wantCode(t, errOf(l.Sessions.Get(t.Context(), id)), delivery.CodeTokenInvalid)
	require(t, once.do == nil, "nothing was read")
	wantCode(t, errOf(l.Sessions.Get(t.Context(), id)), delivery.CodeTokenInvalid)
}

// afterReply does something once, after a command has been answered and before its
// caller knows.
type afterReply struct {
	command string
	do      func()
}

func (a *afterReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *afterReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *afterReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if do := a.do; do != nil && cmd.Name() == a.command {
			a.do = nil
			do()
		}
		return err
	}
}

func TestSession_SaysThatRedisIsUnavailable(t *testing.T) {
	own, config := ownServer(t)
	gone := openTest(t, config)
	id, _ := signIn(t, gone)
	own.Kill()
	_, err := gone.Sessions.Get(t.Context(), id)
	_, err2 := gone.Sessions.Create(t.Context(), operations.NewSessionID(), ayse)
	err3 := gone.Sessions.End(t.Context(), id)
	err4 := gone.Sessions.CountSignIn(t.Context(), "a", "b")
	err5 := gone.Sessions.ForgiveSignIns(t.Context(), "a", "b")
	for i, err := range []error{err, err2, err3, err4, err5} {
		check(t, errors.Is(err, delivery.ErrUnavailable), "%d: got %v", i, err)
	}
}

func TestCreateSession_RefusesMoreRolesThanItCanRead(t *testing.T) {
	l, _ := newSessions(t)
	check(t, errOf(l.Sessions.Create(t.Context(), operations.NewSessionID(), operations.Session{User: "a", Roles: make([]string, operations.MaxRoles+1)})) != nil, "stored")
}

func TestSession_SurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &operations.Session{User: rapid.String().Draw(t, "user"), CSRF: rapid.String().Draw(t, "csrf"),
			CreatedAt: time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "created")).UTC(),
			SeenAt:    time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "seen")).UTC()}
		copy(s.Credential[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "credential"))
		for i := range rapid.IntRange(0, operations.MaxRoles).Draw(t, "roles") {
			s.Roles = append(s.Roles, rapid.String().Draw(t, fmt.Sprint("role ", i)))
		}

		got, err := operations.DecodeSession(string(operations.EncodeSession(s)))
		require(t, err == nil && reflect.DeepEqual(got, s), "got %+v, %v, want %+v", got, err, s)
	})
}

func FuzzDecodeSession(f *testing.F) {
	s := ayse
	s.CreatedAt, s.SeenAt, s.CSRF = time.Now(), time.Now(), "csrf"
	whole := operations.EncodeSession(&s)
	f.Add(string(whole))
	f.Add(string(whole[:20]))
	f.Fuzz(func(t *testing.T, record string) {
		if s, err := operations.DecodeSession(record); err == nil && len(s.Roles) > operations.MaxRoles {
			t.Errorf("%d roles", len(s.Roles))
		}
	})
}

func TestCountSignIn_SlowsGuessingDown(t *testing.T) {
	for _, c := range []struct {
		name    string
		attempt func(i int) (user, address string)
		burst   int           // attempts that pass at once
		wait    time.Duration // until another one passes
	}{
		{"one user from one address", func(int) (string, string) { return "ayse", "192.0.2.1" }, 5, time.Minute},
		{"many users from one address", func(i int) (string, string) { return fmt.Sprint("user", i), "192.0.2.1" }, 30, 6 * time.Second},
		{"one user from many addresses", func(i int) (string, string) { return "ayse", fmt.Sprint("192.0.2.", i) }, 100, 12 * time.Second},
		{"names of any length", func(int) (string, string) { return strings.Repeat("x", 1<<16), "192.0.2.1" }, 5, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := newSessions(t)
			refusal := untilRefused(t, c.burst, c.wait, func(i int) error {
				user, address := c.attempt(i)
				return l.Sessions.CountSignIn(t.Context(), user, address)
			})
			check(t, refusal.RetryAfter > 0 && refusal.RetryAfter <= c.wait, "wait %s, want up to %s", refusal.RetryAfter, c.wait)
			must(t, l.Sessions.CountSignIn(t.Context(), "somebody else", "198.51.100.7"))
		})
	}
}

func TestCountSignIn_KeepsNamesAndAddressesApart(t *testing.T) {
	l, _ := newSessions(t)
	for range 5 {
		must(t, l.Sessions.CountSignIn(t.Context(), "ab", "c"))
	}
	must(t, l.Sessions.CountSignIn(t.Context(), "a", "bc"))
}

func TestForgiveSignIns_ForgetsThePairOnly(t *testing.T) {
	l, _ := newSessions(t)
	for range 5 {
		must(t, l.Sessions.CountSignIn(t.Context(), "ayse", "192.0.2.1"))
		must(t, l.Sessions.CountSignIn(t.Context(), "ayse", "192.0.2.2"))
	}

	must(t, l.Sessions.ForgiveSignIns(t.Context(), "ayse", "192.0.2.1"))
	must(t, l.Sessions.CountSignIn(t.Context(), "ayse", "192.0.2.1"))
	wantCode(t, l.Sessions.CountSignIn(t.Context(), "ayse", "192.0.2.2"), delivery.CodeRateLimited)
}

// Where replicas confirm what is answered, they confirm sessions and the books, too: a call is confirmed by its
// key's tag.
func TestTagOf_IsBehindTheNamesOfReportingsOwnKeys(t *testing.T) {
	l, _ := newSessions(t)
	for _, key := range []string{l.Sessions.SessionKey("id"), l.Books.Key("head"), l.core.LibrariesKey()} {
		equal(t, core.TagOf(redis.NewStringCmd(t.Context(), "set", key, "x")), "{sg}", key)
	}
}
