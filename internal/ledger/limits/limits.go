package limits

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/sync/singleflight"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// Limits counts the requests and logins of vendors, and what this process has done in each minute.
type Limits struct {
	core *core.Client

	Counts  *activityCounts
	Logins  logins
	refused RefusedRequests
}

// New returns the calls of limits.
func New(c *core.Client) *Limits { return &Limits{core: c, Counts: newActivityCounts()} }

// Endpoint is a bucket of the spec's limits table.
type Endpoint uint8

// Every vendor endpoint counts in exactly one bucket, /webhook in that of the stores.
const (
	EndpointOrders Endpoint = iota
	EndpointOrderStatus
	EndpointCancel
	EndpointStores
	EndpointToken
	Endpoints
)

// endpointLetters are stored; never change them.
const endpointLetters = "oscpt"

// Quota is the bucket's state for the X-RateLimit headers (spec, "Limits", rule 2):
// Remaining more requests pass now. A zero Limit: nothing was counted.
type Quota struct {
	Limit     int
	Remaining int
	Reset     int64 // Unix seconds at which Remaining will next be larger
	ResetIn   int   // seconds until then, by Redis's clock
	Window    int   // seconds of the window that Limit is of; 0: a bucket
}

// QuotaSize is the packed quota of a reply, see reply in core/window.lua.
const QuotaSize = 4 + 4 + 6 + 4 + 4 + 4

type CountingReply struct {
	Name    string
	Quota   Quota
	Wait    time.Duration
	Payload string
}

func ParseCountingReply(reply string) (CountingReply, error) {
	name, rest, ok := strings.Cut(reply, "\n")
	if !ok {
		return CountingReply{Name: name}, nil
	}
	if len(rest) < QuotaSize {
		return CountingReply{}, fmt.Errorf("reply %q carries no quota", name)
	}

	f := core.Fields{Rest: rest}
	c := CountingReply{Name: name}
	c.Quota.Limit, c.Quota.Remaining = int(f.Uint32()), int(f.Uint32())
	c.Quota.Reset = int64(f.Uint16())<<32 | int64(f.Uint32())
	c.Wait = time.Duration(f.Uint32()) * time.Millisecond
	c.Quota.ResetIn, c.Quota.Window = int(f.Uint32()), int(f.Uint32())
	c.Payload = f.Rest

	return c, nil
}

// refusal turns the replies that any counting script can give into errors.
func (c *CountingReply) refusal() error {
	switch c.Name {
	case "limited":
		window := "at once"
		if c.Quota.Window > 0 {
			window = fmt.Sprintf("in any %d seconds", c.Quota.Window)
		}
		return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: c.Wait,
			Message: fmt.Sprintf("the limit of %d requests %s is used up; the next one is admitted in %d s", c.Quota.Limit, window, c.Quota.ResetIn)}
	case "suspended":
		return delivery.Refuse(delivery.CodeAccountSuspended, "the account is suspended; contact the operator")
	case "unknown":
		return delivery.Refuse(delivery.CodeTokenInvalid, "the token's account does not exist")
	}

	return nil
}

// Count runs a script that counts, and keeps the per-minute figures.
func (l *Limits) Count(ctx context.Context, file string, account delivery.AccountID, endpoint Endpoint, keys []string, args ...any) (CountingReply, error) {
	asked := l.core.LocalNow()
	reply, err := l.core.RunText(ctx, file, keys, args...)
	return l.Counted(account, endpoint, asked, reply, err)
}

// Counted reads the reply of a script that counted a request to an endpoint. What it refuses
// is remembered: see Limits.Refused. asked is when the script was sent.
func (l *Limits) Counted(account delivery.AccountID, endpoint Endpoint, asked time.Time, reply string, err error) (CountingReply, error) {
	if err != nil {
		return CountingReply{}, err
	}

	c, err := ParseCountingReply(reply)
	if err != nil {
		return CountingReply{}, err
	}

	// A request with a wrong secret, or with a token of no account, is nobody's.
	hasProvenAccount := c.Name != "wrong_secret" && c.Name != "unknown"
	if hasProvenAccount {
		l.Counts.request(account, c.Name == "limited" || c.Name == "polled_too_soon")
	}

	refusal := c.refusal()
	if refusal != nil {
		l.KeepRefusal(RefusedRequest{Account: account, Endpoint: endpoint}, refusal, c.Quota, asked)
	}

	return c, refusal
}

