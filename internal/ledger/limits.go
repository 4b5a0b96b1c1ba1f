package ledger

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
)

// Limits counts the requests and logins of vendors, and what this process has done in each minute.
type Limits struct {
	*core

	activity *activityCounts
	logins   logins
	refused  refusedRequests
}

// Endpoint is a bucket of the spec's limits table.
type Endpoint uint8

// Every vendor endpoint counts in exactly one bucket, /webhook in that of the stores.
const (
	EndpointOrders Endpoint = iota
	EndpointOrderStatus
	EndpointCancel
	EndpointStores
	EndpointToken
	endpoints
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

// quotaSize is the packed quota of a reply, see reply in lua/window.lua.
const quotaSize = 4 + 4 + 6 + 4 + 4 + 4

type countingReply struct {
	name    string
	quota   Quota
	wait    time.Duration
	payload string
}

func parseCountingReply(reply string) (countingReply, error) {
	name, rest, ok := strings.Cut(reply, "\n")
	if !ok {
		return countingReply{name: name}, nil
	}
	if len(rest) < quotaSize {
		return countingReply{}, fmt.Errorf("reply %q carries no quota", name)
	}

	f := fields{rest: rest}
	c := countingReply{name: name}
	c.quota.Limit, c.quota.Remaining = int(f.uint32()), int(f.uint32())
	c.quota.Reset = int64(f.uint16())<<32 | int64(f.uint32())
	c.wait = time.Duration(f.uint32()) * time.Millisecond
	c.quota.ResetIn, c.quota.Window = int(f.uint32()), int(f.uint32())
	c.payload = f.rest

	return c, nil
}

// refusal turns the replies that any counting script can give into errors.
func (c *countingReply) refusal() error {
	switch c.name {
	case "limited":
		window := "at once"
		if c.quota.Window > 0 {
			window = fmt.Sprintf("in any %d seconds", c.quota.Window)
		}
		return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: c.wait,
			Message: fmt.Sprintf("the limit of %d requests %s is used up; the next one is admitted in %d s", c.quota.Limit, window, c.quota.ResetIn)}
	case "suspended":
		return delivery.Refuse(delivery.CodeAccountSuspended, "the account is suspended; contact the operator")
	case "unknown":
		return delivery.Refuse(delivery.CodeTokenInvalid, "the token's account does not exist")
	}

	return nil
}

// count runs a script that counts, and keeps the per-minute figures.
func (l *Limits) count(ctx context.Context, file string, account delivery.AccountID, endpoint Endpoint, keys []string, args ...any) (countingReply, error) {
	asked := l.now()
	reply, err := l.runText(ctx, file, keys, args...)
	return l.counted(account, endpoint, asked, reply, err)
}

// counted reads the reply of a script that counted a request to an endpoint. What it refuses
// is remembered: see Limits.Refused. asked is when the script was sent.
func (l *Limits) counted(account delivery.AccountID, endpoint Endpoint, asked time.Time, reply string, err error) (countingReply, error) {
	if err != nil {
		return countingReply{}, err
	}

	c, err := parseCountingReply(reply)
	if err != nil {
		return countingReply{}, err
	}

	// A request with a wrong secret, or with a token of no account, is nobody's.
	hasProvenAccount := c.name != "wrong_secret" && c.name != "unknown"
	if hasProvenAccount {
		l.activity.request(account, c.name == "limited" || c.name == "polled_too_soon")
	}

	refusal := c.refusal()
	if refusal != nil {
		l.refused.keep(refusedRequest{account: account, endpoint: endpoint}, refusal, c.quota, asked, l.now())
	}

	return c, refusal
}

// Consume counts a request that needs nothing else. RATE_LIMITED with RetryAfter (nothing
// was counted), ACCOUNT_SUSPENDED, TOKEN_INVALID for an unknown account.
func (l *Limits) Consume(ctx context.Context, account delivery.AccountID, endpoint Endpoint) (Quota, error) {
	r := l.partitionOf(account)
	c, err := l.count(ctx, "consume", account, endpoint,
		[]string{r.windows(endpoint, account)})
	return c.quota, err
}

// Known is what there is to say of a client secret that is right.
type Known struct {
	NotBefore int64 // the token must not be issued before, see FleetSnapshot
	Replaced  bool  // there is a newer secret
}

