package ledger

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"vendorapi/internal/delivery"
)

// Endpoint names a bucket of the spec's limits table.
type Endpoint uint8

// The buckets. Every vendor endpoint counts in exactly one; /webhook counts in
// the stores bucket.
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

func (e Endpoint) letter() byte { return endpointLetters[e] }

// Quota is the state of the bucket that a request was counted in, for the
// X-RateLimit headers (spec, "Limits", rule 2). It is exact: Remaining more
// requests pass if they come now. A zero Limit means that nothing was counted.
type Quota struct {
	Limit     int
	Remaining int
	Reset     int64 // Unix seconds at which Remaining will next be larger
	ResetIn   int   // seconds until then, by Redis's clock
	Window    int   // seconds of the window that Limit is of; 0: a bucket
}

// quotaSize is the packed quota of a reply, see reply in lua/window.lua.
const quotaSize = 4 + 4 + 6 + 4 + 4 + 4

// counted is a script's reply to a request that counts: its name, the quota,
// how long to wait when it was refused, and whatever it answers besides.
type counted struct {
	name    string
	quota   Quota
	wait    time.Duration
	payload string
}

func parseCounted(reply string) (counted, error) {
	name, rest, ok := strings.Cut(reply, "\n")
	if !ok {
		return counted{name: name}, nil
	}
	if len(rest) < quotaSize {
		return counted{}, fmt.Errorf("reply %q carries no quota", name)
	}
	f := fields{rest: rest}
	c := counted{name: name}
	c.quota.Limit, c.quota.Remaining = int(f.uint32()), int(f.uint32())
	c.quota.Reset = int64(f.uint16())<<32 | int64(f.uint32())
	c.wait = time.Duration(f.uint32()) * time.Millisecond
	c.quota.ResetIn, c.quota.Window = int(f.uint32()), int(f.uint32())
	c.payload = f.rest
	return c, nil
}

// refusal turns the replies that any counting script can give into errors.
func (c *counted) refusal() error {
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
func (l *core) count(ctx context.Context, s script, account delivery.AccountID, keys []string, args ...any) (counted, error) {
	text, err := l.runText(ctx, s, keys, args...)
	if err != nil {
		return counted{}, err
	}
	return l.counted(text, account)
}

// countCall is count for a composed call.
func (l *core) countCall(ctx context.Context, call *scriptCall, account delivery.AccountID) (counted, error) {
	text, err := l.send(ctx, call)
	if err != nil {
		return counted{}, err
	}
	return l.counted(text, account)
}

func (l *core) counted(reply string, account delivery.AccountID) (counted, error) {
	c, err := parseCounted(reply)
	if err != nil {
		return counted{}, err
	}
	l.minutes.add(account, c.name == "limited" || c.name == "polled_too_soon")
	return c, c.refusal()
}

// Consume counts one request that needs nothing else of the ledger: a body that
// could not be read, an order id that is none, the webhook endpoints. Errors:
// RATE_LIMITED with RetryAfter (then nothing was counted), ACCOUNT_SUSPENDED,
// TOKEN_INVALID when the account does not exist. The Quota is valid with all
// but the last.
func (l Limits) Consume(ctx context.Context, account delivery.AccountID, endpoint Endpoint) (Quota, error) {
	r := l.partitionOf(account)
	c, err := l.count(ctx, l.scripts.consume, account,
		[]string{r.ring(endpoint, account)})
	return c.quota, err
}

// CountToken verifies the SHA-256 of a client secret and counts the token, in
// one script. Errors besides Consume's: INVALID_CREDENTIALS, also for an account
// that does not exist; nothing is counted then, so a stranger cannot use up a
// vendor's tokens. notBefore is from when on the account's tokens are good, see
// FleetSnapshot: the token is good only if it is issued no earlier.
func (l Limits) CountToken(ctx context.Context, account delivery.AccountID, secretHash [32]byte) (q Quota, notBefore int64, err error) {
	r := l.partitionOf(account)
	c, err := l.count(ctx, l.scripts.countToken, account,
		[]string{r.ring(EndpointToken, account), r.account(account)}, secretHash[:])
	if c.name == "wrong_secret" || c.name == "unknown" {
		return Quota{}, 0, delivery.Refuse(delivery.CodeInvalidCredentials, "clientId or clientSecret is wrong")
	}
	f := fields{rest: c.payload}
	return c.quota, int64(f.uint16())<<32 | int64(f.uint32()), err
}

// allow asks a limit that means spacing. The library stores until when it is used
// up. After Redis's clock has gone back that lies further ahead than any use can
// put it, and would refuse for as long as the clock went back; then it is
// forgotten.
func (l *core) allow(ctx context.Context, key string, limit redis_rate.Limit) (*redis_rate.Result, error) {
	return l.allowed(ctx, key, limit, func() (*redis_rate.Result, error) { return l.rates.Allow(ctx, key, limit) })
}

// allowAtMost is allow for up to n at once.
func (l *core) allowAtMost(ctx context.Context, key string, limit redis_rate.Limit, n int) (*redis_rate.Result, error) {
	return l.allowed(ctx, key, limit, func() (*redis_rate.Result, error) { return l.rates.AllowAtMost(ctx, key, limit, n) })
}

func (l *core) allowed(ctx context.Context, key string, limit redis_rate.Limit, ask func() (*redis_rate.Result, error)) (*redis_rate.Result, error) {
	result, err := ask()
	longest := limit.Period*time.Duration(limit.Burst)/time.Duration(limit.Rate) + time.Second
	if err != nil || result.RetryAfter <= longest {
		return result, err
	}
	if err := l.rates.Reset(ctx, key); err != nil {
		return nil, err
	}
	return ask()
}

// Flags of a ring, see lua/window.lua.
const (
	ringSuspended = 1
	ringBucket    = 2
)

// packLimit is an endpoint's limit as it stands at the head of its ring: flags, then count and seconds of both windows.
func packLimit(e Endpoint, limit delivery.EndpointLimit, suspended bool) string {
	var b [17]byte
	if suspended {
		b[0] |= ringSuspended
	}
	if e == EndpointStores && limit.Sustained.Count > 0 && limit.Burst.Count > 0 {
		b[0] |= ringBucket // a bucket of the burst's size, refilled at the sustained rate
	}
	for i, n := range []int{limit.Sustained.Count, limit.Sustained.Seconds, limit.Burst.Count, limit.Burst.Seconds} {
		binary.BigEndian.PutUint32(b[1+4*i:], uint32(n))
	}
	return string(b[:])
}

// limitOf picks an endpoint's limit.
func limitOf(l *delivery.Limits, e Endpoint) delivery.EndpointLimit {
	switch e {
	case EndpointOrders:
		return l.Orders
	case EndpointOrderStatus:
		return l.OrderStatus
	case EndpointCancel:
		return l.Cancel
	case EndpointStores:
		return l.Stores
	default:
		return l.Token
	}
}
