package ledger

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
)

// allow asks a spacing limit for up to n. When Redis's clock has gone back, the stored
// time lies further ahead than any use can put it; then it is reset.
func (l *core) allow(ctx context.Context, key string, limit redis_rate.Limit, n int) (*redis_rate.Result, error) {
	result, err := l.rates.AllowAtMost(ctx, key, limit, n)
	longest := limit.Period*time.Duration(limit.Burst)/time.Duration(limit.Rate) + time.Second
	if err != nil || result.RetryAfter <= longest {
		return result, err
	}
	if err := l.rates.Reset(ctx, key); err != nil {
		return nil, err
	}
	return l.rates.AllowAtMost(ctx, key, limit, n)
}

type attemptGuard struct {
	key   string
	limit redis_rate.Limit
}

// countAttempt counts an attempt by each guard, until one refuses it.
func (l *core) countAttempt(ctx context.Context, guards ...attemptGuard) (refusing string, wait time.Duration, err error) {
	for _, guard := range guards {
		result, err := l.allow(ctx, guard.key, guard.limit, 1)
		if err != nil {
			return "", 0, failed("counting an attempt to sign in", err)
		}
		if result.Allowed == 0 {
			return guard.key, result.RetryAfter, nil
		}
	}

	return "", 0, nil
}