// CountToken verifies a client secret's SHA-256 and counts the token, in one script.
// Besides Consume's: INVALID_CREDENTIALS, also for an unknown account, without counting.
func (l *Limits) CountToken(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (q Quota, known Known, err error) {
	r := l.partitionOf(account)
	c, err := l.count(ctx, "count_token", account, EndpointToken,
		[]string{r.windows(EndpointToken, account), r.account(account)}, secretHash[:])
	if c.name == "wrong_secret" || c.name == "unknown" {
		return Quota{}, Known{}, delivery.Refuse(delivery.CodeInvalidCredentials, "clientId or clientSecret is wrong")
	}

	f := fields{rest: c.payload}
	known.NotBefore = int64(f.uint16())<<32 | int64(f.uint32())
	known.Replaced = f.byte() != 0

	return c.quota, known, err
}

// Flags of windows, see lua/window.lua.
const (
	windowsSuspended = 1
	windowsBucket    = 2
)

// packLimit is an endpoint's limit at the head of its windows.
func packLimit(e Endpoint, limit delivery.EndpointLimit, suspended bool) string {
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

func limitOf(l *delivery.Limits, e Endpoint) delivery.EndpointLimit {
	return [endpoints]delivery.EndpointLimit{l.Orders, l.OrderStatus, l.Cancel, l.Stores, l.Token}[e]
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
var endpointNames = [endpoints]string{"orders", "orderStatus", "cancel", "stores", "token"}

// String is orders, orderStatus, cancel, stores or token.
func (e Endpoint) String() string {
	if e >= endpoints {
		return fmt.Sprintf("Endpoint(%d)", uint8(e))
	}
	return endpointNames[e]
}

// useSize is one endpoint's part of the reply of lua/usage.lua.
const useSize = 1 + 6*4

// Usage is each account's use of every endpoint's limits; nil for an unknown one.
func (l *Monitor) Usage(ctx context.Context, accounts []delivery.AccountID) ([][]EndpointUse, error) {
	calls := make([]call, len(accounts))
	for i, id := range accounts {
		r := l.partitionOf(id)
		for e := range endpoints {
			calls[i].keys = append(calls[i].keys, r.windows(e, id))
		}
	}

	replies, err := l.runAll(ctx, "usage", calls)
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
		if len(text) != int(endpoints)*useSize {
			return nil, fmt.Errorf("script usage answered %d bytes", len(text))
		}

		f := fields{rest: text}
		for e := range endpoints {
			uses[i] = append(uses[i], f.endpointUse(e))
		}
	}

	return uses, nil
}

func (f *fields) endpointUse(e Endpoint) EndpointUse {
	bucket := f.byte()&windowsBucket != 0
	u := EndpointUse{Endpoint: e, Sustained: f.windowUse(), Burst: f.windowUse()}
	if bucket {
		refill, depth := u.Sustained.Window, u.Burst.Window.Count
		u.Sustained.Window = delivery.Window{Count: depth, Seconds: (depth*refill.Seconds + refill.Count - 1) / refill.Count}
	}
	return u
}

func (f *fields) windowUse() WindowUse {
	return WindowUse{Window: delivery.Window{Count: int(f.uint32()), Seconds: int(f.uint32())}, Used: int(f.uint32())}
}

// How many wrong credentials are answered as such before the answer is 429: to many
// client ids, also bounding what one address makes Redis remember, and to many secrets.
var (
	failedLoginsFromAddress = redis_rate.Limit{Rate: 60, Burst: 60, Period: time.Minute}
	failedLoginsOfClient    = redis_rate.Limit{Rate: 10, Burst: 10, Period: time.Minute}
)

// loginGuards count a wrong credential by address, and by client id and address.
func (l *Limits) loginGuards(clientID, address string) []attemptGuard {
	key := func(kind, text string) string {
		digest := delivery.OrderDigest(delivery.AccountID{}, text)
		return l.global.prefix + kind + string(digest[:])
	}
	return []attemptGuard{
		{key("logins:from:", address), failedLoginsFromAddress},
		{key("logins:", clientID[:min(len(clientID), 64)]+"\x00"+address), failedLoginsOfClient},
	}
}

// What a process remembers about logins, so that strangers cost Redis nothing. A full map is
// emptied.
const (
	throttledKept = 16_384
	secretsKept   = 4096
	// A change holds on every gateway within a second.
	accountsKnown = time.Second
	secretsKnown  = 250 * time.Millisecond
)

type logins struct {
	mu        sync.Mutex
	throttled map[string]time.Time // until when, by key of a guard
	accounts  map[delivery.AccountID]struct{}
	listed    time.Time     // when accounts was read
	unlisted  map[int]error // why the accounts of a partition were not; those known before are kept
	secrets   map[delivery.AccountID]*knownSecrets
	reads     singleflight.Group
}

// knownSecrets are the hashes of an account's client secrets as of a time.
type knownSecrets struct {
	current string
	earlier []EarlierSecret
	read    time.Time
}

// remember adds to a map of at most so many, which begins again when it is full.
func remember[K comparable, V any](known *map[K]V, most int, key K, value V) {
	if *known == nil || len(*known) >= most {
		*known = map[K]V{}
	}
	(*known)[key] = value
}

// CountFailedLogin counts a wrong credential, never a right one, by address, and by
// client id and address. RATE_LIMITED once there were too many.
func (l *Limits) CountFailedLogin(ctx context.Context, clientID, address string) error {
	refusing, wait, err := l.countAttempt(ctx, l.loginGuards(clientID, address)...)
	if refusing == "" {
		return err
	}

	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	remember(&l.logins.throttled, throttledKept, refusing, l.now().Add(wait))
	return TooManyLogins(wait)
}

// TooManyLogins is the refusal of a wrong credential.
func TooManyLogins(wait time.Duration) error {
	return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: wait, Message: "too many wrong credentials from this address"}
}

// LoginWait is how long CountFailedLogin is known to go on refusing; 0: ask it.
func (l *Limits) LoginWait(clientID, address string) (wait time.Duration) {
	now := l.now()
	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	for _, guard := range l.loginGuards(clientID, address) {
		wait = max(wait, l.logins.throttled[guard.key].Sub(now))
	}
	return wait
}

// KnowsAccountSecret compares a client secret's SHA-256 with a copy a quarter of a second
// old at most. A correct one must be checked by CountToken.
func (l *Limits) KnowsAccountSecret(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (bool, error) {
	exists, err := l.knowsAccount(ctx, account)
	if err != nil || !exists {
		return false, err
	}

	l.logins.mu.Lock()
	known := l.logins.secrets[account]
	l.logins.mu.Unlock()
	if known == nil || l.now().Sub(known.read) >= secretsKnown {
		read, err, _ := l.logins.reads.Do(string(account[:]), func() (any, error) { return l.readSecrets(ctx, account) })
		if err != nil {
			return false, err
		}
		known = read.(*knownSecrets)
	}

	return knows(known.current, known.earlier, secretHash, l.Now()), nil
}

// HasAccountSecret compares a client secret's SHA-256 with those that Redis holds now. A correct one
// must be checked by CountToken.
func (l *Limits) HasAccountSecret(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (bool, error) {
	secrets, err := l.readSecrets(ctx, account)
	if err != nil {
		return false, err
	}
	return knows(secrets.current, secrets.earlier, secretHash, l.Now()), nil
}

// knowsAccount lists the accounts if this one is unknown and the list is not new. ErrUnavailable when
// its partition does not answer: nobody knows whether there is such an account.
func (l *Limits) knowsAccount(ctx context.Context, account delivery.AccountID) (exists bool, err error) {
	var fresh bool
	var unlisted error
	look := func() {
		l.logins.mu.Lock()
		defer l.logins.mu.Unlock()
		_, exists = l.logins.accounts[account]
		fresh = l.now().Sub(l.logins.listed) < accountsKnown
		unlisted = l.logins.unlisted[l.partitionOf(account).number]
	}

	if look(); !exists && !fresh {
		_, err, _ = l.logins.reads.Do("accounts", func() (any, error) { return nil, l.listAccounts(ctx) })
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
	began := l.now()
	accounts := make(map[delivery.AccountID]struct{})
	unlisted := make(map[int]error)
	away := make(map[string]error) // by server
	for _, p := range l.partitions {
		server := l.serverOf(ctx, p)
		err := away[server]
		if err == nil {
			err = l.eachAccountOf(ctx, []partition{p}, func(ids []delivery.AccountID) error {
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
			unlisted[p.number] = err
		}
	}

	if len(unlisted) == len(l.partitions) {
		return unlisted[0]
	}

	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	for id := range l.logins.accounts {
		if unlisted[l.partitionOf(id).number] != nil {
			accounts[id] = struct{}{}
		}
	}

	l.logins.accounts, l.logins.listed, l.logins.unlisted = accounts, began, unlisted

	return nil
}

func (l *Limits) readSecrets(ctx context.Context, account delivery.AccountID) (*knownSecrets, error) {
	known := &knownSecrets{read: l.now()}
	values, err := l.rdb.HGetAll(ctx, l.partitionOf(account).account(account)).Result()
	if err != nil {
		return nil, failed("reading client secrets", err)
	}

	known.current = values[secretField]
	known.earlier, err = parseEarlier(values[earlierField])
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", account, err)
	}

	if known.current == "" {
		return known, nil // there is no such account, and guesses push no other's secrets out
	}

	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	remember(&l.logins.secrets, secretsKept, account, known)

	return known, nil
}
