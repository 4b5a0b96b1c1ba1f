package ledger

import (
	"context"
	"crypto/subtle"
	"fmt"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/sync/singleflight"

	"vendorapi/internal/delivery"
)

// How many wrong credentials are answered as such before the answer is 429.
// Guessing 32 random bytes is hopeless anyway; these only keep the noise down.
// The first is met by who tries many client ids, and bounds what one address can
// make Redis remember; the second by who tries many secrets of one.
var (
	failedLoginsFromAddress = redis_rate.Limit{Rate: 60, Burst: 60, Period: time.Minute}
	failedLoginsOfClient    = redis_rate.Limit{Rate: 10, Burst: 10, Period: time.Minute}
)

// loginGuards are the two counts of a wrong credential: by address, and by client id
// and address.
func loginGuards(clientID, address string) [2]loginGuard {
	digest := func(text string) loginKey { return delivery.OrderDigest(delivery.AccountID{}, text) }
	return [2]loginGuard{
		{"logins:from:", digest(address), failedLoginsFromAddress},
		{"logins:", digest(clientID[:min(len(clientID), 64)] + "\x00" + address), failedLoginsOfClient},
	}
}

type loginKey = [delivery.OrderDigestSize]byte

type loginGuard struct {
	kind  string
	key   loginKey
	limit redis_rate.Limit
}

// What a process remembers about logins, so that those of strangers cost Redis
// nothing. Each map is emptied when it is full: then Redis is asked again.
const (
	throttledKept = 16_384
	secretsKept   = 4096
	// How old what is known of accounts may be; a change by an operator holds on
	// every gateway within a second.
	accountsKnown = time.Second
	secretsKnown  = 250 * time.Millisecond
)

type logins struct {
	mu        sync.Mutex
	throttled map[loginKey]time.Time // until when, by either count
	accounts  map[delivery.AccountID]struct{}
	listed    time.Time // when accounts was read
	secrets   map[delivery.AccountID]*knownSecrets
	reads     singleflight.Group
}

// knownSecrets are the hashes of an account's client secrets as of a time.
type knownSecrets struct {
	current string
	earlier []EarlierSecret
	read    time.Time
}

// CountFailedLogin counts a wrong credential by address, and by client id and
// address; address is whatever stands for one caller. It answers RATE_LIMITED
// once there were too many. It is never asked about a credential that is right,
// so it refuses nobody who has one.
func (l Limits) CountFailedLogin(ctx context.Context, clientID, address string) error {
	for _, guard := range loginGuards(clientID, address) {
		result, err := l.allow(ctx, l.global.prefix+guard.kind+string(guard.key[:]), guard.limit)
		if err != nil {
			return fmt.Errorf("counting a failed login: %w", failure(err))
		}
		if result.Allowed == 0 {
			l.logins.throttle(guard.key, l.now().Add(result.RetryAfter))
			return TooManyLogins(result.RetryAfter)
		}
	}
	return nil
}

// TooManyLogins is the refusal of a wrong credential that may be tried again after a
// time.
func TooManyLogins(wait time.Duration) error {
	return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: wait, Message: "too many wrong credentials from this address"}
}

// LoginWait is how long CountFailedLogin would go on refusing, as far as this process
// has been told; 0: it must be asked.
func (l Limits) LoginWait(clientID, address string) (wait time.Duration) {
	now := l.now()
	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	for _, guard := range loginGuards(clientID, address) {
		wait = max(wait, l.logins.throttled[guard.key].Sub(now))
	}
	return wait
}

func (c *logins) throttle(key loginKey, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.throttled == nil || len(c.throttled) >= throttledKept {
		c.throttled = map[loginKey]time.Time{}
	}
	c.throttled[key] = until
}

// KnowsAccountSecret compares the SHA-256 of a client secret with what this process
// knows of the account, which is read again at most every quarter of a second, and
// whether there is such an account every second: what is wrong costs Redis next to
// nothing, however often it is asked. What it calls right CountToken must judge.
func (l Limits) KnowsAccountSecret(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (bool, error) {
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
	right := subtle.ConstantTimeCompare([]byte(known.current), secretHash[:])
	for _, one := range valid(known.earlier, l.now()) {
		right |= subtle.ConstantTimeCompare([]byte(one.Secret), secretHash[:])
	}
	return right == 1, nil
}

func (l *core) knowsAccount(ctx context.Context, account delivery.AccountID) (bool, error) {
	known := func() (exists, fresh bool) {
		l.logins.mu.Lock()
		defer l.logins.mu.Unlock()
		_, exists = l.logins.accounts[account]
		return exists, exists || l.now().Sub(l.logins.listed) < accountsKnown
	}
	exists, fresh := known()
	if fresh {
		return exists, nil
	}
	_, err, _ := l.logins.reads.Do("accounts", func() (any, error) { return nil, l.listAccounts(ctx) })
	exists, _ = known()
	return exists, err
}

func (l *core) listAccounts(ctx context.Context) error {
	began := l.now()
	ids, err := l.accountIDs(ctx)
	if err != nil {
		return err
	}
	accounts := make(map[delivery.AccountID]struct{}, len(ids))
	for _, id := range ids {
		accounts[id] = struct{}{}
	}
	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	l.logins.accounts, l.logins.listed = accounts, began
	return nil
}

func (l *core) readSecrets(ctx context.Context, account delivery.AccountID) (*knownSecrets, error) {
	known := &knownSecrets{read: l.now()}
	fields := []string{"secret", "old_secret", "old_until", "previous"}
	read, err := l.rdb.HMGet(ctx, l.partitionOf(account).account(account), fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("reading client secrets: %w", failure(err))
	}
	values := make(map[string]string, len(fields))
	for i, field := range fields {
		values[field], _ = read[i].(string)
	}
	known.current = values["secret"]
	if known.earlier, err = storedEarlier(values); err != nil {
		return nil, fmt.Errorf("account %s: %w", account, err)
	}
	l.logins.mu.Lock()
	defer l.logins.mu.Unlock()
	if l.logins.secrets == nil || len(l.logins.secrets) >= secretsKept {
		l.logins.secrets = map[delivery.AccountID]*knownSecrets{}
	}
	l.logins.secrets[account] = known
	return known, nil
}