// Consume counts a request that needs nothing else. RATE_LIMITED with RetryAfter (nothing
// was counted), ACCOUNT_SUSPENDED, TOKEN_INVALID for an unknown account.
func (l *Limits) Consume(ctx context.Context, account delivery.AccountID, endpoint Endpoint) (Quota, error) {
	r := l.core.PartitionOf(account)
	c, err := l.Count(ctx, "consume", account, endpoint,
		[]string{WindowsKey(r, endpoint, account)})
	return c.Quota, err
}

// Known is what there is to say of a client secret that is right.
type Known struct {
	NotBefore int64 // the token must not be issued before, see FleetSnapshot
	Replaced  bool  // there is a newer secret
}

// CountToken verifies a client secret's SHA-256 and counts the token, in one script.
// Besides Consume's: INVALID_CREDENTIALS, also for an unknown account, without counting.
func (l *Limits) CountToken(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (q Quota, known Known, err error) {
	r := l.core.PartitionOf(account)
	c, err := l.Count(ctx, "count_token", account, EndpointToken,
		[]string{WindowsKey(r, EndpointToken, account), r.Account(account)}, secretHash[:])
	if c.Name == "wrong_secret" || c.Name == "unknown" {
		return Quota{}, Known{}, delivery.Refuse(delivery.CodeInvalidCredentials, "clientId or clientSecret is wrong")
	}

	f := core.Fields{Rest: c.Payload}
	known.NotBefore = int64(f.Uint16())<<32 | int64(f.Uint32())
	known.Replaced = f.Byte() != 0

	return c.Quota, known, err
}

// Flags of windows, see core/window.lua.
const (
	windowsSuspended = 1
	windowsBucket    = 2
)

// PackLimit is an endpoint's limit at the head of its windows.
func PackLimit(e Endpoint, limit delivery.EndpointLimit, suspended bool) string {
	var b [17]byte
	if suspended {
		b[0] |= windowsSuspended
	}

	if e == EndpointStores && limit.Sustained.Count > 0 && limit.Burst.Count > 0 {
		b[0] |= windowsBucket // a bucket of the burst's size, refilled at the sustained rate
	}

	for i, n := range []int{limit.Sustained.Count, limit.Sustained.Seconds, limit.Burst.Count, limit.Burst.Seconds} {
		binary.BigEndian.PutUint32(b[1+4*i:], uint32(n))
	}

	return string(b[:])
}

func LimitOf(l *delivery.Limits, e Endpoint) delivery.EndpointLimit {
	return [Endpoints]delivery.EndpointLimit{l.Orders, l.OrderStatus, l.Cancel, l.Stores, l.Token}[e]
}

// WindowUse is a limit and how much of it is used, perhaps more. A zero Count: no limit.
type WindowUse struct {
	Window delivery.Window
	Used   int
}

// EndpointUse is an account's use of an endpoint's limits. The stores' bucket, Sustained,
// is shown as a window of Burst.Count requests that is empty again after Seconds.
type EndpointUse struct {
	Endpoint         Endpoint
	Sustained, Burst WindowUse
}

// endpointNames are the names of delivery.Limits' fields in JSON.
var endpointNames = [Endpoints]string{"orders", "orderStatus", "cancel", "stores", "token"}

// String is orders, orderStatus, cancel, stores or token.
func (e Endpoint) String() string {
	if e >= Endpoints {
		return fmt.Sprintf("Endpoint(%d)", uint8(e))
	}
	return endpointNames[e]
}

// useSize is one endpoint's part of the reply of usage.lua.
const useSize = 1 + 6*4

// Usage is each account's use of every endpoint's limits; nil for an unknown one.
func (l *Limits) Usage(ctx context.Context, accounts []delivery.AccountID) ([][]EndpointUse, error) {
	calls := make([]core.Call, len(accounts))
	for i, id := range accounts {
		r := l.core.PartitionOf(id)
		for e := range Endpoints {
			calls[i].Keys = append(calls[i].Keys, WindowsKey(r, e, id))
		}
	}

	replies, err := l.core.RunAll(ctx, "usage", calls)
	if err != nil {
		return nil, err
	}

	uses := make([][]EndpointUse, len(accounts))
	for i, reply := range replies {
		text, err := reply.Text()
		if err != nil {
			return nil, fmt.Errorf("script usage: %w", err)
		}

		if text == "" {
			continue
		}
		if len(text) != int(Endpoints)*useSize {
			return nil, fmt.Errorf("script usage answered %d bytes", len(text))
		}

		f := core.Fields{Rest: text}
		for e := range Endpoints {
			uses[i] = append(uses[i], readEndpointUse(&f, e))
		}
	}

	return uses, nil
}

func readEndpointUse(f *core.Fields, e Endpoint) EndpointUse {
	bucket := f.Byte()&windowsBucket != 0
	u := EndpointUse{Endpoint: e, Sustained: readWindowUse(f), Burst: readWindowUse(f)}
	if bucket {
		refill, depth := u.Sustained.Window, u.Burst.Window.Count
		u.Sustained.Window = delivery.Window{Count: depth, Seconds: (depth*refill.Seconds + refill.Count - 1) / refill.Count}
	}
	return u
}

func readWindowUse(f *core.Fields) WindowUse {
	return WindowUse{Window: delivery.Window{Count: int(f.Uint32()), Seconds: int(f.Uint32())}, Used: int(f.Uint32())}
}

// How many wrong credentials are answered as such before the answer is 429: to many
// client ids, also bounding what one address makes Redis remember, and to many secrets.
var (
	FailedLoginsFromAddress = redis_rate.Limit{Rate: 60, Burst: 60, Period: time.Minute}
	failedLoginsOfClient    = redis_rate.Limit{Rate: 10, Burst: 10, Period: time.Minute}
)

// loginGuards count a wrong credential by address, and by client id and address.
func (l *Limits) loginGuards(clientID, address string) []core.AttemptGuard {
	key := func(kind, text string) string {
		digest := delivery.OrderDigest(delivery.AccountID{}, text)
		return l.core.Global.Prefix + kind + string(digest[:])
	}
	return []core.AttemptGuard{
		{Key: key("logins:from:", address), Limit: FailedLoginsFromAddress},
		{Key: key("logins:", clientID[:min(len(clientID), 64)]+"\x00"+address), Limit: failedLoginsOfClient},
	}
}

// What a process remembers about logins, so that strangers cost Redis nothing. A full map is
// emptied.
const (
	ThrottledKept = 16_384
	SecretsKept   = 4096
	// A change holds on every gateway within a second.
	AccountsKnown = time.Second
	SecretsKnown  = 250 * time.Millisecond
)

type logins struct {
	mu        sync.Mutex
	Throttled map[string]time.Time // until when, by key of a guard
	accounts  map[delivery.AccountID]struct{}
	listed    time.Time     // when accounts was read
	unlisted  map[int]error // why the accounts of a partition were not; those known before are kept
	Secrets   map[delivery.AccountID]*KnownSecrets
	reads     singleflight.Group
}

// KnownSecrets are the hashes of an account's client secrets as of a time.
type KnownSecrets struct {
	current string
	earlier []core.EarlierSecret
	read    time.Time
}

// CountFailedLogin counts a wrong credential, never a right one, by address, and by
// client id and address. RATE_LIMITED once there were too many.
func (l *Limits) CountFailedLogin(ctx context.Context, clientID, address string) error {
	refusing, wait, err := l.core.CountAttempt(ctx, l.loginGuards(clientID, address)...)
	if refusing == "" {
		return err
	}

	l.Logins.mu.Lock()
	defer l.Logins.mu.Unlock()
	core.Remember(&l.Logins.Throttled, ThrottledKept, refusing, l.core.LocalNow().Add(wait))
	return TooManyLogins(wait)
}

// TooManyLogins is the refusal of a wrong credential.
func TooManyLogins(wait time.Duration) error {
	return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: wait, Message: "too many wrong credentials from this address"}
}

// LoginWait is how long CountFailedLogin is known to go on refusing; 0: ask it.
func (l *Limits) LoginWait(clientID, address string) (wait time.Duration) {
	now := l.core.LocalNow()
	l.Logins.mu.Lock()
	defer l.Logins.mu.Unlock()
	for _, guard := range l.loginGuards(clientID, address) {
		wait = max(wait, l.Logins.Throttled[guard.Key].Sub(now))
	}
	return wait
}

// KnowsAccountSecret compares a client secret's SHA-256 with a copy a quarter of a second
// old at most. A correct one must be checked by CountToken.
func (l *Limits) KnowsAccountSecret(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (bool, error) {
	exists, err := l.KnowsAccount(ctx, account)
	if err != nil || !exists {
		return false, err
	}

	l.Logins.mu.Lock()
	known := l.Logins.Secrets[account]
	l.Logins.mu.Unlock()
	if known == nil || l.core.LocalNow().Sub(known.read) >= SecretsKnown {
		read, err, _ := l.Logins.reads.Do(string(account[:]), func() (any, error) { return l.readSecrets(ctx, account) })
		if err != nil {
			return false, err
		}
		known = read.(*KnownSecrets)
	}

	return core.KnowsSecret(known.current, known.earlier, secretHash, l.core.Now()), nil
}

// HasAccountSecret compares a client secret's SHA-256 with those that Redis holds now. A correct one
// must be checked by CountToken.
func (l *Limits) HasAccountSecret(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (bool, error) {
	secrets, err := l.readSecrets(ctx, account)
	if err != nil {
		return false, err
	}
	return core.KnowsSecret(secrets.current, secrets.earlier, secretHash, l.core.Now()), nil
}

// KnowsAccount lists the accounts if this one is unknown and the list is not new. ErrUnavailable when
// its partition does not answer: nobody knows whether there is such an account.
func (l *Limits) KnowsAccount(ctx context.Context, account delivery.AccountID) (exists bool, err error) {
	var fresh bool
	var unlisted error
	look := func() {
		l.Logins.mu.Lock()
		defer l.Logins.mu.Unlock()
		_, exists = l.Logins.accounts[account]
		fresh = l.core.LocalNow().Sub(l.Logins.listed) < AccountsKnown
		unlisted = l.Logins.unlisted[l.core.PartitionOf(account).Number]
	}

	look()
	if !exists && !fresh {
		_, err, _ = l.Logins.reads.Do("accounts", func() (any, error) { return nil, l.listAccounts(ctx) })
		look()
	}

	if err == nil && !exists {
		err = unlisted
	}

	return exists, err
}

// listAccounts reads which accounts there are. A server of a cluster that does not answer is asked once, and
// its accounts are those that were known before.
func (l *Limits) listAccounts(ctx context.Context) error {
	began := l.core.LocalNow()
	accounts := make(map[delivery.AccountID]struct{})
	unlisted := make(map[int]error)
	away := make(map[string]error) // by server
	for _, p := range l.core.Partitions {
		server := l.core.ServerOf(ctx, p)
		err := away[server]
		if err == nil {
			err = l.core.EachAccountOf(ctx, []core.Partition{p}, func(ids []delivery.AccountID) error {
				for _, id := range ids {
					accounts[id] = struct{}{}
				}
				return nil
			})
		}

		if err != nil && !errors.Is(err, delivery.ErrUnavailable) {
			return err
		}

		if err != nil {
			away[server] = err
			unlisted[p.Number] = err
		}
	}

	if len(unlisted) == len(l.core.Partitions) {
		return unlisted[0]
	}

	l.Logins.mu.Lock()
	defer l.Logins.mu.Unlock()
	for id := range l.Logins.accounts {
		if unlisted[l.core.PartitionOf(id).Number] != nil {
			accounts[id] = struct{}{}
		}
	}

	l.Logins.accounts, l.Logins.listed, l.Logins.unlisted = accounts, began, unlisted

	return nil
}

func (l *Limits) readSecrets(ctx context.Context, account delivery.AccountID) (*KnownSecrets, error) {
	known := &KnownSecrets{read: l.core.LocalNow()}
	values, err := l.core.Redis.HGetAll(ctx, l.core.PartitionOf(account).Account(account)).Result()
	if err != nil {
		return nil, core.Failed("reading client secrets", err)
	}

	known.current = values[core.SecretField]
	known.earlier, err = core.ParseEarlier(values[core.EarlierField])
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", account, err)
	}

	if known.current == "" {
		return known, nil // there is no such account, and guesses push no other's secrets out
	}

	l.Logins.mu.Lock()
	defer l.Logins.mu.Unlock()
	core.Remember(&l.Logins.Secrets, SecretsKept, account, known)

	return known, nil
}

func WindowsKey(r core.Partition, e Endpoint, id delivery.AccountID) string {
	suffix := WindowsSuffix(e, id)
	return r.KeyOf(core.KindWindows, suffix[:])
}

func WindowsSuffix(e Endpoint, id delivery.AccountID) (suffix [17]byte) {
	suffix[0] = endpointLetters[e]
	copy(suffix[1:], id[:])
	return suffix
}
